/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python side of a library: loads it, calls its packed functions and its model, leases instances and states to
 * calling threads. Knows the public C interfaces of both, nothing of how a library is compiled. */
#include "_arrays.h"

#include <structmember.h>

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "relaybuild/packed.h"

#define FUNCTION_PREFIX "__tvm_ffi_"

/* A shared library that is loaded. */
typedef struct NativeLibrary {
  PyObject_HEAD void *handle;
  const RbLibrary *table; /* NULL where there is none */
  RbLastError last_error; /* NULL where there is none */
  PythonNames names;
} NativeLibrary;

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

static void free_types(TensorType *types, Py_ssize_t count) {
  for (Py_ssize_t i = 0; types && i < count; ++i) {
    type_clear(&types[i]);
  }
  PyMem_Free(types);
}

/* Types of inputs, then outputs; NULL with an exception. */
static TensorType *make_types(const RbTensorInfo *inputs, int32_t num_inputs, const RbTensorInfo *outputs,
                              int32_t num_outputs) {
  TensorType *types = PyMem_Calloc((size_t)num_inputs + (size_t)num_outputs + 1, sizeof *types);
  bool is_filled = types != NULL;
  for (int32_t i = 0; is_filled && i < num_inputs + num_outputs; ++i) {
    is_filled = type_fill(&types[i], i < num_inputs ? &inputs[i] : &outputs[i - num_inputs]);
  }
  if (!types) {
    PyErr_NoMemory();
  } else if (!is_filled) {
    free_types(types, num_inputs + num_outputs);
    return NULL;
  }
  return types;
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

static void *find_symbol(NativeLibrary *self, const char *name) {
  return dlsym(self->handle, name);
}

static bool open_library(NativeLibrary *self, const char *path) {
  char *spelling = PyMem_Malloc(strlen(path) + 66);
  if (!spelling) {
    PyErr_NoMemory();
    return false;
  }
  fresh_spelling(path, spelling);
  self->handle = dlopen(spelling, RTLD_NOW | RTLD_LOCAL);
  PyMem_Free(spelling);
  if (!self->handle) {
    const char *message = dlerror();
    PyErr_Format(self->names.error, "'%s' cannot be loaded as a shared library: %s", path,
                 message ? message : "no reason");
  }
  return self->handle != NULL;
}

static bool check_version(NativeLibrary *self, const char *path, uint32_t version) {
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

/* Makes an object of the type or of one derived from it, with the library open; NULL with an exception. */
static NativeLibrary *new_library(PyTypeObject *type, const char *path) {
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

static void close_library(NativeLibrary *self) {
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
    self->types = make_types(signature->inputs, signature->num_inputs, signature->outputs, signature->num_outputs);
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
    free_types(self->types, (Py_ssize_t)signature->num_inputs + signature->num_outputs);
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
  free_types(call->unknown, call->count);
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
  self->types = make_types(self->info->inputs, self->info->num_inputs, self->info->outputs, self->info->num_outputs);
  return self->types != NULL;
}

/* Makes the first instance, so that a processor that cannot run the model is found at load time. */
static bool open_model(NativeModel *self, const char *path) {
  Lease *lease = find_interface(self, path) ? lease_create(self) : NULL;
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
  NativeModel *self = (NativeModel *)new_library(type, PyBytes_AS_STRING(path));
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

static void model_dealloc(PyObject *object) {
  NativeModel *self = (NativeModel *)object;
  PyTypeObject *type = Py_TYPE(object);
  while (self->idle) {
    Lease *lease = self->idle;
    self->idle = lease->next;
    lease_free(self, lease);
  }
  if (self->types) {
    free_types(self->types, (Py_ssize_t)self->info->num_inputs + self->info->num_outputs);
  }
  close_library(&self->library);
  type->tp_free(object);
  Py_DECREF(type);
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

static PyType_Spec library_spec = {
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

static PyType_Spec function_spec = {
    .name = "relaybuild.runtime._native.NativeFunction",
    .basicsize = sizeof(NativeFunction),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .slots = function_slots,
};

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
