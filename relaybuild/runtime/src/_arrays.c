/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns Python objects into tensors without copying where that can be; knows the buffer protocol, DLPack and numpy's
 * functions, nothing of libraries. */
#include "_arrays.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "a buffer's shape is read as a tensor's shape");

/* What may become of an object that is bound. */
typedef enum Role { ROLE_INPUT, ROLE_OUTPUT, ROLE_UNKNOWN } Role;

static const char *role_name(Role role) {
  static const char *const role_names[] = {"input", "output", "argument"};
  return role_names[role];
}

PyObject *import_attribute(const char *module, const char *name) {
  PyObject *imported = PyImport_ImportModule(module);
  PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
  Py_XDECREF(imported);
  return attribute;
}

bool names_fill(PythonNames *names) {
  return (names->error = import_attribute("relaybuild.errors", "UserError")) &&
         (names->empty = import_attribute("numpy", "empty")) &&
         (names->require = import_attribute("numpy", "require")) &&
         (names->from_dlpack = import_attribute("numpy", "from_dlpack")) &&
         (names->masked = PyUnicode_InternFromString("numpy.ma"));
}

void names_clear(PythonNames *names) {
  Py_CLEAR(names->masked);
  Py_CLEAR(names->from_dlpack);
  Py_CLEAR(names->require);
  Py_CLEAR(names->empty);
  Py_CLEAR(names->error);
}

static PyObject *shape_tuple(const RbTensorInfo *info) {
  PyObject *shape = PyTuple_New(info->ndim);
  for (int32_t i = 0; shape && i < info->ndim; ++i) {
    PyObject *extent = PyLong_FromLongLong(info->shape[i]);
    if (!extent) {
      Py_CLEAR(shape);
      return NULL;
    }
    PyTuple_SET_ITEM(shape, i, extent);
  }
  return shape;
}

static PyObject *numpy_dtype(DLDataType dtype) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const char *name = dtype.code < sizeof names / sizeof names[0] && dtype.lanes == 1 ? names[dtype.code] : "unknown";
  char text[32];
  if (dtype.code == kDLBool && dtype.bits == 8) {
    snprintf(text, sizeof text, "bool");
  } else {
    snprintf(text, sizeof text, "%s%u", name, (unsigned)dtype.bits);
  }
  PyObject *make_dtype = import_attribute("numpy", "dtype");
  PyObject *made = make_dtype ? PyObject_CallFunction(make_dtype, "s", text) : NULL;
  Py_XDECREF(make_dtype);
  return made;
}

bool type_fill(TensorType *type, const RbTensorInfo *info) {
  type->name = PyUnicode_InternFromString(info->name);
  type->shape = type->name ? shape_tuple(info) : NULL;
  type->dtype = type->shape ? numpy_dtype(info->dtype) : NULL;
  return type->dtype != NULL;
}

void type_clear(TensorType *type) {
  Py_CLEAR(type->name);
  Py_CLEAR(type->shape);
  Py_CLEAR(type->dtype);
}

void types_free(TensorType *types, Py_ssize_t count) {
  for (Py_ssize_t i = 0; types && i < count; ++i) {
    type_clear(&types[i]);
  }
  PyMem_Free(types);
}

TensorType *types_make(const RbTensorInfo *inputs, int32_t num_inputs, const RbTensorInfo *outputs,
                       int32_t num_outputs) {
  TensorType *types = PyMem_Calloc((size_t)num_inputs + (size_t)num_outputs + 1, sizeof *types);
  bool is_filled = types != NULL;
  for (int32_t i = 0; is_filled && i < num_inputs + num_outputs; ++i) {
    is_filled = type_fill(&types[i], i < num_inputs ? &inputs[i] : &outputs[i - num_inputs]);
  }
  if (!types) {
    PyErr_NoMemory();
  } else if (!is_filled) {
    types_free(types, num_inputs + num_outputs);
    return NULL;
  }
  return types;
}

PyObject *types_describe(const TensorType *types, Py_ssize_t count) {
  PyObject *tensors = PyTuple_New(count);
  for (Py_ssize_t i = 0; tensors && i < count; ++i) {
    PyObject *dtype = PyObject_GetAttrString(types[i].dtype, "name");
    PyObject *tensor = dtype ? PyTuple_Pack(3, types[i].name, types[i].shape, dtype) : NULL;
    Py_XDECREF(dtype);
    if (!tensor) {
      Py_CLEAR(tensors);
      return NULL;
    }
    PyTuple_SET_ITEM(tensors, i, tensor);
  }
  return tensors;
}

