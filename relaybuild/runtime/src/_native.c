/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python side of a model library: loads it, turns arrays into tensors and back, leases instances to calling
 * threads. Knows the public C interface of a model, nothing of how one is compiled. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <structmember.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "relaybuild/model.h"

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "a buffer's shape is read as a tensor's shape");

/* What Python needs to know of one input or output, made once. */
typedef struct TensorType {
  PyObject *name;
  PyObject *shape; /* tuple of int */
  PyObject *dtype; /* numpy.dtype */
} TensorType;

/* One tensor of a call, and what keeps its memory alive. */
typedef struct Binding {
  DLTensor tensor;
  Py_buffer view; /* view.obj is NULL when there is none */
  PyObject *owner;
  bool is_bound;
} Binding;

/* An instance and the bindings of the call that uses it; idle ones form a list. */
typedef struct Lease {
  struct Lease *next;
  RbInstance *instance;
  const DLTensor **inputs;
  DLTensor **outputs;
  Binding *bindings; /* inputs, then outputs */
} Lease;

/* The list of idle leases is guarded by the interpreter lock. */
typedef struct NativeModel {
  PyObject_HEAD vectorcallfunc vectorcall;
  void *library;
  const RbModelApi *api;
  const RbModelInfo *info;
  int32_t requested_threads;
  int32_t num_threads;
  Py_ssize_t num_instances;
  Lease *idle;
  TensorType *types; /* inputs, then outputs */
  PyObject *error;   /* relaybuild.errors.UserError */
  PyObject *numpy_empty;
  PyObject *numpy_require;
  PyObject *numpy_from_dlpack;
} NativeModel;

static PyObject *import_attribute(const char *module, const char *name) {
  PyObject *imported = PyImport_ImportModule(module);
  PyObject *attribute = imported ? PyObject_GetAttrString(imported, name) : NULL;
  Py_XDECREF(imported);
  return attribute;
}

/* Raises the current thread's last error of the library. */
static void raise_status(NativeModel *self, RbStatus status) {
  const char *message = self->api->last_error();
  if (status == RB_ERROR_INTERNAL) {
    PyObject *internal = import_attribute("relaybuild.errors", "InternalError");
    if (internal) {
      PyErr_SetString(internal, message);
      Py_DECREF(internal);
    }
    return;
  }
  PyErr_SetString(self->error, message);
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
static void raise_unreadable(NativeModel *self, const char *role, const TensorType *type) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) {
    return;
  }
  PyObject *kind, *value, *traceback;
  PyErr_Fetch(&kind, &value, &traceback);
  PyErr_NormalizeException(&kind, &value, &traceback);
  PyErr_Format(self->error, "%s '%U' cannot be read as an array: %S", role, type->name, value);
  Py_DECREF(kind);
  Py_XDECREF(traceback);
  set_cause(value);
}

