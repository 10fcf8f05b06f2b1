/* SPDX-License-Identifier: Apache-2.0
 *
 * The Python side of relaybuild/module.h: modules that loaders make of files and of bytes, and their functions over
 * arrays. Knows no kind of module; which ones there are depends on what it is linked with. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <structmember.h>

#include <new>
#include <string>
#include <vector>

#include "relaybuild/module.h"

extern "C" {
#include "_arrays.h"
}

namespace {

using relaybuild::Module;
using relaybuild::PackedFunc;

struct Decref {
  void operator()(PyObject *object) const {
    Py_DECREF(object);
  }
};
/* A reference that is owned. */
using Reference = std::unique_ptr<PyObject, Decref>;

/* Filled when first needed, since that imports numpy, and kept for as long as the process runs. */
PythonNames python_names;
bool has_python_names = false;
PyTypeObject *module_type;
PyTypeObject *function_type;

PyObject *MakeText(std::string_view text) {
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

/* Makes the C++ exception that is being handled the current Python exception. */
void RaiseCurrent() {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    PyErr_NoMemory();
  } catch (const std::exception &error) {
    if (const Reference text{MakeText(error.what())}) {
      PyErr_SetObject(python_names.error, text.get());
    }
  }
}

/* False with an exception. */
bool NeedPythonNames() {
  if (!has_python_names && !names_fill(&python_names)) {
    names_clear(&python_names);
    return false;
  }
  has_python_names = true;
  return true;
}

PyObject *MakeTextList(const std::vector<std::string> &texts) {
  Reference list(PyList_New(0));
  for (const std::string &text : texts) {
    const Reference item(MakeText(text));
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0) {
      return nullptr;
    }
  }
  return list.release();
}

class GilReleased {
public:
  GilReleased() : state_(PyEval_SaveThread()) {}
  GilReleased(const GilReleased &) = delete;
  GilReleased &operator=(const GilReleased &) = delete;
  ~GilReleased() {
    PyEval_RestoreThread(state_);
  }

private:
  PyThreadState *state_;
};

/* What Python needs to know of a function's tensors, made once. */
class TensorTypes {
public:
  TensorTypes() = default;
  TensorTypes(const TensorTypes &) = delete;
  TensorTypes &operator=(const TensorTypes &) = delete;
  ~TensorTypes() {
    for (TensorType &type : types_) {
      type_clear(&type);
    }
  }

  /* False with an exception. */
  bool Fill(const RbSignature &signature) {
    num_inputs_ = signature.num_inputs;
    types_.resize(static_cast<size_t>(signature.num_inputs) + static_cast<size_t>(signature.num_outputs));
    for (Py_ssize_t i = 0; i < count(); ++i) {
      const RbTensorInfo &info = i < num_inputs_ ? signature.inputs[i] : signature.outputs[i - num_inputs_];
      if (!type_fill(&types_[static_cast<size_t>(i)], &info)) {
        return false;
      }
    }
    return true;
  }

  /* False with an exception. */
  bool Bind(Py_ssize_t index, PyObject *object, Binding *binding) const {
    const TensorType *type = &types_[static_cast<size_t>(index)];
    return index < num_inputs_ ? bind_input(&python_names, type, object, binding)
                               : bind_output(&python_names, type, object, binding);
  }

  Py_ssize_t count() const {
    return static_cast<Py_ssize_t>(types_.size());
  }

  PyObject *Describe() const {
    const Py_ssize_t outputs = count() - num_inputs_;
    return Py_BuildValue("(NN)", types_describe(types_.data(), num_inputs_),
                         types_describe(types_.data() + num_inputs_, outputs));
  }

private:
  std::vector<TensorType> types_; /* inputs, then outputs */
  Py_ssize_t num_inputs_ = 0;
};

/* The tensors of one call. */
class Bindings {
public:
  explicit Bindings(size_t count) : bindings_(count), values_(count) {}
  Bindings(const Bindings &) = delete;
  Bindings &operator=(const Bindings &) = delete;
  ~Bindings() {
    for (Binding &binding : bindings_) {
      release_binding(&binding);
    }
  }

  Binding *at(size_t index) {
    return &bindings_[index];
  }

  void Call(const PackedFunc &function) {
    for (size_t i = 0; i < values_.size(); ++i) {
      values_[i] = relaybuild::MakeValue(&bindings_[i].tensor);
    }
    const GilReleased released;
    function.Call(values_.data(), static_cast<int32_t>(values_.size()));
  }

private:
  std::vector<Binding> bindings_;
  std::vector<RbValue> values_;
};