/* Makes `cause`, a reference that it takes, the cause of the current exception. */
static void set_cause(PyObject *cause) {
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyErr_NormalizeException(&kind, &value, &traceback);
  PyException_SetCause(value, cause);
  PyErr_Restore(kind, value, traceback);
}

/* Replaces the current exception by a UserError that names the tensor, keeps the exception's words and has it as its
 * cause. An interrupt and a lack of memory stay what they are. */
static void raise_unreadable(const PythonNames *names, Role role, const TensorType *type) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
    return;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyErr_NormalizeException(&kind, &value, &traceback);
  PyErr_Format(names->error, "%s '%U' cannot be read as an array: %S", role_name(role), type->name, value);
  Py_DECREF(kind);
  Py_XDECREF(traceback);
  set_cause(value);
}

void release_binding(Binding *binding) {
  if (binding->view.obj) {
    PyBuffer_Release(&binding->view);
  }
  Py_CLEAR(binding->owner);
  Py_CLEAR(binding->source);
  binding->is_bound = false;
}

static bool dtype_of_format(const char *format, Py_ssize_t itemsize, DLDataType *dtype) {
  const char *at = format ? format : "B";
  at += *at == '@' || *at == '=' || (*at == '<' && PY_LITTLE_ENDIAN) || (*at == '>' && PY_BIG_ENDIAN);
  const bool is_complex = *at == 'Z';
  at += is_complex;
  if (!at[0] || at[1] || itemsize > 31) {
    return false;
  }
  dtype->bits = (uint8_t)(itemsize * 8);
  dtype->lanes = 1;
  if (strchr("efdg", *at)) {
    dtype->code = is_complex ? kDLComplex : kDLFloat;
    return true;
  }
  dtype->code = *at == '?' ? kDLBool : strchr("bhilqn", *at) ? kDLInt : kDLUInt;
  return !is_complex && strchr("?bhilqnBHILQN", *at);
}

static void raise_format(const PythonNames *names, Role role, const TensorType *type, const Py_buffer *view) {
  const char *format = view->format ? view->format : "B";
  if (type->dtype) {
    PyErr_Format(names->error, "%s '%U' has elements of format '%s', expected %S", role_name(role), type->name, format,
                 type->dtype);
  } else {
    PyErr_Format(names->error, "%s '%U' has elements of format '%s', expected numbers in the machine's byte order",
                 role_name(role), type->name, format);
  }
}

/* Fills the tensor from the view: 1, 0 when the memory is not compact and aligned, or -1 with an exception. */
static int tensor_of_view(const PythonNames *names, Role role, const TensorType *type, Binding *binding) {
  const Py_buffer *view = &binding->view;
  DLTensor *tensor = &binding->tensor;
  if (!dtype_of_format(view->format, view->itemsize, &tensor->dtype)) {
    raise_format(names, role, type, view);
    return -1;
  }
  tensor->data = view->buf;
  tensor->device.device_type = kDLCPU;
  tensor->device.device_id = 0;
  tensor->ndim = view->ndim;
  tensor->shape = (int64_t *)view->shape;
  tensor->strides = NULL;
  tensor->byte_offset = 0;
  const size_t alignment = tensor->dtype.code == kDLComplex ? (size_t)view->itemsize / 2 : (size_t)view->itemsize;
  return PyBuffer_IsContiguous(view, 'C') && (alignment == 0 || (uintptr_t)view->buf % alignment == 0);
}

static int view_tensor(const PythonNames *names, Role role, const TensorType *type, PyObject *object, int flags,
                       Binding *binding) {
  if (PyObject_GetBuffer(object, &binding->view, flags) < 0) {
    binding->view.obj = NULL;
    raise_unreadable(names, role, type);
    return -1;
  }
  return tensor_of_view(names, role, type, binding);
}

/* Binds a compact, aligned copy of an array. */
static bool bind_copy(const PythonNames *names, Role role, const TensorType *type, PyObject *object, Binding *binding) {
  release_binding(binding);
  PyObject *copy = PyObject_CallFunction(names->require, "OOs", object, Py_None, role == ROLE_UNKNOWN ? "CAW" : "CA");
  if (!copy) {
    raise_unreadable(names, role, type);
    return false;
  }
  const int found = view_tensor(names, role, type, copy, PyBUF_RECORDS_RO, binding);
  Py_DECREF(copy);
  if (found == 0) {
    PyErr_Format(names->error, "%s '%U' cannot be copied to aligned, row-major memory", role_name(role), type->name);
  }
  if (found == 1 && role == ROLE_UNKNOWN) {
    binding->source = Py_NewRef(object);
  }
  binding->is_bound = true;
  return found == 1;
}

