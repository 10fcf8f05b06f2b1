/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a model through its C interface, found by dlopen, and tells how long calls take. Knows no model. */
#include "relaybuild/model.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TENSORS = 16 };

typedef struct Caller {
  const RbModelApi *api;
  RbInstance *instance;
  DLTensor tensors[2][MOST_TENSORS];
  const DLTensor *inputs[MOST_TENSORS];
  DLTensor *outputs[MOST_TENSORS];
} Caller;

#define BENCH_EXPORT __attribute__((visibility("default")))
BENCH_EXPORT Caller *caller_open(const char *path);
BENCH_EXPORT double caller_time(Caller *caller, int calls);

/* Zeros in the shape of a tensor; NULL where there is no memory. */
static void *elements(const RbTensorInfo *info) {
  size_t bytes = (size_t)(info->dtype.bits / 8);
  for (int32_t k = 0; k < info->ndim; ++k) {
    bytes *= (size_t)info->shape[k];
  }
  const size_t room = bytes / 64 * 64 + 64;
  void *data = aligned_alloc(64, room);
  return data ? memset(data, 0, room) : NULL;
}

/* An instance of one thread with tensors of zeros for input; NULL if the library cannot be used. */
Caller *caller_open(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, RELAYBUILD_MODEL_ENTRY) : NULL;
  Caller *caller = symbol ? calloc(1, sizeof *caller) : NULL;
  if (!caller) {
    return NULL;
  }
  RbModelEntry entry = NULL;
  *(void **)(&entry) = symbol;
  caller->api = entry();
  const RbModelInfo *info = caller->api->describe();
  if (info->num_inputs > MOST_TENSORS || info->num_outputs > MOST_TENSORS ||
      caller->api->create(1, &caller->instance)) {
    free(caller);
    return NULL;
  }
  for (int32_t k = 0; k < info->num_inputs; ++k) {
    caller->tensors[0][k] = rb_tensor(&info->inputs[k], elements(&info->inputs[k]));
    caller->inputs[k] = &caller->tensors[0][k];
  }
  for (int32_t k = 0; k < info->num_outputs; ++k) {
    caller->tensors[1][k] = rb_tensor(&info->outputs[k], elements(&info->outputs[k]));
    caller->outputs[k] = &caller->tensors[1][k];
  }
  return caller;
}

/* Seconds of one of `calls` calls, on average; negative if one fails. */
double caller_time(Caller *caller, int calls) {
  const RbModelInfo *info = caller->api->describe();
  struct timespec begin, end;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  for (int k = 0; k < calls; ++k) {
    if (caller->api->run(caller->instance, caller->inputs, info->num_inputs, caller->outputs, info->num_outputs)) {
      return -1.0;
    }
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  return ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / calls;
}
