/* Region cblas_0: nn.matmul, cblas.dense_bias. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "relaybuild/packed.h"
#include "runtime/blas.h"

/* The bias in each of 4 rows */
static void cblas_0_0(const float *restrict bias, float *restrict out) {
  for (int64_t row = 0; row < 4; ++row) {
    memcpy(out + row * 5, bias, 20);
  }
}

static int32_t cblas_0_(const float *in_0, const float *in_1, const float *in_2, const float *in_3,
                        const float *in_4, float *out_0, unsigned char *buffers) {
  float *buf_0 = (float *)(buffers + 0);
  float *buf_1 = (float *)(buffers + 576);
  for (int64_t i0 = 0; i0 < 2; ++i0) {
    for (int64_t i1 = 0; i1 < 3; ++i1) {
      const float *a = in_3 + i0 * 90 + i1 * 30;
      const float *b = in_4 + i1 * 20;
      float *out = buf_0 + i0 * 72 + i1 * 24;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans,
                  6, 4, 5, 1, a, 5, b, 5, 0, out, 4);
    }
  }
  cblas_0_0(in_2, buf_1);
  {
    const float *a = in_0;
    const float *b = in_1;
    float *out = buf_1;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans,
                4, 5, 7, 1, a, 7, b, 7, 1, out, 5);
  }
  {
    const float *a = buf_0;
    const float *b = buf_1;
    float *out = out_0;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans,
                36, 5, 4, 1, a, 4, b, 5, 0, out, 5);
  }
  return 0;
}

/* `self` is the buffers, or NULL: then they are made for this call. */
static int32_t cblas_0_call(void *self, void *const *data) {
  unsigned char *buffers = (unsigned char *)(self ? self : aligned_alloc(64, 704));
  if (!buffers) {
    return rb_raise("out of memory: region 'cblas_0' needs 704 bytes of buffers");
  }
  const int32_t status = cblas_0_((const float *)data[0], (const float *)data[1], (const float *)data[2],
                                  (const float *)data[3], (const float *)data[4], (float *)data[5], buffers);
  if (!self) {
    free(buffers);
  }
  return status;
}

RB_HIDDEN int32_t cblas_0_wrapper_(DLTensor *in_0, DLTensor *in_1, DLTensor *in_2, DLTensor *in_3, DLTensor *in_4,
                                   DLTensor *out_0) {
  void *data[] = {
      (char *)in_0->data + in_0->byte_offset,
      (char *)in_1->data + in_1->byte_offset,
      (char *)in_2->data + in_2->byte_offset,
      (char *)in_3->data + in_3->byte_offset,
      (char *)in_4->data + in_4->byte_offset,
      (char *)out_0->data + out_0->byte_offset,
  };
  return cblas_0_call(NULL, data);
}

static const int64_t cblas_0_inputs_0_shape[] = {4, 7};
static const int64_t cblas_0_inputs_1_shape[] = {5, 7};
static const int64_t cblas_0_inputs_2_shape[] = {5};
static const int64_t cblas_0_inputs_3_shape[] = {2, 3, 6, 5};
static const int64_t cblas_0_inputs_4_shape[] = {3, 4, 5};
static const RbTensorInfo cblas_0_inputs[] = {
    {"x0", 2, cblas_0_inputs_0_shape, {kDLFloat, 32, 1}},
    {"x1", 2, cblas_0_inputs_1_shape, {kDLFloat, 32, 1}},
    {"x2", 1, cblas_0_inputs_2_shape, {kDLFloat, 32, 1}},
    {"x3", 4, cblas_0_inputs_3_shape, {kDLFloat, 32, 1}},
    {"x4", 3, cblas_0_inputs_4_shape, {kDLFloat, 32, 1}},
};
static const int64_t cblas_0_outputs_0_shape[] = {2, 3, 6, 5};
static const RbTensorInfo cblas_0_outputs[] = {
    {"y0", 4, cblas_0_outputs_0_shape, {kDLFloat, 32, 1}},
};
static const RbSignature cblas_0_signature = {
    "cblas_0",
    5,
    1,
    cblas_0_inputs,
    cblas_0_outputs,
};

RB_EXPORT int32_t __tvm_ffi_cblas_0(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  void *data[6];
  (void)result;
  if (rb_unpack(&cblas_0_signature, args, num_args, data)) {
    return -1;
  }
  return cblas_0_call(self, data);
}

RB_HIDDEN int32_t cblas_0_create(const RbRegion *region, void **self) {
  (void)region;
  *self = aligned_alloc(64, 704);
  return *self ? 0 : rb_raise("out of memory: region 'cblas_0' needs 704 bytes of buffers");
}

RB_HIDDEN void cblas_0_destroy(void *self) {
  free(self);
}