static bool is_usable(const DLTensor *tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor->ndim - 1; tensor->strides && i >= 0; --i) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != expected) {
      return false;
    }
    expected *= tensor->shape[i];
  }
  const size_t bytes = ((size_t)tensor->dtype.bits + 7) / 8;
  return bytes == 0 || ((uintptr_t)tensor->data + tensor->byte_offset) % bytes == 0;
}

/* The tensor in a DLPack capsule, NULL with an exception when it is none. It belongs to the capsule. A capsule as it
 * was before version 1 does not tell whether it may be written to; producers of that time let one. */
static const DLTensor *tensor_of_capsule(PyObject *capsule, bool *is_read_only) {
  *is_read_only = false;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
      PyErr_Format(PyExc_BufferError, "DLPack version %u is not supported", (unsigned)managed->version.major);
      return NULL;
    }
    *is_read_only = managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY;
    return &managed->dl_tensor;
  }
  const DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
  return managed ? &managed->dl_tensor : NULL;
}

/* object.__dlpack__(max_version=(1, 0)), without the argument for producers that came before it. */
static PyObject *dlpack_capsule(PyObject *object) {
  PyObject *method = PyObject_GetAttrString(object, "__dlpack__");
  PyObject *empty = PyTuple_New(0);
  PyObject *keywords = Py_BuildValue("{s(ii)}", "max_version", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
  PyObject *capsule = NULL;
  if (method && empty && keywords) {
    capsule = PyObject_Call(method, empty, keywords);
    if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      capsule = PyObject_CallNoArgs(method);
    }
  }
  Py_XDECREF(keywords);
  Py_XDECREF(empty);
  Py_XDECREF(method);
  return capsule;
}

/* False with a UserError unless the object's memory is the CPU's; asked first, for a capsule of a device synchronises.
 */
static bool check_device(const PythonNames *names, Role role, const TensorType *type, PyObject *object) {
  PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
  PyObject *kind = device ? PySequence_GetItem(device, 0) : NULL;
  const long number = kind ? PyLong_AsLong(kind) : -1;
  Py_XDECREF(kind);
  Py_XDECREF(device);
  if (PyErr_Occurred()) {
    raise_unreadable(names, role, type);
    return false;
  }
  if (number != kDLCPU) {
    PyErr_Format(names->error, "%s '%U' is on a device of DLPack type %ld, expected the CPU (1): move it first",
                 role_name(role), type->name, number);
    return false;
  }
  return true;
}

/* Fills the tensor from the object's capsule: 1, 0 when the memory cannot be used as it is, or -1 with an exception. */
static int capsule_tensor(const PythonNames *names, Role role, const TensorType *type, PyObject *object,
                          Binding *binding) {
  if (!check_device(names, role, type, object)) {
    return -1;
  }
  bool is_read_only = false;
  binding->owner = dlpack_capsule(object);
  const DLTensor *tensor = binding->owner ? tensor_of_capsule(binding->owner, &is_read_only) : NULL;
  if (!tensor) {
    raise_unreadable(names, role, type);
    return -1;
  }
  if (is_read_only && role == ROLE_OUTPUT) {
    PyErr_Format(names->error, "output '%U' is read-only, expected memory to write to", type->name);
    return -1;
  }
  binding->tensor = *tensor;
  return is_usable(tensor) && (role == ROLE_INPUT || !is_read_only);
}

/* Binds a copy of what an object has in DLPack's form. */
static bool bind_dlpack_copy(const PythonNames *names, Role role, const TensorType *type, PyObject *object,
                             Binding *binding) {
  PyObject *array = PyObject_CallOneArg(names->from_dlpack, object);
  if (!array) {
    raise_unreadable(names, role, type);
    return false;
  }
  const bool bound = bind_copy(names, role, type, array, binding);
  Py_DECREF(array);
  return bound;
}

static bool raise_type(const PythonNames *names, Role role, const TensorType *type, PyObject *object) {
  PyErr_Format(names->error, "%s '%U' is of type '%s', expected an array: numpy's, or an object with __dlpack__",
               role_name(role), type->name, Py_TYPE(object)->tp_name);
  return false;
}

