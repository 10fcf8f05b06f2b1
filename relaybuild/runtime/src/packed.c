/* SPDX-License-Identifier: Apache-2.0
 *
 * What packed functions are written with: their arguments become addresses, their failures a text, and an exception
 * where apache-tvm-ffi calls them. Compiled for the architecture's baseline; does not know what the functions compute.
 */
#include "relaybuild/checks.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Calls of rb_invoke() that this thread is inside of. */
static _Thread_local int rb_inner_calls;
static _Thread_local int32_t rb_allowed;

typedef void (*RbErrorSetter)(const char *kind, const char *message);

#if defined(__ELF__)
/* Neither need be there: nobody has to have that package, and a static program has no loader. */
extern void TVMFFIErrorSetRaisedFromCStr(const char *kind, const char *message) __attribute__((weak));
extern void *dlsym(void *handle, const char *name) __attribute__((weak));

/* The package may have come into the process after this library, whose weak reference is then bound to nothing. */
static RbErrorSetter rb_error_setter(void) {
  if (TVMFFIErrorSetRaisedFromCStr) {
    return TVMFFIErrorSetRaisedFromCStr;
  }
  RbErrorSetter setter = NULL;
  void *found = dlsym ? dlsym(NULL, "TVMFFIErrorSetRaisedFromCStr") : NULL;
  memcpy(&setter, &found, sizeof setter);
  return setter;
}
#else
static RbErrorSetter rb_error_setter(void) {
  return NULL;
}
#endif

static const char *rb_exception_name(RbStatus status) {
  switch (status) {
  case RB_ERROR_INVALID_ARGUMENT:
  case RB_ERROR_INVALID_TENSOR:
    return "ValueError";
  case RB_ERROR_OUT_OF_MEMORY:
    return "MemoryError";
  default:
    return "RuntimeError";
  }
}

int32_t rb_raise_last(RbStatus status) {
  const RbErrorSetter set = rb_inner_calls ? NULL : rb_error_setter();
  if (set) {
    set(rb_exception_name(status), rb_last_error());
  }
  return -1;
}

int32_t rb_raise(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  rb_set_message(format, arguments);
  va_end(arguments);
  return rb_raise_last(RB_ERROR_REGION);
}

int32_t rb_invoke(const RbRegion *region, void *self, const RbValue *args, int32_t num_args, RbValue *result,
                  int32_t threads) {
  const int32_t before = rb_allowed;
  ++rb_inner_calls;
  rb_allowed = threads;
  const int32_t failed = region->call(self, args, num_args, result);
  rb_allowed = before;
  --rb_inner_calls;
  return failed;
}

int32_t rb_threads_allowed(void) {
  return rb_allowed;
}

RbStatus rb_tensor_argument(const char *role, const RbTensorInfo *info, const RbValue *argument, DLTensor **tensor) {
  if (argument->type == RB_VALUE_TENSOR) {
    *tensor = argument->u.as_pointer;
    return RB_OK;
  }
  if (argument->type == RB_VALUE_TENSOR_OBJECT && argument->u.as_pointer) {
    *tensor = (DLTensor *)(void *)((unsigned char *)argument->u.as_pointer + RB_OBJECT_HEADER_BYTES);
    return RB_OK;
  }
  static const char *const names[] = {"none", "an integer", "a truth value", "a number", "a pointer"};
  const bool is_named = argument->type >= 0 && argument->type < (int32_t)(sizeof names / sizeof names[0]);
  char number[32];
  snprintf(number, sizeof number, "of type %" PRId32, argument->type);
  return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' is %s, expected a tensor", role, info->name,
                 is_named ? names[argument->type] : number);
}

RbStatus rb_check_arguments(const char *name, int32_t num_inputs, int32_t num_outputs, const RbValue *args,
                            int32_t num_args) {
  if (num_args != num_inputs + num_outputs) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT,
                   "got %" PRId32 " arguments, function '%s' takes %" PRId32 ": %" PRId32 " inputs, then %" PRId32
                   " outputs to write",
                   num_args, name, num_inputs + num_outputs, num_inputs, num_outputs);
  }
  if (num_args && !args) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "the arguments of function '%s' are a null pointer", name);
  }
  return RB_OK;
}

static const RbTensorInfo *rb_parameter(const RbSignature *signature, int32_t index) {
  return index < signature->num_inputs ? &signature->inputs[index] : &signature->outputs[index - signature->num_inputs];
}

static const char *rb_role(const RbSignature *signature, int32_t index) {
  return index < signature->num_inputs ? "input" : "output";
}

static RbStatus rb_unpack_tensor(const RbSignature *signature, int32_t index, const RbValue *argument, void **data) {
  const RbTensorInfo *info = rb_parameter(signature, index);
  const char *role = rb_role(signature, index);
  DLTensor *tensor = NULL;
  const RbStatus status = rb_tensor_argument(role, info, argument, &tensor);
  return status ? status : rb_check_tensor(role, info, rb_tensor_bytes(info), tensor, data);
}

/* The output at `index` of all parameters against those before it. */
static RbStatus rb_check_output_apart(const RbSignature *signature, int32_t index, void *const *data) {
  const RbTensorInfo *output = rb_parameter(signature, index);
  const size_t bytes = rb_tensor_bytes(output);
  RbStatus status = RB_OK;
  for (int32_t i = 0; i < index && !status; ++i) {
    const RbTensorInfo *other = rb_parameter(signature, i);
    status = rb_check_apart(output, data[index], bytes, rb_role(signature, i), other, data[i], rb_tensor_bytes(other));
  }
  return status;
}

int32_t rb_unpack(const RbSignature *signature, const RbValue *args, int32_t num_args, void **data) {
  RbStatus status = rb_check_arguments(signature->name, signature->num_inputs, signature->num_outputs, args, num_args);
  if (status) {
    return rb_raise_last(status);
  }
  for (int32_t i = 0; i < num_args && !status; ++i) {
    status = rb_unpack_tensor(signature, i, &args[i], &data[i]);
    if (!status && i >= signature->num_inputs) {
      status = rb_check_output_apart(signature, i, data);
    }
  }
  if (status) {
    rb_fail(status, "function '%s': %s", signature->name, rb_last_error());
    return rb_raise_last(status);
  }
  return 0;
}

/* The text behind rb_last_error(), for who loads a library that has no other table to find it in. */
RB_EXPORT const char *relaybuild_last_error_v1(void);
const char *relaybuild_last_error_v1(void) {
  return rb_last_error();
}
