/* Region ccompiler_0: add, subtract, multiply. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "relaybuild/packed.h"

/* add: Tensor[(10, 10), float32], Tensor[(10, 10), float32] */
static void ccompiler_0_0(const float *restrict a, const float *restrict b, float *restrict out) {
  for (int64_t i0 = 0; i0 < 100; ++i0) {
    out[i0] = a[i0] + b[i0];
  }
}

/* subtract: Tensor[(10, 10), float32], Tensor[(10, 10), float32] */
static void ccompiler_0_1(const float *restrict a, const float *restrict b, float *restrict out) {
  for (int64_t i0 = 0; i0 < 100; ++i0) {
    out[i0] = a[i0] - b[i0];
  }
}

/* multiply: Tensor[(10, 10), float32], Tensor[(10, 10), float32] */
static void ccompiler_0_2(const float *restrict a, const float *restrict b, float *restrict out) {
  for (int64_t i0 = 0; i0 < 100; ++i0) {
    out[i0] = a[i0] * b[i0];
  }
}

static int32_t ccompiler_0_(const float *in_0, const float *in_1, const float *in_2, const float *in_3, float *out_0,
                            unsigned char *buffers) {
  float *buf_0 = (float *)(buffers + 0);
  float *buf_1 = (float *)(buffers + 448);
  ccompiler_0_0(in_0, in_1, buf_0);
  ccompiler_0_1(buf_0, in_2, buf_1);
  ccompiler_0_2(buf_1, in_3, out_0);
  return 0;
}

/* `self` is the buffers, or NULL: then they are made for this call. */
static int32_t ccompiler_0_call(void *self, void *const *data) {
  unsigned char *buffers = (unsigned char *)(self ? self : aligned_alloc(64, 896));
  if (!buffers) {
    return rb_raise("out of memory: region 'ccompiler_0' needs 896 bytes of buffers");
  }
  const int32_t status = ccompiler_0_((const float *)data[0], (const float *)data[1], (const float *)data[2],
                                      (const float *)data[3], (float *)data[4], buffers);
  if (!self) {
    free(buffers);
  }
  return status;
}

RB_HIDDEN int32_t ccompiler_0_wrapper_(DLTensor *in_0, DLTensor *in_1, DLTensor *in_2, DLTensor *in_3,
                                       DLTensor *out_0) {
  void *data[] = {
      (char *)in_0->data + in_0->byte_offset,
      (char *)in_1->data + in_1->byte_offset,
      (char *)in_2->data + in_2->byte_offset,
      (char *)in_3->data + in_3->byte_offset,
      (char *)out_0->data + out_0->byte_offset,
  };
  return ccompiler_0_call(NULL, data);
}

static const int64_t ccompiler_0_inputs_0_shape[] = {10, 10};
static const int64_t ccompiler_0_inputs_1_shape[] = {10, 10};
static const int64_t ccompiler_0_inputs_2_shape[] = {10, 10};
static const int64_t ccompiler_0_inputs_3_shape[] = {10, 10};
static const RbTensorInfo ccompiler_0_inputs[] = {
    {"x0", 2, ccompiler_0_inputs_0_shape, {kDLFloat, 32, 1}},
    {"x1", 2, ccompiler_0_inputs_1_shape, {kDLFloat, 32, 1}},
    {"x2", 2, ccompiler_0_inputs_2_shape, {kDLFloat, 32, 1}},
    {"x3", 2, ccompiler_0_inputs_3_shape, {kDLFloat, 32, 1}},
};
static const int64_t ccompiler_0_outputs_0_shape[] = {10, 10};
static const RbTensorInfo ccompiler_0_outputs[] = {
    {"y0", 2, ccompiler_0_outputs_0_shape, {kDLFloat, 32, 1}},
};
static const RbSignature ccompiler_0_signature = {
    "ccompiler_0",
    4,
    1,
    ccompiler_0_inputs,
    ccompiler_0_outputs,
};

RB_EXPORT int32_t __tvm_ffi_ccompiler_0(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  void *data[5];
  (void)result;
  if (rb_unpack(&ccompiler_0_signature, args, num_args, data)) {
    return -1;
  }
  return ccompiler_0_call(self, data);
}

RB_HIDDEN int32_t ccompiler_0_create(const RbRegion *region, void **self) {
  (void)region;
  *self = aligned_alloc(64, 896);
  return *self ? 0 : rb_raise("out of memory: region 'ccompiler_0' needs 896 bytes of buffers");
}

RB_HIDDEN void ccompiler_0_destroy(void *self) {
  free(self);
}
