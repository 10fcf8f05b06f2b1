/* Region dnnl_0: dnnl.conv2d_bias_clip, dnnl.conv2d_sum_relu. */
#include <math.h>
#include "runtime/dnnl_runtime.h"

static const RbDnnlValue values[] = {
    {RB_DNNL_INPUT, 1568, 0},
    {RB_DNNL_WEIGHT, 1152, 0},
    {RB_DNNL_WEIGHT, 16, 0},
    {RB_DNNL_WEIGHT, 144, 0},
    {RB_DNNL_RESULT, 784, 0},
    {RB_DNNL_RESULT, 784, 0},
};

static const RbDnnlOperation operations[] = {
    /* dnnl.conv2d_bias_clip */
    {
        .kind = RB_DNNL_CONVOLUTION,
        .src = {0, 4, {1, 8, 14, 14}, 0},
        .weights = {1, 4, {16, 8, 3, 3}, 0},
        .bias = {2, 1, {16}, 0},
        .dst = {4, 4, {1, 16, 7, 7}, 0},
        .strides = {2, 2},
        .dilation = {1, 1},
        .padding = {1, 1, 1, 1},
        .num_post_ops = 1,
        .post_ops = {{RB_DNNL_CLIP, 0.0f, 6.0f, 0}},
    },
    /* dnnl.conv2d_sum_relu */
    {
        .kind = RB_DNNL_CONVOLUTION,
        .src = {4, 4, {1, 16, 7, 7}, 0},
        .weights = {3, 5, {16, 1, 1, 3, 3}, 0},
        .dst = {5, 4, {1, 16, 7, 7}, 0},
        .strides = {1, 1},
        .dilation = {1, 1},
        .padding = {1, 1, 1, 1},
        .num_post_ops = 2,
        .post_ops = {{RB_DNNL_SUM, 0.0f, 0.0f, 4}, {RB_DNNL_RELU, 0.0f, 0.0f, 0}},
    },
};

static const int32_t outputs[] = {5};

static const RbDnnlRegion region = {
    .num_inputs = 4,
    .num_values = 6,
    .num_operations = 2,
    .num_outputs = 1,
    .values = values,
    .operations = operations,
    .outputs = outputs,
};

static int32_t dnnl_0_call(void *self, void *const *data) {
  return rb_dnnl_run(&region, self, data);
}

static const int64_t dnnl_0_inputs_0_shape[] = {1, 8, 14, 14};
static const int64_t dnnl_0_inputs_1_shape[] = {16, 8, 3, 3};
static const int64_t dnnl_0_inputs_2_shape[] = {16, 1, 1};
static const int64_t dnnl_0_inputs_3_shape[] = {16, 1, 3, 3};
static const RbTensorInfo dnnl_0_inputs[] = {
    {"x0", 4, dnnl_0_inputs_0_shape, {kDLFloat, 32, 1}},
    {"x1", 4, dnnl_0_inputs_1_shape, {kDLFloat, 32, 1}},
    {"x2", 3, dnnl_0_inputs_2_shape, {kDLFloat, 32, 1}},
    {"x3", 4, dnnl_0_inputs_3_shape, {kDLFloat, 32, 1}},
};
static const int64_t dnnl_0_outputs_0_shape[] = {1, 16, 7, 7};
static const RbTensorInfo dnnl_0_outputs[] = {
    {"y0", 4, dnnl_0_outputs_0_shape, {kDLFloat, 32, 1}},
};
static const RbSignature dnnl_0_signature = {
    "dnnl_0",
    4,
    1,
    dnnl_0_inputs,
    dnnl_0_outputs,
};

RB_EXPORT int32_t __tvm_ffi_dnnl_0(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  void *data[5];
  (void)result;
  if (rb_unpack(&dnnl_0_signature, args, num_args, data)) {
    return -1;
  }
  return dnnl_0_call(self, data);
}

RB_HIDDEN int32_t dnnl_0_create(const RbRegion *described, void **self) {
  (void)described;
  return rb_dnnl_create(&region, self);
}

RB_HIDDEN void dnnl_0_destroy(void *self) {
  rb_dnnl_destroy(self);
}
