"""Builds regions of backends that need a library of somebody else; skips where that is not installed."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaybuild.backends.selection import select
from relaybuild.build.configure import BackendSettings
from relaybuild.ir.expr import Expr, Function, Tuple, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import Backend, SourceUnit, flat_types
from relaybuild.partition.merge_composite import MergeComposite
from relaybuild.partition.pattern_table import table_of
from runners.packed import Array, build, compiled, options


@functools.cache
def settings_of(flag: str) -> BackendSettings:
    """What CMake finds for a flag that is AUTO."""
    return select(None, {flag: "AUTO"}).settings[flag]


def require(backend: Backend) -> BackendSettings:
    """What a backend's flag found; skips the test, with what is missing, where it found nothing."""
    found = settings_of(backend.cmake_flag)
    if not found.enabled:
        pytest.skip(f"the library of '{backend.name}' is not installed: {found.message}")
    return found


def flags_of(backend: Backend) -> tuple[str, ...]:
    """The compiler's flags for a backend's units."""
    found = require(backend)
    folders = [f"-I{backend.folder}", *(f"-isystem{folder}" for folder in found.include_dirs)]
    return (*folders, *(f"-D{definition}" for definition in found.definitions))


def link_of(backend: Backend) -> tuple[str, ...]:
    """What the linker needs for a backend's units: its runtime, compiled once, and the library."""
    return (*map(str, _runtime_objects(backend.tag, backend)), *require(backend).libraries)


_objects: dict[str, tuple[Path, ...]] = {}


def _runtime_objects(tag: str, backend: Backend) -> tuple[Path, ...]:
    if tag not in _objects:
        folder = Path(tempfile.mkdtemp(prefix=f"relaybuild-{tag}-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        assert backend.folder is not None
        sources = [backend.folder / name for name in backend.runtime_sources]
        units = [SourceUnit(each.stem, each.read_text(encoding="utf-8"), False, "c++") for each in sources]
        strict = ("-Wall", "-Wextra", "-Werror", "-pedantic")
        _objects[tag] = tuple(compiled(unit, folder, (*strict, *flags_of(backend))) for unit in units)
    return _objects[tag]


def region_of(backend: Backend, params: Sequence[Var], results: Sequence[Expr]) -> Function:
    """A function of those results, in which the backend's patterns have become calls of composite functions."""
    body = results[0] if len(results) == 1 else Tuple(results)
    module = infer_types(IRModule({"main": Function(list(params), body)}))
    return infer_types(MergeComposite(table_of(backend.tag))(module))["main"]


def random_arguments(params: Sequence[Var], seed: int = 0) -> list[Array]:
    """Normally distributed numbers."""
    random = np.random.default_rng(seed)
    kinds = [param.checked_type for param in params]
    assert all(isinstance(kind, TensorType) for kind in kinds)
    return [np.asarray(random.normal(size=kind.static_shape)).astype(kind.dtype) for kind in kinds]


def compare(
    backend: Backend, params: Sequence[Var], results: Sequence[Expr], *, rtol: float = 1e-4, weights: Sequence[int] = ()
) -> None:
    """Fail where the backend's code of a region, run on random numbers, and the reference semantics differ.

    Tolerance is relative to the largest number of a result. Inputs of the numbers `weights` are said to be constant.
    """
    function = region_of(backend, params, results)
    arguments = random_arguments(params)
    wanted: Any = interpret(IRModule({"main": function}), *arguments)
    with tempfile.TemporaryDirectory() as folder:
        code = backend.codegen(function, options(function, constants=frozenset(weights)))
        library = build(code.units, Path(folder), flags=flags_of(backend), link=link_of(backend))
        found = library.run("region", arguments, flat_types(function.body.checked_type))
    for number, (want, have) in enumerate(zip(wanted if isinstance(wanted, tuple) else (wanted,), found, strict=True)):
        scale = float(np.abs(want).max(initial=1))
        np.testing.assert_allclose(have / scale, want / scale, atol=rtol, rtol=0, err_msg=f"result {number}")
