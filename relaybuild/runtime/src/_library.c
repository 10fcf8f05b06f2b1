/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads shared libraries and calls their packed functions; leases what a function keeps between calls to calling
 * threads. Knows the public C interface of packed functions, nothing of how a library is compiled. */
#include "_library.h"

#include <structmember.h>

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FUNCTION_PREFIX "__tvm_ffi_"

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

void *find_symbol(NativeLibrary *self, const char *name) {
  return dlsym(self->handle, name);
}

/* The loader's message without the path at its beginning, which is spelled as nobody gave it. */
static const char *without_path(const char *message, const char *path) {
  const size_t length = strlen(path);
  return strncmp(message, path, length) || strncmp(message + length, ": ", 2) ? message : message + length + 2;
}

static bool open_library(NativeLibrary *self, const char *path) {
  char *spelling = PyMem_Malloc(strlen(path) + 66);
  if (!spelling) {
    PyErr_NoMemory();
    return false;
  }
  fresh_spelling(path, spelling);
  self->handle = dlopen(spelling, RTLD_NOW | RTLD_LOCAL);
  if (!self->handle) {
    const char *message = dlerror();
    PyErr_Format(self->names.error, "'%s' cannot be loaded as a shared library: %s", path,
                 message ? without_path(message, spelling) : "no reason");
  }
  PyMem_Free(spelling);
  return self->handle != NULL;
}

bool check_version(NativeLibrary *self, const char *path, uint32_t version) {
  if (version != RELAYBUILD_ABI_VERSION) {
    PyErr_Format(self->names.error,
                 "'%s' has interface version %u, this relaybuild reads version %u: compile the model again", path,
                 (unsigned)version, (unsigned)RELAYBUILD_ABI_VERSION);
  }
  return version == RELAYBUILD_ABI_VERSION;
}

static bool find_tables(NativeLibrary *self, const char *path) {
  RbLibraryEntry entry = NULL;
  void *symbol = find_symbol(self, RELAYBUILD_LIBRARY_ENTRY);
  memcpy(&entry, &symbol, sizeof entry);
  self->table = entry ? entry() : NULL;
  symbol = find_symbol(self, RELAYBUILD_LAST_ERROR_ENTRY);
  memcpy(&self->last_error, &symbol, sizeof self->last_error);
  return !self->table || check_version(self, path, self->table->abi_version);
}

NativeLibrary *new_library(PyTypeObject *type, const char *path) {
  NativeLibrary *self = (NativeLibrary *)type->tp_alloc(type, 0);
  if (self && (!names_fill(&self->names) || !open_library(self, path) || !find_tables(self, path))) {
    Py_CLEAR(self);
  }
  return self;
}

static PyObject *library_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"path", NULL};
  PyObject *path = NULL;
  if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "O&", names, PyUnicode_FSConverter, &path)) {
    return NULL;
  }
  NativeLibrary *self = new_library(type, PyBytes_AS_STRING(path));
  Py_DECREF(path);
  return (PyObject *)self;
}

void close_library(NativeLibrary *self) {
  if (self->handle) {
    dlclose(self->handle);
  }
  names_clear(&self->names);
}

static void library_dealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  close_library((NativeLibrary *)object);
  type->tp_free(object);
  Py_DECREF(type);
}

static PyObject *library_modules(PyObject *object, PyObject *Py_UNUSED(ignored)) {
  const RbLibrary *table = ((NativeLibrary *)object)->table;
  const int32_t count = table ? table->num_modules : 0;
  PyObject *modules = PyTuple_New(count);
  for (int32_t i = 0; modules && i < count; ++i) {
    PyObject *module = Py_BuildValue("(si)", table->module_keys[i], (int)table->parents[i]);
    if (!module) {
      Py_CLEAR(modules);
      break;
    }
    PyTuple_SET_ITEM(modules, i, module);
  }
  return modules;
}

