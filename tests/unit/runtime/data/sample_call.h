/* A call of the sample model with tensors of its own, and what its results have to be. */
#ifndef SAMPLE_CALL_H_
#define SAMPLE_CALL_H_

#include "sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #condition, sample_last_error());                                 \
      exit(1);                                                                                                         \
    }                                                                                                                  \
  } while (0)

typedef struct Call {
  float x[SAMPLE_INPUT_X_SIZE], bias[SAMPLE_INPUT_THE_BIAS_SIZE];
  float y[SAMPLE_OUTPUT_Y_SIZE], total[SAMPLE_OUTPUT_TOTAL_SIZE];
  DLTensor tensors[4];
  const DLTensor *inputs[SAMPLE_NUM_INPUTS];
  DLTensor *outputs[SAMPLE_NUM_OUTPUTS];
} Call;

static inline void prepare(Call *call, int seed) {
  const RbModelInfo *info = sample_describe();
  for (int i = 0; i < SAMPLE_INPUT_X_SIZE; ++i) {
    call->x[i] = (float)((i * 7 + seed) % 13);
  }
  for (int i = 0; i < SAMPLE_INPUT_THE_BIAS_SIZE; ++i) {
    call->bias[i] = (float)(i % 5 + seed);
  }
  call->tensors[0] = rb_tensor(&info->inputs[SAMPLE_INPUT_X], call->x);
  call->tensors[1] = rb_tensor(&info->inputs[SAMPLE_INPUT_THE_BIAS], call->bias);
  call->tensors[2] = rb_tensor(&info->outputs[SAMPLE_OUTPUT_Y], call->y);
  call->tensors[3] = rb_tensor(&info->outputs[SAMPLE_OUTPUT_TOTAL], call->total);
  call->inputs[0] = &call->tensors[0];
  call->inputs[1] = &call->tensors[1];
  call->outputs[0] = &call->tensors[2];
  call->outputs[1] = &call->tensors[3];
  memset(call->y, 0, sizeof call->y);
  memset(call->total, 0, sizeof call->total);
}

static inline int is_right(const Call *call) {
  const int count = SAMPLE_INPUT_X_SIZE, columns = SAMPLE_INPUT_THE_BIAS_SIZE;
  for (int row = 0; row < SAMPLE_OUTPUT_TOTAL_SIZE; ++row) {
    float total = 0;
    for (int column = 0; column < columns; ++column) {
      const int i = row * columns + column;
      const float scale = i % 2 ? 2.0f * 0.5f * 2.0f : 0.5f * 2.0f * 0.5f;
      const float expected = scale * call->x[(i + 3) % count] + call->bias[column];
      if (call->y[i] != expected) {
        return 0;
      }
      total += expected;
    }
    if (call->total[row] != total) {
      return 0;
    }
  }
  return 1;
}

static inline RbStatus run(RbInstance *instance, Call *call) {
  return sample_run(instance, call->inputs, SAMPLE_NUM_INPUTS, call->outputs, SAMPLE_NUM_OUTPUTS);
}

static inline void expect(RbStatus found, RbStatus wanted, const char *message) {
  if (found != wanted || strcmp(sample_last_error(), message)) {
    fprintf(stderr, "status %d instead of %d: %s\n instead of: %s\n", (int)found, (int)wanted, sample_last_error(),
            message);
    exit(1);
  }
}

#endif
