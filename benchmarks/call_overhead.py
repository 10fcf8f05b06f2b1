"""Measures what a call from Python costs beyond the C call of the same library.

    python benchmarks/call_overhead.py [--seconds 5] [--json FILE] [MODEL]...

A small C program, loaded into the process, opens the library by dlopen and calls it through its C interface: one
thread, the same tensors each time. Python opens the same library and calls it in three ways: `m(x)`, which makes new
arrays for the results; `m.run({name: x})`, which makes a dict of them; `m.run_into([x], [y])`, which writes into
arrays that are there. The four take turns in blocks of about a millisecond. A round's overhead is Python's time of a
call less C's in that round; the table has the median of the rounds and the difference of the least times. Besides the
models (default: mlp_mnist) there is always one that adds 1 to one number: all it costs is the call.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from benchlib.models import find_models
from benchlib.report import progress, run_benchmark, save, table

from relaybuild import driver
from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.toolchain import probe
from relaybuild.errors import InternalError
from relaybuild.ir.expr import Function, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.runtime import load_module
from relaybuild.runtime.sources import include_dir

BLOCK_SECONDS = 1e-3
MOST_ROUNDS = 2000
WARM_UP_CALLS = 200

Timed = Callable[[int], float]
"""Seconds of one of so many calls, on average."""


def build_caller(folder: Path) -> ctypes.CDLL:
    """The C program that calls libraries."""
    text = (Path(__file__).parent / "benchlib" / "caller.c").read_text(encoding="utf-8")
    spec = LibrarySpec("caller", (Unit("caller", text),), (include_dir(),), link_libs=("dl",))
    build_library(spec, probe(), folder / "caller", folder / "caller.so")
    code = ctypes.CDLL(str(folder / "caller.so"))
    code.caller_open.restype = ctypes.c_void_p
    code.caller_time.restype = ctypes.c_double
    return code


def from_c(code: ctypes.CDLL, library: Path) -> Timed:
    """Calls through the C interface."""
    caller = ctypes.c_void_p(code.caller_open(str(library).encode()))
    if not caller:
        raise InternalError(f"the C program cannot open '{library.name}'")

    def timed(calls: int) -> float:
        seconds = float(code.caller_time(caller, calls))
        if seconds < 0:
            raise InternalError(f"the C call of '{library.name}' fails")
        return seconds

    return timed


def from_python(library: Path) -> dict[str, Timed]:
    """Calls from Python, by how they are written."""
    module = load_module(library, threads=1)
    inputs = [np.zeros(spec.shape, spec.dtype) for spec in module.signature.inputs]
    outputs = list(module.run_list(inputs))
    named = dict(zip(module.input_names, inputs))

    def call(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            module(*inputs)
        return (time.perf_counter() - begin) / calls

    def run(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            module.run(named)
        return (time.perf_counter() - begin) / calls

    def run_into(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            module.run_into(inputs, outputs)
        return (time.perf_counter() - begin) / calls

    return {"m(x)": call, "m.run({name: x})": run, "m.run_into([x], [y])": run_into}


def measure(contenders: Mapping[str, Timed], seconds: float) -> dict[str, list[float]]:
    """Seconds of a call by contender and round, within about `seconds` in all."""
    calls = {}
    for name, timed in contenders.items():
        calls[name] = max(1, round(BLOCK_SECONDS / max(timed(WARM_UP_CALLS), 1e-9)))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    names = list(contenders)
    for number in range(MOST_ROUNDS):
        if number >= 3 and time.perf_counter() > end:
            break
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            times[name].append(contenders[name](calls[name]))
    return times


def overhead_rows(model: str, times: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """A row for C, and one for each way to call from Python with what it costs beyond C, in microseconds."""
    base = times["C"]
    rows: list[tuple[str, ...]] = []
    for name, found in times.items():
        beyond = statistics.median(mine - theirs for mine, theirs in zip(found, base))
        extra = (f"{beyond * 1e6:.2f}", f"{(min(found) - min(base)) * 1e6:.2f}") if found is not base else ("", "")
        rows.append((model, name, f"{statistics.median(found) * 1e6:.2f}", f"{min(found) * 1e6:.2f}", *extra))
    return rows


def one_element() -> IRModule:
    """A program that adds 1 to one number."""
    x = var("x", (1,))
    return IRModule({"main": Function([x], call_op("add", [x, const(1.0)], None))})


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure what a call from Python costs beyond a call from C.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="path or name (default: mlp_mnist)")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time for each model (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    rows: list[tuple[str, ...]] = []
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
        code = build_caller(Path(folder))
        artifacts = {"one number": driver.compile(one_element(), name="one")}
        for model in find_models(options.models or ["mlp_mnist"], options.folder):
            progress(f"{model.name}: compiling")
            artifacts[model.name] = driver.compile(model.path, shapes=model.shapes)
        for name, artifact in artifacts.items():
            progress(f"{name}: measuring")
            contenders = {"C": from_c(code, artifact.path), **from_python(artifact.path)}
            times = measure(contenders, options.seconds)
            rows += overhead_rows(name, times)
            found[name] = times
    print(table(("model", "call", "median µs", "least µs", "beyond C, median µs", "least µs"), rows))
    save(options.json, {"seconds": found})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
