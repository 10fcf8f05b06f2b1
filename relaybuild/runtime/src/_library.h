/* SPDX-License-Identifier: Apache-2.0
 *
 * A shared library as an object of Python, to derive the object of a model from. Part of the extension module only. */
#ifndef RELAYBUILD_LIBRARY_H_
#define RELAYBUILD_LIBRARY_H_

#include "_arrays.h"

#include "relaybuild/packed.h"

/* A shared library that is loaded. */
typedef struct NativeLibrary {
  PyObject_HEAD void *handle;
  const RbLibrary *table; /* NULL where there is none */
  RbLastError last_error; /* NULL where there is none */
  PythonNames names;
} NativeLibrary;

/* The types relaybuild.runtime._native.NativeLibrary and NativeFunction. */
extern PyType_Spec library_spec, function_spec;

/* Makes an object of the type or of one derived from it, with the library open; NULL with an exception. */
NativeLibrary *new_library(PyTypeObject *type, const char *path);
/* What the deallocation of such an object does beside freeing it. */
void close_library(NativeLibrary *self);

/* The address of a symbol, NULL without an exception where there is none. */
void *find_symbol(NativeLibrary *self, const char *name);
/* False with a UserError unless a table of the library has the version that is read here. */
bool check_version(NativeLibrary *self, const char *path, uint32_t version);

#endif
