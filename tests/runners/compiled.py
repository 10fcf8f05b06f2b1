"""Compiles functions with the host and compares what they compute with the interpreter; knows no operator.

Every comparison runs the library on NaNs first, in memory full of huge numbers, so that neither what a run leaves in
pad lanes and halos nor what was there before can help the next.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

import relaybuild.contrib.host.program
from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.toolchain import Toolchain, probe
from relaybuild.compilation.weights import evaluate_weights
from relaybuild.contrib.host.codegen import generate as host_code
from relaybuild.ir.expr import Constant, Expr, Function, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.lower.sources import include_dir as kernel_include_dir
from relaybuild.partition.backend import CodegenOptions, GeneratedCode
from relaybuild.passes.infra import PassContext
from relaybuild.passes.pipelines import default_pipeline
from relaybuild.runtime import include_dir, load_module, model_sources
from relaybuild.target import Target

Array: TypeAlias = NDArray[Any]

_M_PERTURB, _M_MMAP_THRESHOLD = -6, -3

TARGETS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "c")


def runnable_targets() -> list[str]:
    """Those of `TARGETS` whose code this machine runs."""
    host = Target.host().name
    return [*TARGETS[TARGETS.index(host) :]] if host in TARGETS else ["c"]


def target_params() -> list[Any]:
    """The same as parameters of a suite of many cases: those of a lesser level, from the same templates, are slow."""
    return [
        pytest.param(target, marks=pytest.mark.slow if target == "x86-64-v2" and target != Target.host().name else ())
        for target in runnable_targets()
    ]


@contextmanager
def threads_wanted_always() -> Iterator[None]:
    """Libraries compiled meanwhile use all their threads, however little there is to do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaybuild.contrib.host.program, "SINGLE_THREAD_FLOPS", -1)
        yield


class Batch:
    """Gathers independent expressions over inputs of their own, to be compiled into one library."""

    def __init__(self) -> None:
        self.params: list[Var] = []
        self.arguments: list[Array] = []
        self.results: list[Expr] = []
        self.labels: list[str] = []
        self.exact: list[float] = []

    def input(self, value: Array) -> Var:
        """A new input of the library, which `value` is passed for."""
        self.params.append(var(f"x{len(self.params)}", TensorType(value.shape, value.dtype.name)))
        self.arguments.append(value)
        return self.params[-1]

    def add(self, label: str, result: Expr, tolerance: float = 1e-5) -> None:
        """Compare `result` within `tolerance` times its largest magnitude; the fields of a tuple one by one."""
        found = result.checked_type
        fields = [result]
        if isinstance(found, TupleType):
            fields = [TupleGetItem(result, index) for index in range(len(found.fields))]
        for number, field in enumerate(fields):
            self.results.append(field)
            self.labels.append(f"{label}.{number}" if len(fields) > 1 else label)
            self.exact.append(tolerance)

    def function(self) -> Function:
        return Function(self.params, Tuple(self.results))

    def generate(self, target: str, opt_level: int = 0) -> GeneratedCode:
        """The code of the library, which is not compiled."""
        return generate(self.function(), target, opt_level)

    def compare(
        self, target: str, *, threads: Sequence[int] = (1,), opt_level: int = 3, optimisation: str | None = None
    ) -> None:
        """Fail with every result that differs from the interpreter's; `optimisation` is a flag of the C compiler."""
        if not self.results:
            return
        expected = self.expected()
        problems: list[str] = []
        for count, found in run(self.function(), self.arguments, target, threads, opt_level, optimisation):
            problems += [f"{text} ({target}, {count} threads)" for text in self.problems(expected, found)]
        assert not problems, "\n".join(problems)

    def expected(self) -> list[Array]:
        """What the interpreter computes."""
        with np.errstate(all="ignore"):
            return list(interpret(IRModule({"main": self.function()}), *self.arguments))

    def problems(self, expected: Sequence[Array], found: Sequence[Array]) -> list[str]:
        """What is wrong with results, one for each that is."""
        compared = zip(self.labels, expected, found, self.exact)
        return [
            f"{label}: {problem}"
            for label, want, have, tolerance in compared
            if (problem := difference(want, have, tolerance))
        ]


@functools.cache
def compiler() -> Toolchain:
    """The compiler of all tests, tried once."""
    return probe(None)


def generate(function: Function, target: str, opt_level: int = 3) -> GeneratedCode:
    """The host's code of a function, after the passes."""
    with PassContext(opt_level=opt_level):
        main = default_pipeline()(IRModule({"main": function}))["main"]
    count = len(main.body.checked_type.fields) if isinstance(main.body.checked_type, TupleType) else 1
    chosen = Target.parse(target)
    inputs = tuple(f"x{number}" for number in range(len(main.params)))
    outputs = tuple(f"y{number}" for number in range(count))
    options = CodegenOptions(
        "model", "model", chosen, (*compiler().kernel_cflags, *chosen.cflags), inputs, outputs, opt_level=opt_level
    )
    return host_code(main, options)