static void release_binding(Binding *binding) {
  if (binding->view.obj) {
    PyBuffer_Release(&binding->view);
  }
  Py_CLEAR(binding->owner);
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

/* Fills the tensor from the view: 1, 0 when the memory is not compact and aligned, or -1 with an exception. */
static int tensor_of_view(NativeModel *self, const char *role, const TensorType *type, Binding *binding) {
  const Py_buffer *view = &binding->view;
  DLTensor *tensor = &binding->tensor;
  if (!dtype_of_format(view->format, view->itemsize, &tensor->dtype)) {
    PyErr_Format(self->error, "%s '%U' has elements of format '%s', expected %S", role, type->name,
                 view->format ? view->format : "B", type->dtype);
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
  return PyBuffer_IsContiguous(view, 'C') && (uintptr_t)view->buf % alignment == 0;
}

static int view_tensor(NativeModel *self, const char *role, const TensorType *type, PyObject *object, int flags,
                       Binding *binding) {
  if (PyObject_GetBuffer(object, &binding->view, flags) < 0) {
    binding->view.obj = NULL;
    raise_unreadable(self, role, type);
    return -1;
  }
  return tensor_of_view(self, role, type, binding);
}

/* Binds a compact, aligned copy of an array. */
static bool bind_copy(NativeModel *self, const TensorType *type, PyObject *object, Binding *binding) {
  release_binding(binding);
  PyObject *copy = PyObject_CallFunction(self->numpy_require, "OOs", object, Py_None, "CA");
  if (!copy) {
    raise_unreadable(self, "input", type);
    return false;
  }
  const int found = view_tensor(self, "input", type, copy, PyBUF_RECORDS_RO, binding);
  Py_DECREF(copy);
  if (found == 0) {
    PyErr_Format(self->error, "input '%U' cannot be copied to aligned, row-major memory", type->name);
  }
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

/* The tensor in a DLPack capsule, NULL with an exception when it is none. It belongs to the capsule. */
static const DLTensor *tensor_of_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    const DLManagedTensorVersioned *managed = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    if (managed->version.major != DLPACK_MAJOR_VERSION) {
      PyErr_Format(PyExc_BufferError, "DLPack version %u is not supported", (unsigned)managed->version.major);
      return NULL;
    }
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
static bool check_device(NativeModel *self, const TensorType *type, PyObject *object) {
  PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
  PyObject *kind = device ? PySequence_GetItem(device, 0) : NULL;
  const long number = kind ? PyLong_AsLong(kind) : -1;
  Py_XDECREF(kind);
  Py_XDECREF(device);
  if (PyErr_Occurred()) {
    raise_unreadable(self, "input", type);
    return false;
  }
  if (number != kDLCPU) {
    PyErr_Format(self->error, "input '%U' is on a device of DLPack type %ld, expected the CPU (1): move it first",
                 type->name, number);
    return false;
  }
  return true;
}

static bool bind_dlpack(NativeModel *self, const TensorType *type, PyObject *object, Binding *binding) {
  if (!check_device(self, type, object)) {
    return false;
  }
  binding->owner = dlpack_capsule(object);
  const DLTensor *tensor = binding->owner ? tensor_of_capsule(binding->owner) : NULL;
  if (!tensor) {
    raise_unreadable(self, "input", type);
    return false;
  }
  binding->tensor = *tensor;
  if (is_usable(tensor)) {
    return true;
  }
  PyObject *array = PyObject_CallOneArg(self->numpy_from_dlpack, object);
  if (!array) {
    raise_unreadable(self, "input", type);
    return false;
  }
  const bool bound = bind_copy(self, type, array, binding);
  Py_DECREF(array);
  return bound;
}

static bool bind_input(NativeModel *self, Lease *lease, Py_ssize_t index, PyObject *object) {
  const TensorType *type = &self->types[index];
  Binding *binding = &lease->bindings[index];
  binding->is_bound = true;
  if (PyObject_CheckBuffer(object)) {
    const int found = view_tensor(self, "input", type, object, PyBUF_RECORDS_RO, binding);
    return found == 0 ? bind_copy(self, type, object, binding) : found == 1;
  }
  if (PyObject_HasAttrString(object, "__dlpack__")) {
    return bind_dlpack(self, type, object, binding);
  }
  PyErr_Format(self->error, "input '%U' is of type '%s', expected an array: numpy's, or an object with __dlpack__",
               type->name, Py_TYPE(object)->tp_name);
  return false;
}

static bool bind_output(NativeModel *self, Lease *lease, Py_ssize_t index, PyObject *object) {
  const TensorType *type = &self->types[self->info->num_inputs + index];
  Binding *binding = &lease->bindings[self->info->num_inputs + index];
  const int found = view_tensor(self, "output", type, object, PyBUF_RECORDS, binding);
  if (found == 0) {
    PyErr_Format(self->error, "output '%U' is not a row-major array, aligned and without gaps", type->name);
  }
  return found == 1;
}

static Lease *lease_new(const RbModelInfo *info) {
  const size_t inputs = (size_t)info->num_inputs, outputs = (size_t)info->num_outputs;
  Lease *lease = PyMem_Calloc(1, sizeof *lease);
  if (!lease) {
    return NULL;
  }
  lease->inputs = PyMem_Calloc(inputs + 1, sizeof *lease->inputs);
  lease->outputs = PyMem_Calloc(outputs + 1, sizeof *lease->outputs);
  lease->bindings = PyMem_Calloc(inputs + outputs + 1, sizeof *lease->bindings);
  for (size_t i = 0; lease->inputs && lease->bindings && i < inputs; ++i) {
    lease->inputs[i] = &lease->bindings[i].tensor;
  }
  for (size_t i = 0; lease->outputs && lease->bindings && i < outputs; ++i) {
    lease->outputs[i] = &lease->bindings[inputs + i].tensor;
  }
  return lease;
}

static void lease_free(NativeModel *self, Lease *lease) {
  if (lease->instance) {
    self->api->destroy(lease->instance);
  }
  PyMem_Free(lease->bindings);
  PyMem_Free(lease->outputs);
  PyMem_Free(lease->inputs);
  PyMem_Free(lease);
}

static Lease *lease_create(NativeModel *self) {
  Lease *lease = lease_new(self->info);
  if (!lease || !lease->inputs || !lease->outputs || !lease->bindings) {
    PyErr_NoMemory();
  } else {
    RbStatus status;
    Py_BEGIN_ALLOW_THREADS;
    status = self->api->create(self->requested_threads, &lease->instance);
    Py_END_ALLOW_THREADS;
    if (status == RB_OK) {
      ++self->num_instances;
      return lease;
    }
    raise_status(self, status);
  }
  if (lease) {
    lease_free(self, lease);
  }
  return NULL;
}

static Lease *lease_acquire(NativeModel *self) {
  Lease *lease = self->idle;
  if (!lease) {
    return lease_create(self);
  }
  self->idle = lease->next;
  return lease;
}

static void lease_release(NativeModel *self, Lease *lease) {
  const Py_ssize_t count = (Py_ssize_t)self->info->num_inputs + self->info->num_outputs;
  for (Py_ssize_t i = 0; i < count; ++i) {
    release_binding(&lease->bindings[i]);
  }
  lease->next = self->idle;
  self->idle = lease;
}

static bool execute(NativeModel *self, Lease *lease) {
  RbStatus status;
  Py_BEGIN_ALLOW_THREADS;
  status =
      self->api->run(lease->instance, lease->inputs, self->info->num_inputs, lease->outputs, self->info->num_outputs);
  Py_END_ALLOW_THREADS;
  if (status != RB_OK) {
    raise_status(self, status);
  }
  return status == RB_OK;
}

static PyObject *join_names(const TensorType *types, Py_ssize_t count) {
  PyObject *names = PyList_New(0), *separator = PyUnicode_FromString("', '"), *joined = NULL;
  for (Py_ssize_t i = 0; names && i < count; ++i) {
    if (PyList_Append(names, types[i].name) < 0) {
      Py_CLEAR(names);
    }
  }
  if (names && separator) {
    joined = PyUnicode_Join(separator, names);
  }
  Py_XDECREF(separator);
  Py_XDECREF(names);
  return joined;
}

/* Raises a UserError of the problem, a reference that it takes (NULL: an exception is set), and the inputs' names. */
static void raise_with_names(NativeModel *self, PyObject *problem) {
  PyObject *names = problem ? join_names(self->types, self->info->num_inputs) : NULL;
  if (names && self->info->num_inputs) {
    PyErr_Format(self->error, "%U, expected the inputs '%U'", problem, names);
  } else if (names) {
    PyErr_Format(self->error, "%U, expected none", problem);
  }
  Py_XDECREF(names);
  Py_XDECREF(problem);
}

static Py_ssize_t find_input(NativeModel *self, PyObject *name) {
  const Py_ssize_t count = self->info->num_inputs;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (self->types[i].name == name) {
      return i;
    }
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyUnicode_Compare(self->types[i].name, name) == 0) {
      return i;
    }
  }
  return -1;
}

static bool bind_keywords(NativeModel *self, Lease *lease, PyObject *const *values, PyObject *names) {
  const Py_ssize_t count = PyTuple_GET_SIZE(names);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *name = PyTuple_GET_ITEM(names, i);
    const Py_ssize_t index = find_input(self, name);
    if (index < 0) {
      raise_with_names(self, PyUnicode_FromFormat("the model has no input '%U'", name));
      return false;
    }
    if (lease->bindings[index].is_bound) {
      raise_with_names(self, PyUnicode_FromFormat("input '%U' is given twice", name));
      return false;
    }
    if (!bind_input(self, lease, index, values[i])) {
      return false;
    }
  }
  return true;
}

