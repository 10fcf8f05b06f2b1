/* SPDX-License-Identifier: Apache-2.0
 *
 * The C interface of a compiled model (C and C++). It knows neither how a model was compiled nor how it runs.
 *
 * A library offers the functions of RbModelApi under its model's name (digits_create, digits_run, ...), and all of them
 * as a table, which digits_api() returns and, of a shared library, the fixed symbol relaybuild_model_v1. Numbers and
 * the order of fields never change. What is new is appended: struct_size tells where a table ends, and who reads a
 * field that is not in the first release looks whether it is there. RELAYBUILD_ABI_VERSION is raised only where that
 * would not be enough. From C++, relaybuild/model.hpp does all this. */
#ifndef RELAYBUILD_MODEL_H_
#define RELAYBUILD_MODEL_H_

#include <stddef.h>
#include <stdint.h>

#ifndef DLPACK_DLPACK_H_
#include "dlpack.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RELAYBUILD_ABI_VERSION 1u

/* What every call returns; the sentence that goes with an error is in last_error(). */
typedef int32_t RbStatus;
enum {
  RB_OK = 0,
  RB_ERROR_INVALID_ARGUMENT = 1, /* a null pointer, a wrong count, a number out of range */
  RB_ERROR_INVALID_TENSOR = 2,   /* dtype, shape, strides, alignment, device or overlap of a tensor */
  RB_ERROR_OUT_OF_MEMORY = 3,
  RB_ERROR_BUSY = 4,            /* another thread is inside run() of this instance */
  RB_ERROR_UNSUPPORTED_CPU = 5, /* the processor lacks what the library was compiled for */
  RB_ERROR_THREAD = 6,          /* the system refused to start a thread */
  RB_ERROR_INTERNAL = 7,        /* the library itself is broken */
  RB_ERROR_CALL_DEPTH = 8,      /* the model's functions call each other more deeply than the stack allows */
  RB_ERROR_REGION = 9           /* a function that another backend computes has failed */
};

typedef struct RbTensorInfo {
  const char *name;
  int32_t ndim;
  const int64_t *shape; /* ndim extents; may be NULL when ndim is 0 */
  DLDataType dtype;
} RbTensorInfo;

typedef struct RbModelInfo {
  uint32_t abi_version;
  const char *name;
  const char *target;       /* "x86-64-v3" */
  const char *cpu_features; /* what create() requires, "avx2 fma"; "" for the architecture's baseline */
  int32_t num_inputs;
  int32_t num_outputs;
  const RbTensorInfo *inputs;
  const RbTensorInfo *outputs;
  size_t arena_bytes;   /* of every instance */
  size_t scratch_bytes; /* of every thread of an instance */
  size_t weight_bytes;  /* read-only, shared by all instances */
  const char *metadata; /* JSON text */
} RbModelInfo;

/* One inference at a time: memory for intermediate values, and the threads that compute them. */
typedef struct RbInstance RbInstance;

/* Threads that belong to the application, for instances that have none of their own. */
typedef struct RbThreadPool {
  void *context;   /* what run() is given */
  int32_t threads; /* how many tasks can run at the same time, 1 or more */

  /* Calls task(argument, t) once for each t from 0 to `threads` - 1, returns 0 when all of them have returned, and
   * makes visible to the caller what they wrote. All of them run AT THE SAME TIME, each on a thread of its own, of
   * which the calling thread may be one: they wait for each other. Calls may come from several threads, for several
   * instances and models; one that cannot have all its threads at once waits until it can, and holds none meanwhile.
   *
   * Without threads for all tasks it returns something else than 0, and no task runs or is called later. Where some
   * have begun already, task(argument, -1) makes them return before they do anything. */
  int32_t (*run)(void *context, void (*task)(void *argument, int32_t thread), void *argument, int32_t threads);
} RbThreadPool;

/* What create_with() is asked for; what is left 0 has the default. */
typedef struct RbCreateOptions {
  uint32_t struct_size; /* sizeof(RbCreateOptions) when the caller was compiled */
  int32_t threads;      /* as create() takes it; with a pool, 0 is all that it has */

  /* Computes in these threads; NULL: in threads of the instance. The structure is copied, what `context` points to has
   * to outlive the instance. */
  const RbThreadPool *pool;
} RbCreateOptions;

typedef struct RbModelApi {
  uint32_t abi_version;
  uint32_t struct_size; /* sizeof(RbModelApi) when the library was compiled */

  /* Constant for the life of the library. */
  const RbModelInfo *(*describe)(void);

  /* Makes an instance and stores it in *out (NULL on error). threads is 1 or more, or 0 for the default: the variable
   * RELAYBUILD_NUM_THREADS, else what the model was compiled for, else the processors this process may use. A model
   * that does not gain from many threads uses fewer: num_threads() tells. */
  RbStatus (*create)(int32_t threads, RbInstance **out);

  /* Computes the outputs, whose content is undefined after an error. Tensors are in the model's order, in CPU memory,
   * row-major without gaps, aligned to their element; an output overlaps no other tensor. Nothing is kept of them after
   * the call. One instance serves one call at a time (RB_ERROR_BUSY); different instances are independent. After fork()
   * an instance works in the child too, unless it was inside run() at that moment. */
  RbStatus (*run)(RbInstance *instance, const DLTensor *const *inputs, int32_t num_inputs, DLTensor *const *outputs,
                  int32_t num_outputs);

  /* Frees an instance that no thread is using; NULL is allowed. */
  void (*destroy)(RbInstance *instance);

  /* The sentence of the calling thread's last error; "" if there was none. Valid until that thread's next error. */
  const char *(*last_error)(void);

  /* The number of threads that run() uses, the caller's included. */
  int32_t (*num_threads)(const RbInstance *instance);

  /* create() with more to choose; NULL stands for the defaults. It is there where rb_has_create_with() says so. */
  RbStatus (*create_with)(const RbCreateOptions *options, RbInstance **out);
} RbModelApi;

/* Whether the library that `api` is of knows create_with(). */
static inline int rb_has_create_with(const RbModelApi *api) {
  return api->struct_size >= offsetof(RbModelApi, create_with) + sizeof api->create_with;
}

/* The type of the symbol relaybuild_model_v1 of a shared model library. */
typedef const RbModelApi *(*RbModelEntry)(void);
#define RELAYBUILD_MODEL_ENTRY "relaybuild_model_v1"

/* A tensor that views `data`, which holds what `info` describes in row-major order. */
static inline DLTensor rb_tensor(const RbTensorInfo *info, void *data) {
  DLTensor tensor;
  tensor.data = data;
  tensor.device.device_type = kDLCPU;
  tensor.device.device_id = 0;
  tensor.ndim = info->ndim;
  tensor.dtype = info->dtype;
#ifdef __cplusplus
  tensor.shape = const_cast<int64_t *>(info->shape);
#else
  tensor.shape = (int64_t *)info->shape;
#endif
  tensor.strides = NULL;
  tensor.byte_offset = 0;
  return tensor;
}

#ifdef __cplusplus
}
#endif
#endif
