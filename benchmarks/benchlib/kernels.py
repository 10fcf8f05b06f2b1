"""Turns one operator into its kernels, and those of many into one library that times each alone; knows no shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relaybuild.build.library import LibrarySpec, Unit, build_library
from relaybuild.build.toolchain import Toolchain
from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.codegen import machine_of
from relaybuild.contrib.host.legalize import legalize
from relaybuild.contrib.host.lower import Step, lower_function
from relaybuild.ir.expr import Function
from relaybuild.lower.sources import include_dir
from relaybuild.target import Target

SLACK_BYTES = 4096
"""Kept free behind each buffer: kernels fetch ahead, and read the last vector of a row whole."""
MOST_BLOCKS = 400


@dataclass(frozen=True)
class TimedKernel:
    """One kernel's C, and the sizes in bytes of the buffers that it takes.

    Of an operator that the host makes several kernels of, `rest` has the others, in order: each reads first what the
    one before has written.
    """

    symbol: str
    text: str
    title: str
    reads: tuple[int, ...]
    write: int
    scratch: int
    rest: tuple[TimedKernel, ...] = ()

    @property
    def stages(self) -> tuple[TimedKernel, ...]:
        """All kernels, in order."""
        return (self, *self.rest)

    @property
    def all_reads(self) -> tuple[int, ...]:
        """The sizes of what is read, but for what one stage leaves to the next."""
        return (*self.reads, *(size for stage in self.rest for size in stage.reads[1:]))


def kernel_of(function: Function, op: str, symbol: str, target: Target, *, precise: bool) -> TimedKernel:
    """The kernels of the first call of `op` in `function`, as the host would compile it; layout changes around it are
    left out."""
    lowered = lower_function(legalize(function), Setting(machine_of(target), precise))
    first, *others = (step for step in lowered.steps if op in step.kernel.title.split(", "))
    chain = [first]
    for step in others:
        if step.reads and step.reads[0].storage is chain[-1].write.storage:
            chain.append(step)
    rest = tuple(_timed(step, f"{symbol}_{number}") for number, step in enumerate(chain[1:], start=1))
    return replace(_timed(first, symbol), rest=rest)


def _timed(step: Step, symbol: str) -> TimedKernel:
    reads = tuple(view.storage.num_bytes for view in step.reads)
    return TimedKernel(
        symbol,
        step.kernel.named(symbol),
        step.kernel.title,
        reads,
        step.write.storage.num_bytes,
        step.kernel.scratch_bytes,
    )


def calls_unit(kernels: Sequence[TimedKernel]) -> str:
    """The C text of a table `bench_calls` with a function for each operator, whose parameters are buffers.

    What one stage leaves to the next lies behind what the last one writes.
    """
    lines = ["#include <stdint.h>", ""]
    for kernel in kernels:
        lines += [_declaration(stage) for stage in kernel.stages]
        lines += [
            f"static void call_{kernel.symbol}(const void *const *reads, void *write, void *scratch) {{",
            "    (void)reads;",
            *(f"    {call};" for call in _stage_calls(kernel)),
            "}",
        ]
    lines += [
        "typedef void (*BenchCall)(const void *const *reads, void *write, void *scratch);",
        "extern const BenchCall bench_calls[];",
        "const BenchCall bench_calls[] = {",
        *(f"    call_{kernel.symbol}," for kernel in kernels),
        "};",
        "",
    ]
    return "\n".join(lines)


def _declaration(kernel: TimedKernel) -> str:
    parameters = ", ".join(["const void *"] * len(kernel.reads) + ["void *", "void *", "int32_t", "int32_t"])
    return f"void {kernel.symbol}({parameters});"


def _stage_calls(kernel: TimedKernel) -> list[str]:
    calls: list[str] = []
    number, behind, given = 0, _room(kernel.stages[-1].write), ""
    for stage in kernel.stages:
        own = len(stage.reads) - bool(given)
        reads = [given] * bool(given) + [f"reads[{number + k}]" for k in range(own)]
        number += own
        given = f"(char *)write + {behind}"
        write = "write" if stage is kernel.stages[-1] else given
        calls.append(f"{stage.symbol}({', '.join([*reads, write, 'scratch', '0', '1'])})")
        behind += _room(stage.write)
    return calls


def build_timer(
    kernels: Sequence[TimedKernel], target: Target, toolchain: Toolchain, folder: Path, jobs: int | None = None
) -> Timer:
    """Compile the kernels with the flags of a model's and load them beside the code that times them.

    What is in `folder` from an earlier build and has not changed is not compiled again.
    """
    flags = (*toolchain.kernel_cflags, *target.cflags)
    timing = (Path(__file__).parent / "timing.c").read_text(encoding="utf-8")
    units = [Unit(stage.symbol, stage.text, flags) for kernel in kernels for stage in kernel.stages]
    units.append(Unit("timing", timing, (*flags, f"-DRB_LANES={target.vector_lanes}")))
    units.append(Unit("calls", calls_unit(kernels)))
    spec = LibrarySpec("timer", tuple(units), (include_dir(),))
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "timer.so"
    build_library(spec, toolchain, folder / "build", library, jobs=jobs, keep=True)
    return Timer(library, kernels)


class Timer:
    """The library of kernels, loaded, with memory for the largest of them.

    All kernels read from one memory of random numbers and write into another, so that none meets what a kernel before
    has left, such as numbers too small for the processor's fast path.
    """

    def __init__(self, library: Path, kernels: Sequence[TimedKernel]) -> None:
        self._code = ctypes.CDLL(str(library))
        self._code.bench_fma_peak.restype = ctypes.c_double
        self._code.bench_bandwidth.restype = ctypes.c_double
        self._kernels = kernels
        most = max((sum(map(_room, kernel.all_reads)) for kernel in kernels), default=0)
        written = max((sum(_room(stage.write) for stage in kernel.stages) for kernel in kernels), default=0)
        scratch = max((_room(stage.scratch) for kernel in kernels for stage in kernel.stages), default=0)
        values = np.random.default_rng(0).random(most // 4 + 64, np.float32) * 2 - 1
        self._reads = _aligned(values)
        self._write = _aligned(np.zeros(written // 4 + 64, np.float32))
        self._scratch = _aligned(np.zeros(scratch // 4 + 64, np.float32))

    def fma_peak(self, seconds: float) -> float:
        """Floating-point operations a second of one core, two for a multiply-add."""
        return float(self._code.bench_fma_peak(ctypes.c_double(seconds)))

    def bandwidth(self, kind: int, memory: NDArray[np.float32], num_bytes: int, seconds: float) -> float:
        """Bytes a second: kind 0 reads `num_bytes`, 1 writes them, 2 reads a half and writes the other."""
        pointer = ctypes.c_void_p(_aligned(memory).ctypes.data)
        found = self._code.bench_bandwidth(kind, pointer, ctypes.c_size_t(num_bytes), ctypes.c_double(seconds))
        return float(found)

    def time(self, number: int, seconds: float) -> list[float]:
        """Seconds of a call of operator `number`, warm, block by block."""
        kernel = self._kernels[number]
        pointers, at = [], self._reads.ctypes.data
        for size in kernel.all_reads:
            pointers.append(at)
            at += _room(size)
        reads = (ctypes.c_void_p * max(1, len(pointers)))(*pointers)
        times = (ctypes.c_double * MOST_BLOCKS)()
        count = self._code.bench_time(
            number,
            reads,
            ctypes.c_void_p(self._write.ctypes.data),
            ctypes.c_void_p(self._scratch.ctypes.data),
            ctypes.c_double(seconds),
            MOST_BLOCKS,
            times,
        )
        return list(times[:count])


def _room(num_bytes: int) -> int:
    """What a buffer takes: whole cache lines, an odd number of them so that buffers do not lie at equal places of
    pages."""
    return -(-(num_bytes + SLACK_BYTES) // 128) * 128 + 64


def _aligned(memory: NDArray[np.float32]) -> NDArray[np.float32]:
    """The part of `memory` from the first whole cache line on."""
    return memory[(-memory.ctypes.data % 64) // 4 :]
