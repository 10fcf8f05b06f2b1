/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the last error, and the checks of a tensor against its description. Compiled for the architecture's
 * baseline; knows neither programs nor packed functions. */
#include "relaybuild/checks.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char rb_message[1024];

const char *rb_last_error(void) {
  return rb_message;
}

void rb_set_message(const char *format, va_list arguments) {
  char text[sizeof rb_message];
  vsnprintf(text, sizeof text, format, arguments);
  memcpy(rb_message, text, sizeof rb_message);
}

RbStatus rb_fail(RbStatus status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  rb_set_message(format, arguments);
  va_end(arguments);
  return status;
}

size_t rb_tensor_bytes(const RbTensorInfo *info) {
  size_t count = 1;
  for (int32_t i = 0; i < info->ndim; ++i) {
    count *= (size_t)info->shape[i];
  }
  return (count * info->dtype.bits * info->dtype.lanes + 7) / 8;
}

typedef struct RbText {
  char text[192];
} RbText;

static const char *rb_shape_text(RbText *out, const int64_t *shape, int32_t ndim) {
  size_t used = (size_t)snprintf(out->text, sizeof out->text, "(");
  for (int32_t i = 0; i < ndim && used < sizeof out->text; ++i) {
    const char *separator = ndim == 1 ? "," : i + 1 < ndim ? ", " : "";
    used += (size_t)snprintf(out->text + used, sizeof out->text - used, "%" PRId64 "%s", shape[i], separator);
  }
  if (used < sizeof out->text) {
    snprintf(out->text + used, sizeof out->text - used, ")");
  }
  return out->text;
}

static const char *rb_dtype_text(RbText *out, DLDataType dtype) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const char *name = dtype.code < sizeof names / sizeof names[0] ? names[dtype.code] : "unknown";
  char bits[8] = "", lanes[8] = "";
  if (dtype.code != kDLBool || dtype.bits != 8) {
    snprintf(bits, sizeof bits, "%u", (unsigned)dtype.bits);
  }
  if (dtype.lanes != 1) {
    snprintf(lanes, sizeof lanes, "x%u", (unsigned)dtype.lanes);
  }
  snprintf(out->text, sizeof out->text, "%s%s%s", name, bits, lanes);
  return out->text;
}

static bool rb_same_shape(const DLTensor *tensor, const RbTensorInfo *info) {
  if (tensor->ndim != info->ndim) {
    return false;
  }
  for (int32_t i = 0; i < info->ndim; ++i) {
    if (tensor->shape[i] != info->shape[i]) {
      return false;
    }
  }
  return true;
}

/* Row-major without gaps; the stride of an extent of 1 means nothing. */
static bool rb_is_compact(const DLTensor *tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; tensor->strides && i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) {
      return false;
    }
    expected *= tensor->shape[i];
  }
  return true;
}

static size_t rb_alignment(DLDataType dtype) {
  const size_t bytes = ((size_t)dtype.bits + 7) / 8;
  return dtype.code == kDLComplex ? bytes / 2 : bytes ? bytes : 1;
}

static RbStatus rb_check_type(const char *role, const RbTensorInfo *info, const DLTensor *tensor) {
  RbText found, wanted;
  if (tensor->dtype.code != info->dtype.code || tensor->dtype.bits != info->dtype.bits ||
      tensor->dtype.lanes != info->dtype.lanes) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' has dtype %s, expected %s", role, info->name,
                   rb_dtype_text(&found, tensor->dtype), rb_dtype_text(&wanted, info->dtype));
  }
  if (tensor->ndim < 0 || (tensor->ndim > 0 && !tensor->shape)) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' has %" PRId32 " dimensions and %s shape", role, info->name,
                   tensor->ndim, tensor->shape ? "a" : "a null pointer as");
  }
  if (!rb_same_shape(tensor, info)) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' has shape %s, expected %s", role, info->name,
                   rb_shape_text(&found, tensor->shape, tensor->ndim), rb_shape_text(&wanted, info->shape, info->ndim));
  }
  return RB_OK;
}

RbStatus rb_check_tensor(const char *role, const RbTensorInfo *info, size_t bytes, const DLTensor *tensor,
                         void **data) {
  if (!tensor) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' is a null pointer", role, info->name);
  }
  if (tensor->device.device_type != kDLCPU) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' is on a device of DLPack type %d, expected the CPU (1)", role,
                   info->name, (int)tensor->device.device_type);
  }
  const RbStatus status = rb_check_type(role, info, tensor);
  if (status) {
    return status;
  }
  if (bytes && !rb_is_compact(tensor)) {
    RbText found;
    return rb_fail(RB_ERROR_INVALID_TENSOR, "%s '%s' has strides %s, expected a row-major tensor without gaps", role,
                   info->name, rb_shape_text(&found, tensor->strides, tensor->ndim));
  }
  if (bytes && !tensor->data) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "the data of %s '%s' is a null pointer", role, info->name);
  }
  *data = tensor->data ? (unsigned char *)tensor->data + tensor->byte_offset : NULL;
  if ((uintptr_t)*data % rb_alignment(info->dtype)) {
    return rb_fail(RB_ERROR_INVALID_TENSOR, "the data of %s '%s' is not aligned to its element of %zu bytes", role,
                   info->name, rb_alignment(info->dtype));
  }
  return RB_OK;
}

static bool rb_overlaps(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
  const uintptr_t a_start = (uintptr_t)a, b_start = (uintptr_t)b;
  return a_bytes && b_bytes && a_start < b_start + b_bytes && b_start < a_start + a_bytes;
}

RbStatus rb_check_apart(const RbTensorInfo *output, const void *output_data, size_t output_bytes,
                        const char *other_role, const RbTensorInfo *other, const void *other_data, size_t other_bytes) {
  if (!rb_overlaps(output_data, output_bytes, other_data, other_bytes)) {
    return RB_OK;
  }
  return rb_fail(RB_ERROR_INVALID_TENSOR, "output '%s' shares memory with %s '%s', expected memory of its own",
                 output->name, other_role, other->name);
}
