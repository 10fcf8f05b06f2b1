/* SPDX-License-Identifier: Apache-2.0
 *
 * Packed functions: functions over tensors whose arguments come as an array, so that all of them have one C type. What
 * a backend other than the host computes is called so. It knows neither backends nor programs.
 *
 * The convention is that of apache-tvm-ffi, so that its loader calls the exported functions of a library: the symbol of
 * function NAME is __tvm_ffi_NAME; it takes the tensors that it reads, then those that it writes, and returns 0, or -1
 * after it has told why. A tensor is a DLTensor pointer or an object of that package that holds one. */
#ifndef RELAYBUILD_PACKED_H_
#define RELAYBUILD_PACKED_H_

#include "relaybuild/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define RB_EXPORT __declspec(dllexport)
#define RB_HIDDEN
#else
#define RB_EXPORT __attribute__((visibility("default")))
#define RB_HIDDEN __attribute__((visibility("hidden")))
#endif

enum {
  RB_VALUE_NONE = 0,
  RB_VALUE_INT = 1,
  RB_VALUE_BOOL = 2,
  RB_VALUE_FLOAT = 3,
  RB_VALUE_POINTER = 4,
  RB_VALUE_TENSOR = 7,        /* as_pointer is a DLTensor */
  RB_VALUE_TEXT = 8,          /* as_text ends with a zero byte */
  RB_VALUE_TENSOR_OBJECT = 70 /* as_pointer is an object whose DLTensor lies RB_OBJECT_HEADER_BYTES behind */
};
#define RB_OBJECT_HEADER_BYTES 24

/* An argument or a result. */
typedef struct RbValue {
  int32_t type;
  uint32_t zero;
  union {
    int64_t as_int;
    double as_float;
    void *as_pointer;
    const char *as_text;
  } u;
} RbValue;

/* `self` is what the function's region keeps between calls, or NULL: then it makes what it needs for this call alone.
 */
typedef int32_t (*RbPackedFunction)(void *self, const RbValue *args, int32_t num_args, RbValue *result);

/* What a packed function takes: inputs, then outputs. */
typedef struct RbSignature {
  const char *name;
  int32_t num_inputs;
  int32_t num_outputs;
  const RbTensorInfo *inputs;
  const RbTensorInfo *outputs;
} RbSignature;

/* Records why a packed function fails, for rb_last_error() and for a caller from apache-tvm-ffi, and returns -1. */
RB_HIDDEN int32_t rb_raise(const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 1, 2)))
#endif
    ;

/* Checks number, dtype, shape, strides, alignment and device of the arguments against a signature, and that no output
 * shares memory with another of them; stores where the first element of each lies. Returns 0, or -1 as rb_raise() does.
 */
RB_HIDDEN int32_t rb_unpack(const RbSignature *signature, const RbValue *args, int32_t num_args, void **data);

/* A module that is no C code: bytes that the runtime of its type key reads. */
typedef struct RbBlob {
  const char *type_key;
  const unsigned char *bytes;
  size_t num_bytes;
} RbBlob;

/* A function that a backend computes, as the library that it is part of knows it. */
typedef struct RbRegion {
  const RbSignature *signature;
  const char *compiler; /* the backend's tag */
  RbPackedFunction call;
  /* Makes what an instance keeps between calls, and frees it; both NULL where it keeps nothing. */
  int32_t (*create)(const struct RbRegion *region, void **self);
  void (*destroy)(void *self);
  const RbBlob *blob; /* what computes it, or NULL where it is code */
} RbRegion;

/* Calls a region's function from inside of the library: it returns what the function does, whose failure is then told
 * to rb_last_error() alone. */
RB_HIDDEN int32_t rb_invoke(const RbRegion *region, void *self, const RbValue *args, int32_t num_args, RbValue *result,
                            int32_t threads);

/* How many threads the function that runs may use, its caller's included: as many as the instance of the model has that
 * calls it; 0 where the call says nothing about that. */
RB_HIDDEN int32_t rb_threads_allowed(void);

/* The functions of the backends in a library, and the modules that bring them: module 0 is the library itself, and
 * `parents` says which module imported each (-1 for module 0). */
typedef struct RbLibrary {
  uint32_t abi_version;
  uint32_t struct_size;
  int32_t num_regions;
  int32_t num_modules;
  const RbRegion *const *regions;
  const int32_t *region_modules;  /* by region, the module that brings it */
  const char *const *module_keys; /* by module, its type key: "relaybuild", "c", "examplejson" */
  const int32_t *parents;
} RbLibrary;

/* The type of the symbol relaybuild_library_v1 of a shared library. */
typedef const RbLibrary *(*RbLibraryEntry)(void);
#define RELAYBUILD_LIBRARY_ENTRY "relaybuild_library_v1"

/* Why the calling thread's last call of a packed function of a shared library failed; "" if none did. The type of the
 * symbol relaybuild_last_error_v1. */
typedef const char *(*RbLastError)(void);
#define RELAYBUILD_LAST_ERROR_ENTRY "relaybuild_last_error_v1"

#ifdef __cplusplus
}
#endif
#endif
