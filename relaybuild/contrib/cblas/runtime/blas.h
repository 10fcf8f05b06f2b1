/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of whichever BLAS was found, under its plain names. Knows no program.
 *
 * BLAS_SYMBOL_PREFIX and BLAS_SYMBOL_SUFFIX are what a library's build put around its names, in its header too. */
#ifndef RELAYBUILD_CONTRIB_CBLAS_BLAS_H_
#define RELAYBUILD_CONTRIB_CBLAS_BLAS_H_

#if defined(RELAYBUILD_CBLAS_MKL)
#include <mkl_cblas.h>
#else
#include <cblas.h>
#endif

#if defined(BLAS_SYMBOL_PREFIX) || defined(BLAS_SYMBOL_SUFFIX)
#ifndef BLAS_SYMBOL_PREFIX
#define BLAS_SYMBOL_PREFIX
#endif
#ifndef BLAS_SYMBOL_SUFFIX
#define BLAS_SYMBOL_SUFFIX
#endif
#define RB_BLAS_JOIN_(prefix, name, suffix) prefix##name##suffix
#define RB_BLAS_JOIN(prefix, name, suffix) RB_BLAS_JOIN_(prefix, name, suffix)
#define RB_BLAS(name) RB_BLAS_JOIN(BLAS_SYMBOL_PREFIX, name, BLAS_SYMBOL_SUFFIX)
#define cblas_sgemm RB_BLAS(cblas_sgemm)
#define cblas_dgemm RB_BLAS(cblas_dgemm)
#define cblas_sgemv RB_BLAS(cblas_sgemv)
#define cblas_dgemv RB_BLAS(cblas_dgemv)
#endif

#endif
