"""C and C++ text becomes a library whose functions are called with arrays."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from relaybuild.contrib.codegen_c import BACKEND
from relaybuild.errors import ToolError, UserError
from relaybuild.ir.infer import infer_types
from relaybuild.ir.parser import parse
from relaybuild.partition.backend import CodegenOptions
from relaybuild.runtime import csource_module_create, load_module
from relaybuild.target import Target

DOUBLE = """
#include "relaybuild/packed.h"
#ifdef __cplusplus
#include <algorithm>
#define EXTERN extern "C"
#else
#define EXTERN
#endif
#ifndef FACTOR
#define FACTOR 2
#endif
static const int64_t shape[] = {3};
static const RbTensorInfo tensors[] = {{"x", 1, shape, {kDLFloat, 32, 1}}, {"y", 1, shape, {kDLFloat, 32, 1}}};
static const RbSignature signature = {"scaled", 1, 1, tensors, tensors + 1};
EXTERN RB_EXPORT int32_t __tvm_ffi_scaled(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  void *data[2];
  (void)self, (void)result;
  if (rb_unpack(&signature, args, num_args, data)) {
    return -1;
  }
  for (int i = 0; i < 3; ++i) {
    ((float *)data[1])[i] = ((const float *)data[0])[i] * FACTOR;
  }
  return 0;
}
"""


@pytest.mark.parametrize("fmt", ["c", "cc"])
def test_a_function_of_a_text_runs(fmt: str, tmp_path: Path) -> None:
    """XR01: functions of C and C++ texts run from the library that was made of them."""
    if fmt == "cc" and shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    path = tmp_path / "scaled.so"
    csource_module_create(DOUBLE, fmt, ["scaled"]).export_library(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["scaled.so"]
    module = load_module(path)
    assert module.type_key == "library"
    assert "scaled" in module.function_names
    x, y = np.array([1, 2, 3], np.float32), np.zeros(3, np.float32)
    module.get_function("scaled")(x, y)
    assert y.tolist() == [2, 4, 6]


def test_flags_and_include_folders_reach_the_compiler(tmp_path: Path) -> None:
    """XR02: a header outside of relaybuild is found in the folder that is given."""
    (tmp_path / "vendor.h").write_text("#define FACTOR (BASE + 1)\n", encoding="utf-8")
    code = '#include "vendor.h"\n' + DOUBLE
    path = tmp_path / "scaled.so"
    csource_module_create(code).export_library(path, flags=["-DBASE=9"], include_dirs=[tmp_path])
    y = np.zeros(3, np.float32)
    load_module(path).get_function("scaled")(np.array([1, 2, 3], np.float32), y)
    assert y.tolist() == [10, 20, 30]


def test_a_wrong_argument_is_told_by_name(tmp_path: Path) -> None:
    path = tmp_path / "scaled.so"
    csource_module_create(DOUBLE).export_library(path)
    with pytest.raises(UserError, match="'x'"):
        load_module(path).get_function("scaled")(np.zeros(4, np.float32), np.zeros(3, np.float32))


def test_generated_text_is_such_a_text(tmp_path: Path) -> None:
    function = infer_types(
        parse('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2, 3), float64]) { %0 = %x * %x; nn.relu(%0 - %x) }')
    )["main"]
    options = CodegenOptions("square", "square", Target.parse("c"), (), ("x",), ("y",))
    text = BACKEND.codegen(function, options).units[0].text
    path = tmp_path / "square.so"
    csource_module_create(text, "c", ["square"]).export_library(path)
    x, y = np.arange(-2.0, 4).reshape(2, 3), np.zeros((2, 3))
    load_module(path)["square"](x, y)
    np.testing.assert_array_equal(y, np.maximum(x * x - x, 0))


def test_a_library_shows_its_functions_alone(tmp_path: Path) -> None:
    """RL03: several functions of one text, each to be found by its name, and nothing else."""
    path = tmp_path / "scaled.so"
    csource_module_create(DOUBLE + "int helper(void) { return 1; }").export_library(path)
    listing = subprocess.run(["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    assert "__tvm_ffi_scaled" in listing.stdout
    assert "helper" not in listing.stdout
    assert "rb_unpack" not in listing.stdout


def test_a_library_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.so", "b.so")]
    for path in paths:
        csource_module_create(DOUBLE).export_library(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.parametrize(
    ("code", "words"), [("int f(void) { return y; }", "'y' undeclared"), ("void g(void); void f(void) { g(); }", "g")]
)
def test_text_that_does_not_compile_leaves_no_file(code: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(ToolError) as raised:
        csource_module_create(code).export_library(tmp_path / "f.so")
    assert words in raised.value.output
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        csource_module_create(DOUBLE).export_library(tmp_path / "nowhere" / "f.so")