def run(
    function: Function,
    arguments: Sequence[Array],
    target: str,
    threads: Sequence[int],
    opt_level: int,
    optimisation: str | None = None,
) -> Iterator[tuple[int, list[Array]]]:
    """(number of threads, results) of the compiled function, each after a run on NaNs."""
    with tempfile.TemporaryDirectory(prefix="relaybuild-test-") as folder:
        path = Path(folder) / "model.so"
        build(function, target, opt_level, path, optimisation)
        for count in threads:
            with dirty_memory():
                model = load_module(path, threads=count)
                model.run_list([poisoned(argument) for argument in arguments])
                found = model.run_list(arguments)
            yield count, found


@contextmanager
def dirty_memory() -> Iterator[None]:
    """Memory that is allocated meanwhile holds huge numbers, where the C library can be told to."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda _option, _value: 0)
    # inverted, its bytes are those of 3.4e38 in single precision; what is large must not come from the kernel as zeros
    mallopt(_M_PERTURB, 0x80)
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    try:
        yield
    finally:
        mallopt(_M_PERTURB, 0)


def build(function: Function, target: str, opt_level: int, path: Path, optimisation: str | None = None) -> None:
    """Compile a function to a library that uses all its threads."""
    with threads_wanted_always():
        code = generate(function, target, opt_level)
    build_together(code, target, path, optimisation)


def build_together(code: GeneratedCode, target: str, path: Path, optimisation: str | None = None) -> None:
    """As the driver builds a library, but with all kernels in one unit and less optimised, which compile faster.

    By default, only kernels of the best level that this machine runs are optimised across loops.
    """
    optimisation = optimisation or ("-O1" if target == runnable_targets()[0] else "-Og")
    kernels = [unit.text for unit in code.units if unit.hot]
    flags = (*compiler().kernel_cflags, optimisation, *Target.parse(target).cflags)
    units = [Unit("kernels", "\n".join(kernels), flags)]
    units += [Unit(unit.name, unit.text) for unit in code.units if not unit.hot]
    include_dirs = (include_dir(), kernel_include_dir())
    spec = LibrarySpec("model", tuple(units), include_dirs, evaluate_weights(code), link_files=runtime_objects())
    build_library(spec, compiler(), path.parent / "build", path, jobs=2)


@functools.cache
def runtime_objects() -> tuple[str, ...]:
    """The runtime that is a part of every library, compiled as the driver does, once; gone with this process."""
    folder = tempfile.mkdtemp(prefix="relaybuild-test-runtime-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    sources = model_sources()
    command = [*compiler().compiler_command, *compiler().cflags, f"-I{include_dir()}", "-c", *map(str, sources)]
    subprocess.run(command, cwd=folder, check=True)
    return tuple(f"{folder}/{source.stem}.o" for source in sources)


def poisoned(argument: Array) -> Array:
    """NaNs in the shape of a floating-point argument; any other as it is."""
    return np.full_like(argument, np.nan) if argument.dtype.kind == "f" else argument


def difference(want: Array, have: Array, tolerance: float) -> str:
    """What is wrong with `have`, or the empty string: special values and integers must be equal."""
    if want.shape != have.shape or want.dtype != have.dtype:
        return f"{have.dtype}{have.shape}, expected {want.dtype}{want.shape}"
    if want.size == 0:
        return ""
    if want.dtype.kind != "f":
        wrong = want != have
        return f"{wrong.sum()} of {want.size} differ, e.g. {have[wrong][0]} for {want[wrong][0]}" if wrong.any() else ""
    limit = {"float16": 1e-3}.get(want.dtype.name, tolerance)
    wide, got = want.astype("float64"), have.astype("float64")
    finite = np.isfinite(wide)
    special = ~finite & ~((wide == got) | (np.isnan(wide) & np.isnan(got)))
    if special.any() or (np.isnan(got) & finite).any():
        wrong = special | (np.isnan(got) & finite)
        return f"special values: {got[wrong][:3]} for {wide[wrong][:3]}, {wrong.sum()} of {want.size}"
    size = np.abs(wide[finite]).max() if finite.any() else 0.0
    error = np.abs(np.where(finite, wide, 0) - np.where(finite, got, 0))
    if error.max() <= limit * size + 1e-6:
        return ""
    where = np.unravel_index(error.argmax(), error.shape)
    return f"off by {error.max():.3g} at {tuple(map(int, where))}: {got[where]} for {wide[where]}, largest {size:.3g}"


def weight(value: Array) -> Constant:
    """A weight."""
    return const(value)


def call(name: str, *args: Expr, **attrs: object) -> Expr:
    """A call of an operator."""
    return call_op(name, list(args), **attrs)
