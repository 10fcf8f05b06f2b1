"""Instruments for every day: the time passes take, and the program after some of them; knows no pass by name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from relaybuild.ir.module import IRModule
from relaybuild.ir.printer import print_module
from relaybuild.passes.infra import PassInfo, PassInstrument


@dataclass
class PassTiming:
    """How long a pass ran, in seconds, with what ran inside it."""

    name: str
    seconds: float = 0.0
    changed: bool = False
    children: list[PassTiming] = field(default_factory=list)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, PassTiming]]:
        """(depth, timing) of this pass and those within, in order."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


class PassTimingInstrument(PassInstrument):
    """Times passes; what it measured stays when the context is left."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.timings: list[PassTiming] = []
        self._open: list[tuple[PassTiming, IRModule, float]] = []

    def enter_pass_ctx(self) -> None:
        self._open = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        siblings = self._open[-1][0].children if self._open else self.timings
        siblings.append(PassTiming(info.name))
        self._open.append((siblings[-1], mod, self.clock()))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        timing, before, started = self._open.pop()
        timing.seconds = self.clock() - started
        timing.changed = mod is not before

    def pass_failed(self, mod: IRModule, info: PassInfo) -> None:
        timing, _, started = self._open.pop()
        timing.seconds = self.clock() - started

    def render(self) -> str:
        """One line per pass: milliseconds, name indented by depth, and whether it changed the module."""
        lines = [entry for timing in self.timings for entry in timing.walk()]
        return "".join(
            f"{timing.seconds * 1e3:10.2f} ms  {'  ' * depth}{timing.name}{'' if timing.changed else ' (unchanged)'}\n"
            for depth, timing in lines
        )


class PrintAfter(PassInstrument):
    """Writes the module after the named passes, or after all where no name is given."""

    def __init__(self, names: Sequence[str] = (), stream: TextIO | None = None) -> None:
        self.names = tuple(names)
        self.stream = stream

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not self.names or info.name in self.names:
            text = print_module(mod, weights="digest")
            (self.stream or sys.stderr).write(f"// after {info.name}\n{text}")