static bool bind_arguments(NativeModel *self, Lease *lease, PyObject *const *values, Py_ssize_t count,
                           PyObject *names) {
  const Py_ssize_t expected = self->info->num_inputs;
  if (count > expected) {
    raise_with_names(self, PyUnicode_FromFormat("got %zd inputs", count));
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!bind_input(self, lease, i, values[i])) {
      return false;
    }
  }
  if (names && !bind_keywords(self, lease, values + count, names)) {
    return false;
  }
  for (Py_ssize_t i = count; i < expected; ++i) {
    if (!lease->bindings[i].is_bound) {
      raise_with_names(self, PyUnicode_FromFormat("input '%U' is missing", self->types[i].name));
      return false;
    }
  }
  return true;
}

/* Fresh arrays for all outputs, bound to the lease: a tuple, or the array itself when there is one. */
static PyObject *make_outputs(NativeModel *self, Lease *lease, bool as_tuple) {
  const Py_ssize_t count = self->info->num_outputs;
  const TensorType *types = self->types + self->info->num_inputs;
  PyObject *outputs = as_tuple ? PyTuple_New(count) : NULL;
  if (as_tuple && !outputs) {
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *arguments[] = {types[i].shape, types[i].dtype};
    PyObject *array = PyObject_Vectorcall(self->numpy_empty, arguments, 2, NULL);
    if (as_tuple && array) {
      PyTuple_SET_ITEM(outputs, i, array);
    }
    if (!array || !bind_output(self, lease, i, array)) {
      Py_XDECREF(as_tuple ? outputs : array);
      return NULL;
    }
    outputs = as_tuple ? outputs : array;
  }
  return outputs;
}