/* Without the module, which numpy imports when it is first used, there is no such array. */
static bool is_masked(const PythonNames *names, PyObject *object) {
  PyObject *module = PyImport_GetModule(names->masked);
  PyObject *kind = module ? PyObject_GetAttrString(module, "MaskedArray") : NULL;
  const bool found = kind && PyObject_IsInstance(object, kind) > 0;
  Py_XDECREF(kind);
  Py_XDECREF(module);
  PyErr_Clear();
  return found;
}

/* False with a UserError for an array whose memory alone does not tell which of its elements count. */
static bool check_unmasked(const PythonNames *names, Role role, const TensorType *type, PyObject *object) {
  const bool found = is_masked(names, object);
  if (found) {
    PyErr_Format(names->error, "%s '%U' is a masked array, expected one without a mask: fill it first", role_name(role),
                 type->name);
  }
  return !found;
}

bool bind_input(const PythonNames *names, const TensorType *type, PyObject *object, Binding *binding) {
  binding->is_bound = true;
  if (!check_unmasked(names, ROLE_INPUT, type, object)) {
    return false;
  }
  if (PyObject_CheckBuffer(object)) {
    const int found = view_tensor(names, ROLE_INPUT, type, object, PyBUF_RECORDS_RO, binding);
    return found == 0 ? bind_copy(names, ROLE_INPUT, type, object, binding) : found == 1;
  }
  if (PyObject_HasAttrString(object, "__dlpack__")) {
    const int found = capsule_tensor(names, ROLE_INPUT, type, object, binding);
    return found == 0 ? bind_dlpack_copy(names, ROLE_INPUT, type, object, binding) : found == 1;
  }
  return raise_type(names, ROLE_INPUT, type, object);
}

bool bind_output(const PythonNames *names, const TensorType *type, PyObject *object, Binding *binding) {
  int found;
  binding->is_bound = true;
  if (!check_unmasked(names, ROLE_OUTPUT, type, object)) {
    return false;
  }
  if (PyObject_CheckBuffer(object)) {
    found = view_tensor(names, ROLE_OUTPUT, type, object, PyBUF_RECORDS, binding);
  } else if (PyObject_HasAttrString(object, "__dlpack__")) {
    found = capsule_tensor(names, ROLE_OUTPUT, type, object, binding);
  } else {
    return raise_type(names, ROLE_OUTPUT, type, object);
  }
  if (found == 0) {
    PyErr_Format(names->error, "output '%U' is not a row-major array, aligned and without gaps", type->name);
  }
  return found == 1;
}

bool bind_argument(const PythonNames *names, const TensorType *type, PyObject *object, Binding *binding) {
  binding->is_bound = true;
  if (!check_unmasked(names, ROLE_UNKNOWN, type, object)) {
    return false;
  }
  if (PyObject_CheckBuffer(object)) {
    const int found = view_tensor(names, ROLE_UNKNOWN, type, object, PyBUF_RECORDS_RO, binding);
    const bool is_in_place = found == 1 && !binding->view.readonly;
    return found < 0 || is_in_place ? is_in_place : bind_copy(names, ROLE_UNKNOWN, type, object, binding);
  }
  if (PyObject_HasAttrString(object, "__dlpack__")) {
    const int found = capsule_tensor(names, ROLE_UNKNOWN, type, object, binding);
    return found == 0 ? bind_dlpack_copy(names, ROLE_UNKNOWN, type, object, binding) : found == 1;
  }
  return raise_type(names, ROLE_UNKNOWN, type, object);
}

bool check_unwritten(const PythonNames *names, const TensorType *type, const Binding *binding) {
  if (!binding->source) {
    return true;
  }
  PyObject *fresh = PyObject_CallFunction(names->require, "OOs", binding->source, Py_None, "C");
  Py_buffer view = {0};
  if (!fresh || PyObject_GetBuffer(fresh, &view, PyBUF_RECORDS_RO) < 0) {
    Py_XDECREF(fresh);
    return false;
  }
  const bool is_same = memcmp(view.buf, binding->view.buf, (size_t)view.len) == 0;
  PyBuffer_Release(&view);
  Py_DECREF(fresh);
  if (!is_same) {
    PyErr_Format(names->error,
                 "argument '%U' is written to, but is read-only, or not a row-major array, aligned and without gaps",
                 type->name);
  }
  return is_same;
}
