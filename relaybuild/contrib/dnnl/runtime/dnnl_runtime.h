/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions computed by oneDNN: what the generated unit of a region says of it, and the functions that it calls. Knows
 * neither the program around a region nor how the description was made.
 *
 * A region is a list of operations over values. Every value is a float32 tensor whose elements lie row-major in the
 * inputs and outputs; within a region oneDNN chooses how a value is laid out. */
#ifndef RELAYBUILD_CONTRIB_DNNL_RUNTIME_H_
#define RELAYBUILD_CONTRIB_DNNL_RUNTIME_H_

#include "relaybuild/packed.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RB_DNNL_MAX_RANK = 6, RB_DNNL_MAX_POST_OPS = 4 };

/* A value as an operation sees it: `shape` counts the elements as the operation does, and may have other axes than the
 * tensor. Rank 0 is no operand. Where `is_transposed`, the last two axes of `shape` lie exchanged in memory. */
typedef struct RbDnnlOperand {
  int32_t value;
  int32_t rank;
  int64_t shape[RB_DNNL_MAX_RANK];
  int32_t is_transposed;
} RbDnnlOperand;

typedef enum RbDnnlPostOpKind {
  RB_DNNL_SUM,     /* + value, of the result's shape */
  RB_DNNL_RELU,    /* below zero, times alpha */
  RB_DNNL_CLIP,    /* to [alpha, beta] */
  RB_DNNL_SIGMOID, /* 1 / (1 + exp(-x)) */
  RB_DNNL_TANH,
  RB_DNNL_GELU,  /* x * (1 + erf(x / sqrt(2))) / 2 */
  RB_DNNL_SWISH, /* x * sigmoid(alpha * x) */
  RB_DNNL_LINEAR /* alpha * x + beta */
} RbDnnlPostOpKind;

/* What is done to each element of a result before it is stored. */
typedef struct RbDnnlPostOp {
  RbDnnlPostOpKind kind;
  float alpha;
  float beta;
  int32_t value;
} RbDnnlPostOp;

typedef enum RbDnnlKind {
  RB_DNNL_CONVOLUTION, /* src (N, C, H, W), weights ([groups,] O, I, rows, columns), bias (O) */
  RB_DNNL_PRODUCT,     /* src (..., M, K), weights (..., K, N), bias (..., 1, N); leading extents broadcast */
  RB_DNNL_MAX_POOLING, /* src (N, C, H, W) */
  RB_DNNL_MEAN_POOLING /* padding does not count */
} RbDnnlKind;

typedef struct RbDnnlOperation {
  RbDnnlKind kind;
  RbDnnlOperand src;
  RbDnnlOperand weights;
  RbDnnlOperand bias;
  RbDnnlOperand dst;
  int64_t strides[2];
  int64_t dilation[2]; /* 1: neighbouring elements */
  int64_t padding[4];  /* top, left, bottom, right */
  int64_t window[2];   /* of a pooling */
  int32_t num_post_ops;
  RbDnnlPostOp post_ops[RB_DNNL_MAX_POST_OPS];
} RbDnnlOperation;

typedef enum RbDnnlSource {
  RB_DNNL_INPUT,   /* differs from call to call */
  RB_DNNL_WEIGHT,  /* an input that is the same at every call for one instance */
  RB_DNNL_LITERAL, /* `data`, in the code */
  RB_DNNL_RESULT   /* of an operation */
} RbDnnlSource;

typedef struct RbDnnlValue {
  RbDnnlSource source;
  int64_t num_elements;
  const float *data;
} RbDnnlValue;

/* The first values are the region's inputs, in order; `outputs` says which values are its outputs. An operation
 * comes after those whose results it reads. */
typedef struct RbDnnlRegion {
  int32_t num_inputs;
  int32_t num_values;
  int32_t num_operations;
  int32_t num_outputs;
  const RbDnnlValue *values;
  const RbDnnlOperation *operations;
  const int32_t *outputs;
} RbDnnlRegion;

/* Makes what an instance keeps between calls: primitives, memory, and, after its first call, weights as oneDNN wants
 * them. Returns 0, or -1 as rb_raise() does. */
RB_HIDDEN int32_t rb_dnnl_create(const RbDnnlRegion *region, void **self);

RB_HIDDEN void rb_dnnl_destroy(void *self);

/* Computes the outputs. `data` points to the inputs, then to the outputs. Without `self`, everything is made for this
 * call. One thread at a time for each `self`. Returns 0, or -1 as rb_raise() does. */
RB_HIDDEN int32_t rb_dnnl_run(const RbDnnlRegion *region, void *self, void *const *data);

#ifdef __cplusplus
}
#endif
#endif