static PyObject *run_model(NativeModel *self, PyObject *const *values, Py_ssize_t count, PyObject *names,
                           bool as_tuple) {
  Lease *lease = lease_acquire(self);
  if (!lease) {
    return NULL;
  }
  PyObject *outputs = NULL;
  if (bind_arguments(self, lease, values, count, names)) {
    outputs = make_outputs(self, lease, as_tuple);
  }
  if (outputs && !execute(self, lease)) {
    Py_CLEAR(outputs);
  }
  lease_release(self, lease);
  return outputs;
}

static PyObject *model_call(PyObject *object, PyObject *const *arguments, size_t count, PyObject *names) {
  NativeModel *self = (NativeModel *)object;
  return run_model(self, arguments, PyVectorcall_NARGS(count), names, self->info->num_outputs != 1);
}

static PyObject *model_run_list(PyObject *object, PyObject *inputs) {
  PyObject *tuple = PySequence_Tuple(inputs);
  if (!tuple) {
    return NULL;
  }
  PyObject *outputs =
      run_model((NativeModel *)object, PySequence_Fast_ITEMS(tuple), PySequence_Fast_GET_SIZE(tuple), NULL, true);
  Py_DECREF(tuple);
  return outputs;
}

static bool bind_outputs(NativeModel *self, Lease *lease, PyObject *outputs) {
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(outputs);
  if (count != self->info->num_outputs) {
    PyErr_Format(self->error, "got %zd outputs, the model has %d", count, (int)self->info->num_outputs);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!bind_output(self, lease, i, PySequence_Fast_GET_ITEM(outputs, i))) {
      return false;
    }
  }
  return true;
}

