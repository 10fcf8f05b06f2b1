/* SPDX-License-Identifier: Apache-2.0
 *
 * What the sources of the runtime share: the text of the last error, and the checks of a tensor against its
 * description, an argument's first. Internal: only sources of the same release include it. Knows no program. */
#ifndef RELAYBUILD_CHECKS_H_
#define RELAYBUILD_CHECKS_H_

#include <stdarg.h>
#include <stddef.h>

#include "relaybuild/packed.h"

#if defined(__GNUC__)
#define RB_PRINTF(FORMAT, FIRST) __attribute__((format(printf, FORMAT, FIRST)))
#else
#define RB_PRINTF(FORMAT, FIRST)
#endif

/* Replaces the calling thread's last error; the arguments may point into the text that is replaced. */
RB_HIDDEN void rb_set_message(const char *format, va_list arguments);

/* The same, and returns `status`. */
RB_HIDDEN RbStatus rb_fail(RbStatus status, const char *format, ...) RB_PRINTF(2, 3);

/* The text of rb_fail(): "" if there was none. Valid until the thread's next error. */
RB_HIDDEN const char *rb_last_error(void);

/* The bytes of all elements. */
RB_HIDDEN size_t rb_tensor_bytes(const RbTensorInfo *info);

/* Checks device, dtype, shape, strides and alignment of a tensor of `bytes` bytes, and stores the address of its first
 * element; `role` is "input" or "output". */
RB_HIDDEN RbStatus rb_check_tensor(const char *role, const RbTensorInfo *info, size_t bytes, const DLTensor *tensor,
                                   void **data);

/* Refuses an output that shares memory with another tensor. */
RB_HIDDEN RbStatus rb_check_apart(const RbTensorInfo *output, const void *output_data, size_t output_bytes,
                                  const char *other_role, const RbTensorInfo *other, const void *other_data,
                                  size_t other_bytes);

/* Stores the tensor that an argument is, which may be a null pointer still; an error where it is none. */
RB_HIDDEN RbStatus rb_tensor_argument(const char *role, const RbTensorInfo *info, const RbValue *argument,
                                      DLTensor **tensor);

/* Checks the number of arguments of the function `name`. */
RB_HIDDEN RbStatus rb_check_arguments(const char *name, int32_t num_inputs, int32_t num_outputs, const RbValue *args,
                                      int32_t num_args);

/* Does with the last error what rb_raise() does with its own; `status` says of which kind it is. Returns -1. */
RB_HIDDEN int32_t rb_raise_last(RbStatus status);

#endif