static PyObject *library_regions(PyObject *object, PyObject *Py_UNUSED(ignored)) {
  const RbLibrary *table = ((NativeLibrary *)object)->table;
  const int32_t count = table ? table->num_regions : 0;
  PyObject *regions = PyTuple_New(count);
  for (int32_t i = 0; regions && i < count; ++i) {
    const RbRegion *region = table->regions[i];
    PyObject *entry = Py_BuildValue("(ssi)", region->signature->name, region->compiler, (int)table->region_modules[i]);
    if (!entry) {
      Py_CLEAR(regions);
      break;
    }
    PyTuple_SET_ITEM(regions, i, entry);
  }
  return regions;
}

static const RbRegion *find_region(const RbLibrary *table, const char *name) {
  for (int32_t i = 0; table && i < table->num_regions; ++i) {
    if (strcmp(table->regions[i]->signature->name, name) == 0) {
      return table->regions[i];
    }
  }
  return NULL;
}

static PyObject *library_blob(PyObject *object, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  const RbRegion *region = text ? find_region(((NativeLibrary *)object)->table, text) : NULL;
  if (!text) {
    return NULL;
  }
  return region && region->blob
             ? PyBytes_FromStringAndSize((const char *)region->blob->bytes, (Py_ssize_t)region->blob->num_bytes)
             : Py_NewRef(Py_None);
}

static PyObject *library_is_model(PyObject *object, void *Py_UNUSED(closure)) {
  return PyBool_FromLong(find_symbol((NativeLibrary *)object, RELAYBUILD_MODEL_ENTRY) != NULL);
}

/* What a region keeps between calls, while no call uses it. */
typedef struct State {
  struct State *next;
  void *self;
} State;

/* A packed function of a library. The list of idle states is guarded by the interpreter lock. */
typedef struct NativeFunction {
  PyObject_HEAD vectorcallfunc vectorcall;
  NativeLibrary *library;
  PyObject *name;
  RbPackedFunction call;
  const RbRegion *region; /* NULL where the library does not tell */
  TensorType *types;      /* of the region's inputs, then outputs */
  State *idle;
} NativeFunction;

static PyObject *function_call(PyObject *object, PyObject *const *arguments, size_t count, PyObject *names);

/* The function of a name, NULL without an exception where there is none. */
static NativeFunction *find_function(PyTypeObject *type, NativeLibrary *library, PyObject *name, const char *text) {
  char symbol[512];
  const RbRegion *region = find_region(library->table, text);
  RbPackedFunction call = region ? region->call : NULL;
  if (!region && (size_t)snprintf(symbol, sizeof symbol, FUNCTION_PREFIX "%s", text) < sizeof symbol) {
    void *found = find_symbol(library, symbol);
    memcpy(&call, &found, sizeof call);
  }
  NativeFunction *self = call ? (NativeFunction *)type->tp_alloc(type, 0) : NULL;
  if (!self) {
    return NULL;
  }
  self->vectorcall = function_call;
  self->library = (NativeLibrary *)Py_NewRef((PyObject *)library);
  self->name = Py_NewRef(name);
  self->call = call;
  self->region = region;
  if (region) {
    const RbSignature *signature = region->signature;
    self->types = types_make(signature->inputs, signature->num_inputs, signature->outputs, signature->num_outputs);
    if (!self->types) {
      Py_CLEAR(self);
    }
  }
  return self;
}

static PyObject *function_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords) {
  static char *names[] = {"library", "name", NULL};
  PyObject *library = NULL, *name = NULL;
  PyTypeObject *library_type = (PyTypeObject *)import_attribute("relaybuild.runtime._native", "NativeLibrary");
  NativeFunction *self = NULL;
  if (library_type && PyArg_ParseTupleAndKeywords(arguments, keywords, "O!U", names, library_type, &library, &name)) {
    const char *text = PyUnicode_AsUTF8(name);
    self = text ? find_function(type, (NativeLibrary *)library, name, text) : NULL;
    if (!self && !PyErr_Occurred()) {
      PyErr_SetObject(PyExc_KeyError, name);
    }
  }
  Py_XDECREF(library_type);
  return (PyObject *)self;
}