struct FunctionObject {
  PyObject_HEAD vectorcallfunc vectorcall;
  PackedFunc *function;
  TensorTypes *types;
};

struct ModuleObject {
  PyObject_HEAD Module *module;
};

PyObject *FunctionCall(PyObject *object, PyObject *const *arguments, size_t flagged, PyObject *keywords) {
  const auto *self = reinterpret_cast<FunctionObject *>(object);
  const Py_ssize_t count = PyVectorcall_NARGS(flagged);
  if (keywords && PyTuple_GET_SIZE(keywords)) {
    PyErr_SetString(PyExc_TypeError, "a packed function takes no keyword arguments");
    return nullptr;
  }
  try {
    if (count != self->types->count()) {
      // the function says what it takes
      self->function->Call(nullptr, static_cast<int32_t>(count));
    }
    Bindings bindings(static_cast<size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      if (!self->types->Bind(i, arguments[i], bindings.at(static_cast<size_t>(i)))) {
        return nullptr;
      }
    }
    bindings.Call(*self->function);
  } catch (...) {
    RaiseCurrent();
    return nullptr;
  }
  return Py_NewRef(Py_None);
}

void FunctionDealloc(PyObject *object) {
  auto *self = reinterpret_cast<FunctionObject *>(object);
  PyTypeObject *type = Py_TYPE(object);
  delete self->types;
  delete self->function;
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject *FunctionSignature(PyObject *object, PyObject *) {
  return reinterpret_cast<FunctionObject *>(object)->types->Describe();
}

PyObject *MakeFunction(PackedFunc function) {
  auto *self = reinterpret_cast<FunctionObject *>(function_type->tp_alloc(function_type, 0));
  Reference owner(reinterpret_cast<PyObject *>(self));
  if (!self) {
    return nullptr;
  }
  self->vectorcall = FunctionCall;
  self->types = new TensorTypes;
  self->function = new PackedFunc(std::move(function));
  if (!self->function->signature()) {
    throw relaybuild::Error("the function does not tell what it takes, and cannot be called with arrays");
  }
  return self->types->Fill(*self->function->signature()) ? owner.release() : nullptr;
}

PyObject *MakeModule(Module module) {
  auto *self = reinterpret_cast<ModuleObject *>(module_type->tp_alloc(module_type, 0));
  Reference owner(reinterpret_cast<PyObject *>(self));
  if (self) {
    self->module = new Module(std::move(module));
  }
  return owner.release();
}

const Module &ModuleOf(PyObject *object) {
  return *reinterpret_cast<ModuleObject *>(object)->module;
}

/* What `body` returns; a C++ exception becomes one of Python's. */
template <class F> PyObject *Guarded(const F &body) {
  try {
    return NeedPythonNames() ? body() : nullptr;
  } catch (...) {
    RaiseCurrent();
    return nullptr;
  }
}

void ModuleDealloc(PyObject *object) {
  PyTypeObject *type = Py_TYPE(object);
  delete reinterpret_cast<ModuleObject *>(object)->module;
  type->tp_free(object);
  Py_DECREF(type);
}

PyObject *ModuleTypeKey(PyObject *object, void *) {
  return Guarded([object] { return MakeText(ModuleOf(object)->type_key()); });
}

PyObject *ModuleFunctionNames(PyObject *object, PyObject *) {
  return Guarded([object] { return MakeTextList(ModuleOf(object)->FunctionNames()); });
}

PyObject *ModuleGetFunction(PyObject *object, PyObject *name) {
  const char *text = PyUnicode_AsUTF8(name);
  return text ? Guarded([=] { return MakeFunction(ModuleOf(object).GetFunction(text)); }) : nullptr;
}

PyObject *ModuleGetSource(PyObject *object, PyObject *format) {
  const char *text = PyUnicode_AsUTF8(format);
  return text ? Guarded([=] { return MakeText(ModuleOf(object)->GetSource(text)); }) : nullptr;
}

PyObject *ModuleSaveToBinary(PyObject *object, PyObject *) {
  return Guarded([object] {
    const std::string data = ModuleOf(object).SaveToBinary();
    return PyBytes_FromStringAndSize(data.data(), static_cast<Py_ssize_t>(data.size()));
  });
}

PyObject *ModuleImports(PyObject *object, PyObject *) {
  return Guarded([object]() -> PyObject * {
    Reference list(PyList_New(0));
    for (const Module &import : ModuleOf(object)->imports()) {
      const Reference item(MakeModule(import));
      if (!list || !item || PyList_Append(list.get(), item.get()) < 0) {
        return nullptr;
      }
    }
    return list.release();
  });
}

PyObject *LoadFile(PyObject *, PyObject *arguments) {
  PyObject *path = nullptr;
  const char *format = nullptr;
  if (!PyArg_ParseTuple(arguments, "O&s", PyUnicode_FSConverter, &path, &format)) {
    return nullptr;
  }
  const Reference owner(path);
  return Guarded([=] { return MakeModule(relaybuild::LoadModule(PyBytes_AS_STRING(path), format)); });
}

PyObject *LoadFromBinary(PyObject *, PyObject *arguments) {
  const char *type_key = nullptr;
  Py_buffer data;
  if (!PyArg_ParseTuple(arguments, "sy*", &type_key, &data)) {
    return nullptr;
  }
  PyObject *const module = Guarded([&] {
    const std::string_view bytes(static_cast<const char *>(data.buf), static_cast<size_t>(data.len));
    return MakeModule(relaybuild::LoadFromBinary(type_key, bytes));
  });
  PyBuffer_Release(&data);
  return module;
}

PyObject *LoaderNames(PyObject *, PyObject *) {
  return Guarded([] { return MakeTextList(relaybuild::LoaderNames()); });
}

PyMethodDef module_methods[] = {
    {"function_names", ModuleFunctionNames, METH_NOARGS, "function_names()\n--\n\nThe names of all functions."},
    {"get_function", ModuleGetFunction, METH_O, "get_function(name)\n--\n\nThe function of a name."},
    {"get_source", ModuleGetSource, METH_O, "get_source(format)\n--\n\nA text that shows what the module is."},
    {"save_to_binary", ModuleSaveToBinary, METH_NOARGS, "save_to_binary()\n--\n\nThe module's bytes, in a frame."},
    {"imports", ModuleImports, METH_NOARGS, "imports()\n--\n\nThe modules that this one imports."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef module_properties[] = {
    {"type_key", ModuleTypeKey, nullptr, "The name of the kind of module.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot module_slots[] = {
    {Py_tp_doc, const_cast<char *>("A module that is no library.")},
    {Py_tp_dealloc, reinterpret_cast<void *>(ModuleDealloc)},
    {Py_tp_methods, module_methods},
    {Py_tp_getset, module_properties},
    {0, nullptr},
};

PyType_Spec module_spec = {"relaybuild.runtime._modules.NativeModule", sizeof(ModuleObject), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, module_slots};

PyMethodDef function_methods[] = {
    {"describe", FunctionSignature, METH_NOARGS,
     "describe()\n--\n\nName, shape and dtype of the inputs, and those of the outputs."},
    {nullptr, nullptr, 0, nullptr},
};

PyMemberDef function_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(FunctionObject, vectorcall), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot function_slots[] = {
    {Py_tp_doc, const_cast<char *>("A function over arrays: inputs, then outputs to write.")},
    {Py_tp_dealloc, reinterpret_cast<void *>(FunctionDealloc)},
    {Py_tp_call, reinterpret_cast<void *>(PyVectorcall_Call)},
    {Py_tp_methods, function_methods},
    {Py_tp_members, function_members},
    {0, nullptr},
};

PyType_Spec function_spec = {"relaybuild.runtime._modules.NativeFunction", sizeof(FunctionObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_VECTORCALL,
                             function_slots};

bool AddType(PyObject *module, PyType_Spec *spec, const char *name, PyTypeObject **type) {
  PyObject *made = PyType_FromSpec(spec);
  *type = reinterpret_cast<PyTypeObject *>(made);
  return made && PyModule_AddObjectRef(module, name, made) == 0;
}

PyMethodDef functions[] = {
    {"load_file", LoadFile, METH_VARARGS, "load_file(path, format)\n--\n\nThe module in a file."},
    {"load_from_binary", LoadFromBinary, METH_VARARGS,
     "load_from_binary(type_key, data)\n--\n\nThe module in bytes that save_to_binary() made."},
    {"loader_names", LoaderNames, METH_NOARGS, "loader_names()\n--\n\nThe names of all loaders."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module_definition = {PyModuleDef_HEAD_INIT,
                                 "_modules",
                                 "Modules that are no libraries, and their functions.",
                                 -1,
                                 functions,
                                 nullptr,
                                 nullptr,
                                 nullptr,
                                 nullptr};

} // namespace

PyMODINIT_FUNC PyInit__modules(void) {
  Reference module(PyModule_Create(&module_definition));
  if (!module || !AddType(module.get(), &module_spec, "NativeModule", &module_type) ||
      !AddType(module.get(), &function_spec, "NativeFunction", &function_type)) {
    return nullptr;
  }
  return module.release();
}