static PyObject *model_run_into(PyObject *object, PyObject *const *arguments, Py_ssize_t count) {
  NativeModel *self = (NativeModel *)object;
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "run_into takes two sequences of arrays, inputs and outputs");
    return NULL;
  }
  PyObject *inputs = PySequence_Tuple(arguments[0]);
  PyObject *outputs = inputs ? PySequence_Tuple(arguments[1]) : NULL;
  Lease *lease = outputs ? lease_acquire(self) : NULL;
  bool done = false;
  if (lease) {
    done = bind_arguments(self, lease, PySequence_Fast_ITEMS(inputs), PySequence_Fast_GET_SIZE(inputs), NULL) &&
           bind_outputs(self, lease, outputs) && execute(self, lease);
    lease_release(self, lease);
  }
  Py_XDECREF(inputs);
  Py_XDECREF(outputs);
  return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *describe_tensors(const TensorType *types, Py_ssize_t count) {
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

static PyObject *model_describe(PyObject *object, PyObject *Py_UNUSED(ignored)) {
  NativeModel *self = (NativeModel *)object;
  const RbModelInfo *info = self->info;
  PyObject *inputs = describe_tensors(self->types, info->num_inputs);
  PyObject *outputs = inputs ? describe_tensors(self->types + info->num_inputs, info->num_outputs) : NULL;
  if (!outputs) {
    Py_XDECREF(inputs);
    return NULL;
  }
  return Py_BuildValue("{sIsssssssNsNsnsnsnss}", "abi_version", (unsigned int)info->abi_version, "name", info->name,
                       "target", info->target, "cpu_features", info->cpu_features ? info->cpu_features : "", "inputs",
                       inputs, "outputs", outputs, "arena_bytes", (Py_ssize_t)info->arena_bytes, "scratch_bytes",
                       (Py_ssize_t)info->scratch_bytes, "weight_bytes", (Py_ssize_t)info->weight_bytes, "metadata",
                       info->metadata ? info->metadata : "{}");
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

static PyObject *numpy_dtype(PyObject *make_dtype, DLDataType dtype) {
  static const char *const names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  const char *name = dtype.code < sizeof names / sizeof names[0] && dtype.lanes == 1 ? names[dtype.code] : "unknown";
  char text[32];
  if (dtype.code == kDLBool && dtype.bits == 8) {
    snprintf(text, sizeof text, "bool");
  } else {
    snprintf(text, sizeof text, "%s%u", name, (unsigned)dtype.bits);
  }
  return PyObject_CallFunction(make_dtype, "s", text);
}

static bool fill_type(TensorType *type, const RbTensorInfo *info, PyObject *make_dtype) {
  type->name = PyUnicode_InternFromString(info->name);
  type->shape = type->name ? shape_tuple(info) : NULL;
  type->dtype = type->shape ? numpy_dtype(make_dtype, info->dtype) : NULL;
  return type->dtype != NULL;
}

static bool fill_types(NativeModel *self) {
  const RbModelInfo *info = self->info;
  const size_t count = (size_t)info->num_inputs + (size_t)info->num_outputs;
  PyObject *make_dtype = import_attribute("numpy", "dtype");
  self->types = PyMem_Calloc(count + 1, sizeof *self->types);
  if (!self->types) {
    PyErr_NoMemory();
  }
  bool filled = make_dtype && self->types;
  for (size_t i = 0; filled && i < count; ++i) {
    const size_t inputs = (size_t)info->num_inputs;
    filled = fill_type(&self->types[i], i < inputs ? &info->inputs[i] : &info->outputs[i - inputs], make_dtype);
  }
  Py_XDECREF(make_dtype);
  return filled;
}

/* A spelling of the path that this process has not yet used: a loader that knows a name returns the library it loaded
 * under it, even if another file has taken its place. The bits of a counter stand as "/." or "/" before the last part;
 * the same file is still recognised, by its inode. `out` has room for strlen(path) + 66. */
static void fresh_spelling(const char *path, char *out) {
  static uint32_t counter;
  const char *last = strrchr(path, '/');
  const size_t folder = last ? (size_t)(last - path) : 0;
  memcpy(out, path, folder);
  char *at = out + folder;
  for (uint32_t bits = ++counter; last && bits; bits >>= 1) {
    *at++ = '/';
    if (bits & 1) {
      *at++ = '.';
    }
    if (bits == 1) {
      break;
    }
  }
  strcpy(at, path + folder);
}

static bool open_library(NativeModel *self, const char *path) {
  char *spelling = PyMem_Malloc(strlen(path) + 66);
  if (!spelling) {
    PyErr_NoMemory();
    return false;
  }
  fresh_spelling(path, spelling);
  self->library = dlopen(spelling, RTLD_NOW | RTLD_LOCAL);
  PyMem_Free(spelling);
  if (!self->library) {
    const char *message = dlerror();
    PyErr_Format(self->error, "'%s' cannot be loaded as a shared library: %s", path, message ? message : "no reason");
  }
  return self->library != NULL;
}

static bool find_interface(NativeModel *self, const char *path) {
  RbModelEntry entry = NULL;
  void *symbol = dlsym(self->library, RELAYBUILD_MODEL_ENTRY);
  if (!symbol) {
    PyErr_Format(self->error,
                 "'%s' is a shared library but no model: it lacks the symbol '%s'; expected what 'relaybuild compile' "
                 "makes",
                 path, RELAYBUILD_MODEL_ENTRY);
    return false;
  }
  memcpy(&entry, &symbol, sizeof entry);
  self->api = entry();
  if (self->api->abi_version != RELAYBUILD_ABI_VERSION) {
    PyErr_Format(self->error,
                 "'%s' has interface version %u, this relaybuild reads version %u: compile the model again", path,
                 (unsigned)self->api->abi_version, (unsigned)RELAYBUILD_ABI_VERSION);
    self->api = NULL;
    return false;
  }
  self->info = self->api->describe();
  return true;
}

static bool import_names(NativeModel *self) {
  return (self->error = import_attribute("relaybuild.errors", "UserError")) &&
         (self->numpy_empty = import_attribute("numpy", "empty")) &&
         (self->numpy_require = import_attribute("numpy", "require")) &&
         (self->numpy_from_dlpack = import_attribute("numpy", "from_dlpack"));
}

/* Makes the first instance, so that a processor that cannot run the model is found at load time. */
static bool open_model(NativeModel *self, const char *path) {
  if (!import_names(self) || !open_library(self, path) || !find_interface(self, path) || !fill_types(self)) {
    return false;
  }
  Lease *lease = lease_create(self);
  if (!lease) {
    return false;
  }
  self->num_threads = self->api->num_threads(lease->instance);
  lease_release(self, lease);
  return true;
}

static PyObject *model_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"path", "threads", NULL};
  PyObject *path = NULL;
  int threads = 0;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|i", names, PyUnicode_FSConverter, &path, &threads)) {
    return NULL;
  }
  NativeModel *self = (NativeModel *)type->tp_alloc(type, 0);
  if (self) {
    self->vectorcall = model_call;
    self->requested_threads = threads;
    if (!open_model(self, PyBytes_AS_STRING(path))) {
      Py_CLEAR(self);
    }
  }
  Py_DECREF(path);
  return (PyObject *)self;
}

