/* SPDX-License-Identifier: Apache-2.0
 *
 * The extension module, and models in it: leases instances to calling threads. Knows the public C interface of a model,
 * nothing of how one is compiled. */
#include "_library.h"

#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
  NativeLibrary library;
  vectorcallfunc vectorcall;
  const RbModelApi *api;
  const RbModelInfo *info;
  int32_t requested_threads;
  int32_t num_threads;
  Py_ssize_t num_instances;
  Lease *idle;
  TensorType *types; /* inputs, then outputs */
} NativeModel;

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
  PyErr_SetString(self->library.names.error, message);
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
    PyErr_Format(self->library.names.error, "%U, expected the inputs '%U'", problem, names);
  } else if (names) {
    PyErr_Format(self->library.names.error, "%U, expected none", problem);
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

static bool bind_model_input(NativeModel *self, Lease *lease, Py_ssize_t index, PyObject *object) {
  return bind_input(&self->library.names, &self->types[index], object, &lease->bindings[index]);
}

static bool bind_model_output(NativeModel *self, Lease *lease, Py_ssize_t index, PyObject *object) {
  const Py_ssize_t at = self->info->num_inputs + index;
  return bind_output(&self->library.names, &self->types[at], object, &lease->bindings[at]);
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
    if (!bind_model_input(self, lease, index, values[i])) {
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
    if (!bind_model_input(self, lease, i, values[i])) {
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
    PyObject *array = PyObject_Vectorcall(self->library.names.empty, arguments, 2, NULL);
    if (as_tuple && array) {
      PyTuple_SET_ITEM(outputs, i, array);
    }
    if (!array || !bind_model_output(self, lease, i, array)) {
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
    PyErr_Format(self->library.names.error, "got %zd outputs, the model has %d", count, (int)self->info->num_outputs);
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!bind_model_output(self, lease, i, PySequence_Fast_GET_ITEM(outputs, i))) {
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

static PyObject *model_describe(PyObject *object, PyObject *Py_UNUSED(ignored)) {
  NativeModel *self = (NativeModel *)object;
  const RbModelInfo *info = self->info;
  PyObject *inputs = types_describe(self->types, info->num_inputs);
  PyObject *outputs = inputs ? types_describe(self->types + info->num_inputs, info->num_outputs) : NULL;
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

static bool find_interface(NativeModel *self, const char *path) {
  RbModelEntry entry = NULL;
  void *symbol = find_symbol(&self->library, RELAYBUILD_MODEL_ENTRY);
  if (!symbol) {
    PyErr_Format(self->library.names.error,
                 "'%s' is a shared library but no model: it lacks the symbol '%s'; expected what 'relaybuild compile' "
                 "makes",
                 path, RELAYBUILD_MODEL_ENTRY);
    return false;
  }
  memcpy(&entry, &symbol, sizeof entry);
  self->api = entry();
  if (!check_version(&self->library, path, self->api->abi_version)) {
    return false;
  }
  self->info = self->api->describe();
  self->types = types_make(self->info->inputs, self->info->num_inputs, self->info->outputs, self->info->num_outputs);
  return self->types != NULL;
}

/* Makes the first instance, if there is none: a processor that cannot run the model is found here. */
static bool check_model(NativeModel *self) {
  Lease *lease = lease_acquire(self);
  if (!lease) {
    return false;
  }
  self->num_threads = self->api->num_threads(lease->instance);
  lease_release(self, lease);
  return true;
}

static PyObject *model_check(PyObject *object, PyObject *Py_UNUSED(ignored)) {
  return check_model((NativeModel *)object) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *model_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"path", "threads", "is_checked", NULL};
  PyObject *path = NULL;
  int threads = 0, is_checked = 1;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&|ip", names, PyUnicode_FSConverter, &path, &threads,
                                   &is_checked)) {
    return NULL;
  }
  NativeModel *self = (NativeModel *)new_library(type, PyBytes_AS_STRING(path));
  if (self) {
    self->vectorcall = model_call;
    self->requested_threads = threads;
    if (!find_interface(self, PyBytes_AS_STRING(path)) || (is_checked && !check_model(self))) {
      Py_CLEAR(self);
    }
  }
  Py_DECREF(path);
  return (PyObject *)self;
}

static void model_dealloc(PyObject *object) {
  NativeModel *self = (NativeModel *)object;
  PyTypeObject *type = Py_TYPE(object);
  while (self->idle) {
    Lease *lease = self->idle;
    self->idle = lease->next;
    lease_free(self, lease);
  }
  if (self->types) {
    types_free(self->types, (Py_ssize_t)self->info->num_inputs + self->info->num_outputs);
  }
  close_library(&self->library);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyMethodDef model_methods[] = {
    {"describe", model_describe, METH_NOARGS, "describe()\n--\n\nThe model's descriptor as a dictionary."},
    {"check", model_check, METH_NOARGS,
     "check()\n--\n\nMakes an instance, if there is none; raises a UserError where this processor cannot run the "
     "model."},
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
    {Py_tp_doc, "NativeModel(path, threads=0, is_checked=True)\n--\n\n"
                "A model library, loaded; calling it runs the model. That this can be done is found out at once if "
                "`is_checked`, else by `check`."},
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

static int add_type(PyObject *module, const char *name, PyType_Spec *spec, PyObject *base) {
  PyObject *type = PyType_FromSpecWithBases(spec, base);
  const int status = type ? PyModule_AddObjectRef(module, name, type) : -1;
  Py_XDECREF(type);
  return status;
}

static int module_exec(PyObject *module) {
  if (add_type(module, "NativeLibrary", &library_spec, NULL) < 0 ||
      add_type(module, "NativeFunction", &function_spec, NULL) < 0) {
    return -1;
  }
  PyObject *base = PyObject_GetAttrString(module, "NativeLibrary");
  const int status = base ? add_type(module, "NativeModel", &model_spec, base) : -1;
  Py_XDECREF(base);
  return status;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, (void *)module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_native",
    .m_doc = "Loads libraries and calls their models and functions.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC PyInit__native(void);
PyMODINIT_FUNC PyInit__native(void) {
  return PyModuleDef_Init(&module_definition);
}
