/* One call of any model with tensors of its own, filled with numbers that depend on a seed; for C and C++. */
#ifndef BOUNDARY_H_
#define BOUNDARY_H_

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "relaybuild/packed.h"

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                                  \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

enum { MOST_TENSORS = 8 };

typedef struct Call {
  int32_t inputs, outputs;
  DLTensor tensors[MOST_TENSORS]; /* inputs, then outputs */
  DLTensor *pointers[MOST_TENSORS];
  size_t bytes[MOST_TENSORS];
} Call;

static inline void call_open(Call *call, const RbModelInfo *info, int seed) {
  call->inputs = info->num_inputs;
  call->outputs = info->num_outputs;
  CHECK(call->inputs + call->outputs <= MOST_TENSORS);
  for (int32_t i = 0; i < call->inputs + call->outputs; ++i) {
    const RbTensorInfo *tensor = i < call->inputs ? &info->inputs[i] : &info->outputs[i - call->inputs];
    size_t count = 1;
    for (int32_t k = 0; k < tensor->ndim; ++k) {
      count *= (size_t)tensor->shape[k];
    }
    CHECK(tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32);
    float *data = (float *)malloc(count * sizeof *data);
    CHECK(data);
    for (size_t k = 0; k < count; ++k) {
      data[k] = i < call->inputs ? (float)((k * 7 + (size_t)seed * 5) % 23) * 0.1f - 1.0f : -77.0f;
    }
    call->bytes[i] = count * sizeof *data;
    call->tensors[i] = rb_tensor(tensor, data);
    call->pointers[i] = &call->tensors[i];
  }
}

static inline void call_close(Call *call) {
  for (int32_t i = 0; i < call->inputs + call->outputs; ++i) {
    free(call->tensors[i].data);
  }
}

static inline RbStatus call_run(Call *call, const RbModelApi *api, RbInstance *instance) {
  return api->run(instance, (const DLTensor *const *)call->pointers, call->inputs, call->pointers + call->inputs,
                  call->outputs);
}

/* The same by a model's packed function. */
static inline int32_t call_packed(Call *call, RbPackedFunction function) {
  RbValue values[MOST_TENSORS], result;
  memset(values, 0, sizeof values);
  memset(&result, 0, sizeof result);
  for (int32_t i = 0; i < call->inputs + call->outputs; ++i) {
    values[i].type = RB_VALUE_TENSOR;
    values[i].u.as_pointer = call->pointers[i];
  }
  return function(NULL, values, call->inputs + call->outputs, &result);
}

static inline int same_outputs(const Call *a, const Call *b) {
  for (int32_t i = a->inputs; i < a->inputs + a->outputs; ++i) {
    if (memcmp(a->tensors[i].data, b->tensors[i].data, a->bytes[i])) {
      return 0;
    }
  }
  return 1;
}

#endif
