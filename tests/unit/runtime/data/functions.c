/* Packed functions without a model: "add" keeps a state between calls, "refuse" fails; of "twice" and "made" the table
 * does not tell. With WITHOUT_TABLE no table tells of any. */
#include "relaybuild/packed.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

enum { COUNT = 6 };

static _Atomic int64_t states_made, states_alive;

typedef struct State {
  const RbRegion *region;
  float sum[COUNT];
} State;

static const int64_t shape[] = {2, 3};
static const RbTensorInfo inputs[] = {{"a", 2, shape, {kDLFloat, 32, 1}}, {"b", 2, shape, {kDLFloat, 32, 1}}};
static const RbTensorInfo outputs[] = {{"sum", 2, shape, {kDLFloat, 32, 1}}};
static const RbSignature add_signature = {"add", 2, 1, inputs, outputs};
static const RbSignature refuse_signature = {"refuse", 1, 0, inputs, NULL};

static int32_t add_create(const RbRegion *region, void **self) {
  State *state = calloc(1, sizeof *state);
  if (!state) {
    return rb_raise("out of memory");
  }
  state->region = region;
  atomic_fetch_add(&states_made, 1);
  atomic_fetch_add(&states_alive, 1);
  *self = state;
  return 0;
}

static void add_destroy(void *self) {
  atomic_fetch_sub(&states_alive, 1);
  free(self);
}

RB_EXPORT int32_t __tvm_ffi_add(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_add(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  State local = {0}, *state = self ? self : &local;
  void *data[3];
  (void)result;
  if (rb_unpack(&add_signature, args, num_args, data)) {
    return -1;
  }
  const float *a = data[0], *b = data[1];
  float *sum = data[2];
  /* through the state, so that two calls that shared one would mix */
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < COUNT; ++i) {
      state->sum[i] = a[i] + b[i];
    }
    for (int i = 0; i < COUNT; ++i) {
      sum[i] = state->sum[i];
    }
  }
  return 0;
}

RB_EXPORT int32_t __tvm_ffi_refuse(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_refuse(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  (void)self;
  (void)args;
  (void)num_args;
  (void)result;
  return rb_raise("the vault is shut for %d hours", 7);
}

/* Doubles float32 numbers; believes its arguments. */
RB_EXPORT int32_t __tvm_ffi_twice(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_twice(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  (void)self;
  (void)result;
  if (num_args != 2) {
    return rb_raise("twice takes 2 arguments, got %d", (int)num_args);
  }
  const DLTensor *x = args[0].u.as_pointer, *y = args[1].u.as_pointer;
  size_t count = 1;
  for (int32_t i = 0; i < x->ndim; ++i) {
    count *= (size_t)x->shape[i];
  }
  const float *from = (const float *)(const void *)((const char *)x->data + x->byte_offset);
  float *to = (float *)(void *)((char *)y->data + y->byte_offset);
  for (size_t i = 0; i < count; ++i) {
    to[i] = 2 * from[i];
  }
  return 0;
}

/* Writes how many states were made, and how many of them are alive. */
RB_EXPORT int32_t __tvm_ffi_made(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_made(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  (void)self;
  (void)num_args;
  (void)result;
  int64_t *numbers = ((const DLTensor *)args[0].u.as_pointer)->data;
  numbers[0] = atomic_load(&states_made);
  numbers[1] = atomic_load(&states_alive);
  return 0;
}

const RbLibrary *functions_table(void);
const RbLibrary *functions_table(void) {
  static const RbRegion add = {&add_signature, "adder", __tvm_ffi_add, add_create, add_destroy, NULL};
  static const RbRegion refuse = {&refuse_signature, "refuser", __tvm_ffi_refuse, NULL, NULL, NULL};
  static const RbRegion *const regions[] = {&add, &refuse};
  static const int32_t region_modules[] = {1, 2}, parents[] = {-1, 0, 1};
  static const char *const keys[] = {"library", "c", "inner"};
  static const RbLibrary library = {
      RELAYBUILD_ABI_VERSION, (uint32_t)sizeof(RbLibrary), 2, 3, regions, region_modules, keys, parents};
  return &library;
}

#ifndef WITHOUT_TABLE
RB_EXPORT const RbLibrary *relaybuild_library_v1(void);
const RbLibrary *relaybuild_library_v1(void) {
  return functions_table();
}
#endif