static void free_types(NativeModel *self) {
  const Py_ssize_t count = self->types ? (Py_ssize_t)self->info->num_inputs + self->info->num_outputs : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_XDECREF(self->types[i].name);
    Py_XDECREF(self->types[i].shape);
    Py_XDECREF(self->types[i].dtype);
  }
  PyMem_Free(self->types);
}

static void model_dealloc(PyObject *object) {
  NativeModel *self = (NativeModel *)object;
  PyTypeObject *type = Py_TYPE(object);
  while (self->idle) {
    Lease *lease = self->idle;
    self->idle = lease->next;
    lease_free(self, lease);
  }
  free_types(self);
  if (self->library) {
    dlclose(self->library);
  }
  Py_XDECREF(self->numpy_from_dlpack);
  Py_XDECREF(self->numpy_require);
  Py_XDECREF(self->numpy_empty);
  Py_XDECREF(self->error);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMethodDef model_methods[] = {
    {"describe", model_describe, METH_NOARGS, "describe()\n--\n\nThe model's descriptor as a dictionary."},
    {"run_list", model_run_list, METH_O,
     "run_list(inputs)\n--\n\nRuns the model on a sequence of arrays; a tuple of fresh arrays."},
    {"run_into", (PyCFunction)(void (*)(void))model_run_into, METH_FASTCALL,
     "run_into(inputs, outputs)\n--\n\nRuns the model on a sequence of arrays and writes into another."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef model_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NativeModel, vectorcall), READONLY, NULL},
    {"num_threads", T_INT, offsetof(NativeModel, num_threads), READONLY, "Threads of one call, the caller's included."},
    {"num_instances", T_PYSSIZET, offsetof(NativeModel, num_instances), READONLY,
     "Instances made so far: the largest number of calls that ran at one time."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot model_slots[] = {
    {Py_tp_doc, "NativeModel(path, threads=0)\n--\n\nA model library, loaded; calling it runs the model."},
    {Py_tp_new, model_new},
    {Py_tp_dealloc, model_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, model_methods},
    {Py_tp_members, model_members},
    {0, NULL},
};

static PyType_Spec model_spec = {
    .name = "relaybuild.runtime._native.NativeModel",
    .basicsize = sizeof(NativeModel),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = model_slots,
};

static int module_exec(PyObject *module) {
  PyObject *type = PyType_FromSpec(&model_spec);
  const int status = type ? PyModule_AddObjectRef(module, "NativeModel", type) : -1;
  Py_XDECREF(type);
  return status;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Loads compiled models and calls them.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
  return PyModuleDef_Init(&module_definition);
}
