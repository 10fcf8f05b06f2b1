/* SPDX-License-Identifier: Apache-2.0
 *
 * Python objects as tensors: numpy arrays and whatever else has the buffer protocol or `__dlpack__`. It knows no
 * library. Part of the extension module only. */
#ifndef RELAYBUILD_ARRAYS_H_
#define RELAYBUILD_ARRAYS_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>

#include "relaybuild/model.h"

/* Names of Python that are looked up once. */
typedef struct PythonNames {
  PyObject *error; /* relaybuild.errors.UserError */
  PyObject *empty; /* numpy.empty */
  PyObject *require;
  PyObject *from_dlpack;
  PyObject *masked; /* "numpy.ma" */
} PythonNames;

PyObject *import_attribute(const char *module, const char *name);
/* False with an exception; names_clear() is due either way. */
bool names_fill(PythonNames *names);
void names_clear(PythonNames *names);

/* One parameter of a function. Shape and dtype are NULL where they are not known. */
typedef struct TensorType {
  PyObject *name;
  PyObject *shape; /* tuple of int */
  PyObject *dtype; /* numpy.dtype */
} TensorType;

/* False with an exception; type_clear() is due either way. */
bool type_fill(TensorType *type, const RbTensorInfo *info);
void type_clear(TensorType *type);
/* Types of inputs, then outputs, for types_free(); NULL with an exception. */
TensorType *types_make(const RbTensorInfo *inputs, int32_t num_inputs, const RbTensorInfo *outputs,
                       int32_t num_outputs);
void types_free(TensorType *types, Py_ssize_t count);
/* A tuple of (name, shape, name of the dtype) for each type. */
PyObject *types_describe(const TensorType *types, Py_ssize_t count);

/* One tensor of a call, and what keeps its memory alive. */
typedef struct Binding {
  DLTensor tensor;
  Py_buffer view; /* view.obj is NULL when there is none */
  PyObject *owner;
  PyObject *source; /* the array that `tensor` is a copy of, where it might be meant to be written to */
  bool is_bound;
} Binding;

/* Each binds an object to a parameter, and is false with a UserError that names the parameter where that cannot be.
 * What was bound before must have been released. An input that is not compact and aligned is copied; an output is not.
 */
bool bind_input(const PythonNames *names, const TensorType *type, PyObject *object, Binding *binding);
bool bind_output(const PythonNames *names, const TensorType *type, PyObject *object, Binding *binding);
/* For a function that does not tell which of its tensors it writes: what cannot be written to in place is copied. */
bool bind_argument(const PythonNames *names, const TensorType *type, PyObject *object, Binding *binding);
/* After the call: false with a UserError if such a copy was written to. */
bool check_unwritten(const PythonNames *names, const TensorType *type, const Binding *binding);

void release_binding(Binding *binding);

#endif