static void function_dealloc(PyObject *object) {
  NativeFunction *self = (NativeFunction *)object;
  PyTypeObject *type = Py_TYPE(object);
  while (self->idle) {
    State *state = self->idle;
    self->idle = state->next;
    if (state->self && self->region->destroy) {
      self->region->destroy(state->self);
    }
    PyMem_Free(state);
  }
  if (self->region) {
    const RbSignature *signature = self->region->signature;
    types_free(self->types, (Py_ssize_t)signature->num_inputs + signature->num_outputs);
  }
  Py_XDECREF(self->name);
  Py_XDECREF((PyObject *)self->library);
  type->tp_free(object);
  Py_DECREF(type);
}

/* Raises why the calling thread's last call of a function failed. */
static void raise_failure(const NativeFunction *self) {
  const char *message = self->library->last_error ? self->library->last_error() : "";
  if (*message) {
    PyErr_SetString(self->library->names.error, message);
  } else {
    PyErr_Format(self->library->names.error, "function '%U' failed and gave no reason", self->name);
  }
}

static State *state_acquire(NativeFunction *self) {
  State *state = self->idle;
  if (state) {
    self->idle = state->next;
    return state;
  }
  state = PyMem_Calloc(1, sizeof *state);
  if (!state) {
    PyErr_NoMemory();
  } else if (self->region && self->region->create) {
    int32_t failed;
    Py_BEGIN_ALLOW_THREADS;
    failed = self->region->create(self->region, &state->self);
    Py_END_ALLOW_THREADS;
    if (failed) {
      raise_failure(self);
      PyMem_Free(state);
      return NULL;
    }
  }
  return state;
}

static void state_release(NativeFunction *self, State *state) {
  state->next = self->idle;
  self->idle = state;
}

/* The arguments of one call, for a function whose tensors are not described also their names. */
typedef struct Call {
  Py_ssize_t count;
  Binding *bindings;
  RbValue *values;
  TensorType *unknown; /* NULL where the function's own types serve */
} Call;

static void call_clear(Call *call) {
  for (Py_ssize_t i = 0; call->bindings && i < call->count; ++i) {
    release_binding(&call->bindings[i]);
  }
  types_free(call->unknown, call->count);
  PyMem_Free(call->values);
  PyMem_Free(call->bindings);
}

/* False with an exception; call_clear() is due either way. */
static bool call_fill(const NativeFunction *self, Py_ssize_t count, Call *call) {
  *call = (Call){.count = count};
  call->bindings = PyMem_Calloc((size_t)count + 1, sizeof *call->bindings);
  call->values = PyMem_Calloc((size_t)count + 1, sizeof *call->values);
  call->unknown = self->types ? NULL : PyMem_Calloc((size_t)count + 1, sizeof *call->unknown);
  if (!call->bindings || !call->values || (!self->types && !call->unknown)) {
    PyErr_NoMemory();
    return false;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    call->values[i].type = RB_VALUE_TENSOR;
    call->values[i].u.as_pointer = &call->bindings[i].tensor;
    if (call->unknown && !(call->unknown[i].name = PyUnicode_FromFormat("%zd", i + 1))) {
      return false;
    }
  }
  return true;
}

static bool call_bind(const NativeFunction *self, Call *call, PyObject *const *arguments) {
  const PythonNames *names = &self->library->names;
  const Py_ssize_t inputs = self->types ? self->region->signature->num_inputs : 0;
  for (Py_ssize_t i = 0; i < call->count; ++i) {
    Binding *binding = &call->bindings[i];
    const bool is_bound = call->unknown ? bind_argument(names, &call->unknown[i], arguments[i], binding)
                          : i < inputs  ? bind_input(names, &self->types[i], arguments[i], binding)
                                        : bind_output(names, &self->types[i], arguments[i], binding);
    if (!is_bound) {
      return false;
    }
  }
  return true;
}

static bool call_execute(NativeFunction *self, Call *call) {
  State *state = state_acquire(self);
  if (!state) {
    return false;
  }
  RbValue result = {RB_VALUE_NONE, 0, {0}};
  int32_t failed;
  Py_BEGIN_ALLOW_THREADS;
  failed = self->call(state->self, call->values, (int32_t)call->count, &result);
  Py_END_ALLOW_THREADS;
  state_release(self, state);
  if (failed) {
    raise_failure(self);
    return false;
  }
  bool is_right = true;
  for (Py_ssize_t i = 0; call->unknown && is_right && i < call->count; ++i) {
    is_right = check_unwritten(&self->library->names, &call->unknown[i], &call->bindings[i]);
  }
  return is_right;
}

