"""Compiles generated units strictly and calls their packed functions with arrays; knows no backend.

A call goes through ctypes, so that what it tells does not depend on the loader.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from relaybuild.ir.expr import Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import CodegenOptions, SourceUnit, flat_types
from relaybuild.runtime.sources import include_dir, packed_sources
from relaybuild.target import Target

Array: TypeAlias = NDArray[Any]

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic")
_STANDARDS = {"c": ("c11", "cc"), "c++": ("c++17", "c++")}
# One rounding for each operation, as numpy has it.
_FLAGS = ("-O1", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-ffp-contract=off")
_TENSOR = 7


class DLTensor(ctypes.Structure):
    """A tensor as C has it."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Value(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("zero", ctypes.c_uint32), ("pointer", ctypes.c_void_p))


class Failure(Exception):
    """A packed function returned an error; the message is what it recorded."""


@dataclass(frozen=True)
class PackedLibrary:
    """A library of packed functions."""

    handle: ctypes.CDLL

    def call(self, name: str, arguments: Sequence[Array], state: int | None = None) -> None:
        """Call `__tvm_ffi_NAME` with inputs, then outputs to write; `state` is the address of what its region keeps."""
        tensors = [dl_tensor(each) for each in arguments]
        values = (_Value * len(tensors))()
        for value, tensor in zip(values, tensors):
            value.type, value.pointer = _TENSOR, ctypes.addressof(tensor)
        function = self.handle[f"__tvm_ffi_{name}"]
        function.restype = ctypes.c_int32
        if function(ctypes.c_void_p(state), values, len(tensors), ctypes.byref(_Value())):
            raise Failure(self.last_error())

    def run(
        self, name: str, inputs: Sequence[Array], results: Sequence[TensorType], state: int | None = None
    ) -> list[Array]:
        """The results of a call, in arrays that held other numbers before."""
        outputs = [np.full(kind.static_shape, 77, dtype=_stored(kind.dtype)) for kind in results]
        self.call(name, [*inputs, *outputs], state)
        return outputs

    def last_error(self) -> str:
        """What this thread's last failure recorded."""
        function = self.handle.relaybuild_last_error_v1
        function.restype = ctypes.c_char_p
        text: bytes = function()
        return text.decode()


def _stored(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype


def dl_tensor(array: Array) -> DLTensor:
    """An array without gaps as a tensor, which does not keep it."""
    assert array.flags.c_contiguous
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    code = {"i": 0, "u": 1, "f": 2, "b": 6}[array.dtype.kind]
    return DLTensor(array.ctypes.data, 1, 0, array.ndim, code, array.dtype.itemsize * 8, 1, shape, None, 0)


def build(
    units: Sequence[SourceUnit],
    folder: Path,
    *,
    strict: bool = True,
    flags: Sequence[str] = (),
    link: Sequence[str] = (),
) -> PackedLibrary:
    """The units as a library in `folder`; `strict` makes every warning an error.

    `flags` are further ones of the compiler, `link` words of the linker: objects and libraries.
    """
    strictness = WARNINGS if strict else ()
    objects = [compiled(unit, folder, (*strictness, *flags)) for unit in units]
    library = folder / "packed.so"
    linker = "c++" if link or any(unit.language == "c++" for unit in units) else "cc"
    _run([linker, "-shared", "-Wl,-z,defs", *map(str, [*objects, *_runtime()]), *link, "-o", str(library), "-lm"])
    return PackedLibrary(ctypes.CDLL(str(library)))


def compiled(unit: SourceUnit, folder: Path, flags: Sequence[str]) -> Path:
    """The object of a unit, in `folder`."""
    standard, compiler = _STANDARDS[unit.language]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no compiler '{compiler}'")
    source = folder / f"{unit.name}.{'c' if unit.language == 'c' else 'cc'}"
    source.write_text(unit.text, encoding="utf-8")
    target = source.with_suffix(".o")
    include = f"-I{include_dir()}"
    _run([compiler, f"-std={standard}", *flags, *_FLAGS, include, "-c", str(source), "-o", str(target)])
    return target


@functools.cache
def _runtime() -> tuple[Path, ...]:
    """What packed functions are linked with, compiled once."""
    folder = Path(tempfile.mkdtemp(prefix="relaybuild-packed-"))
    units = [SourceUnit(path.stem, path.read_text(encoding="utf-8"), hot=False) for path in packed_sources()]
    objects = []
    for unit in units:
        source = folder / f"{unit.name}.c"
        source.write_text(unit.text, encoding="utf-8")
        objects.append(source.with_suffix(".o"))
        _run(["cc", "-std=gnu11", *_FLAGS, f"-I{include_dir()}", "-c", str(source), "-o", str(objects[-1])])
    return tuple(objects)


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def typed(text: str) -> IRModule:
    """A typed module of its text."""
    return infer_types(parse('#[version = "0.0.5"]\n' + text))


def options(function: Function, symbol: str = "region", constants: frozenset[int] = frozenset()) -> CodegenOptions:
    """What a code generator is told of a function that stands alone."""
    inputs = [kind for param in function.params for kind in flat_types(param.checked_type)]
    outputs = flat_types(function.body.checked_type)
    return CodegenOptions(
        symbol,
        symbol,
        Target.parse("c"),
        (),
        tuple(f"x{number}" for number in range(len(inputs))),
        tuple(f"y{number}" for number in range(len(outputs))),
        constants=constants,
    )