static bool check_count(const NativeFunction *self, Py_ssize_t count) {
  if (!self->types) {
    return true;
  }
  const RbSignature *signature = self->region->signature;
  const int inputs = (int)signature->num_inputs, outputs = (int)signature->num_outputs;
  if (count != inputs + outputs) {
    PyErr_Format(self->library->names.error,
                 "got %zd arguments, function '%U' takes %d: %d inputs, then %d outputs to write", count, self->name,
                 inputs + outputs, inputs, outputs);
  }
  return count == inputs + outputs;
}

static PyObject *function_call(PyObject *object, PyObject *const *arguments, size_t nargs, PyObject *names) {
  NativeFunction *self = (NativeFunction *)object;
  const Py_ssize_t count = PyVectorcall_NARGS(nargs);
  if (names && PyTuple_GET_SIZE(names)) {
    PyErr_Format(PyExc_TypeError, "function '%U' takes no keyword arguments", self->name);
    return NULL;
  }
  if (!check_count(self, count)) {
    return NULL;
  }
  Call call;
  const bool done = call_fill(self, count, &call) && call_bind(self, &call, arguments) && call_execute(self, &call);
  call_clear(&call);
  return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *function_describe(PyObject *object, PyObject *Py_UNUSED(ignored)) {
  NativeFunction *self = (NativeFunction *)object;
  if (!self->types) {
    return Py_NewRef(Py_None);
  }
  const RbSignature *signature = self->region->signature;
  PyObject *inputs = types_describe(self->types, signature->num_inputs);
  PyObject *outputs = inputs ? types_describe(self->types + signature->num_inputs, signature->num_outputs) : NULL;
  if (!outputs) {
    Py_XDECREF(inputs);
    return NULL;
  }
  return Py_BuildValue("(NN)", inputs, outputs);
}

static PyMethodDef library_methods[] = {
    {"modules", library_modules, METH_NOARGS,
     "modules()\n--\n\nPairs of type key and number of the parent (-1: none); the library itself is number 0."},
    {"regions", library_regions, METH_NOARGS,
     "regions()\n--\n\nTriples of function, backend's tag and number of the module that brings it."},
    {"blob", library_blob, METH_O, "blob(name)\n--\n\nThe bytes that a region was compiled to; None if it is code."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef library_getset[] = {
    {"is_model", library_is_model, NULL, "Whether the library is a model.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot library_slots[] = {
    {Py_tp_doc, "NativeLibrary(path)\n--\n\nA shared library, loaded."},
    {Py_tp_new, library_new},
    {Py_tp_dealloc, library_dealloc},
    {Py_tp_methods, library_methods},
    {Py_tp_getset, library_getset},
    {0, NULL},
};

PyType_Spec library_spec = {
    .name = "relaybuild.runtime._native.NativeLibrary",
    .basicsize = sizeof(NativeLibrary),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = library_slots,
};

static PyMethodDef function_methods[] = {
    {"describe", function_describe, METH_NOARGS,
     "describe()\n--\n\nInputs and outputs, each as (name, shape, dtype); None where the library does not tell."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(NativeFunction, vectorcall), READONLY, NULL},
    {"name", T_OBJECT_EX, offsetof(NativeFunction, name), READONLY, "The function's name."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_doc, "NativeFunction(library, name)\n--\n\nA packed function; KeyError where there is none of the name.\n\n"
                "Called with the arrays that it reads, then those that it writes."},
    {Py_tp_new, function_new},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_call, PyVectorcall_Call},
    {Py_tp_methods, function_methods},
    {Py_tp_members, function_members},
    {0, NULL},
};

PyType_Spec function_spec = {
    .name = "relaybuild.runtime._native.NativeFunction",
    .basicsize = sizeof(NativeFunction),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = function_slots,
};
