"""Instruments for every day: the time passes take, the program after them, and checks of it; knows no pass by name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Generic, TextIO, TypeVar

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError
from relaybuild.ir.module import IRModule
from relaybuild.ir.printer import print_module
from relaybuild.ir.verifier import Level, verify_module
from relaybuild.passes.infra import PassInfo, PassInstrument

_COLOURS = {"-": "\x1b[31m", "+": "\x1b[32m", "@": "\x1b[36m"}
_RESET = "\x1b[0m"


@dataclass
class PassTiming:
    """How long a pass ran, in seconds, with what ran inside it."""

    name: str
    seconds: float = 0.0
    changed: bool = False
    children: list[PassTiming] = field(default_factory=list)

    @property
    def self_seconds(self) -> float:
        """The time spent in the pass itself, without those it ran."""
        return self.seconds - sum(child.seconds for child in self.children)

    def walk(self, depth: int = 0) -> Iterator[tuple[int, PassTiming]]:
        """(depth, timing) of this pass and those within, in order."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)

    def to_json(self) -> dict[str, Any]:
        """Keys name, seconds, self_seconds, changed, and children, a list of the same."""
        return {
            "name": self.name,
            "seconds": self.seconds,
            "self_seconds": self.self_seconds,
            "changed": self.changed,
            "children": [child.to_json() for child in self.children],
        }


T = TypeVar("T")


class _OpenPasses(PassInstrument, Generic[T]):
    """Knows what was noted of each pass that runs; a context entered by a pass is part of that pass."""

    def __init__(self) -> None:
        self._open: list[T] = []
        self._contexts = 0

    def enter_pass_ctx(self) -> None:
        if not self._contexts:
            self._open = []
        self._contexts += 1

    def exit_pass_ctx(self) -> None:
        self._contexts -= 1


class PassTimingInstrument(_OpenPasses[tuple[PassTiming, IRModule, float]]):
    """Times passes; what it measured stays when the context is left, until `clear`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        super().__init__()
        self.clock = clock
        self.timings: list[PassTiming] = []

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

    def clear(self) -> None:
        """Forget what was measured."""
        self.timings = []

    def to_json(self) -> list[dict[str, Any]]:
        """The outermost passes in order, as PassTiming.to_json gives them; times are seconds."""
        return [timing.to_json() for timing in self.timings]

    def render(self) -> str:
        """A line per pass: milliseconds, share of the whole, name by depth, and whether it changed the module."""
        whole = sum(timing.seconds for timing in self.timings)
        return "".join(
            f"{timing.seconds * 1e3:10.2f} ms {_percent(timing.seconds, whole):>4}  {'  ' * depth}{timing.name}"
            f"{'' if timing.changed else ' (unchanged)'}\n"
            for top in self.timings
            for depth, timing in top.walk()
        )


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "-"


class PrintAfter(PassInstrument):
    """Writes the module after the named passes, or after all where no name is given."""

    def __init__(self, names: Sequence[str] = (), stream: TextIO | None = None) -> None:
        self.names = tuple(names)
        self.stream = stream

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if not self.names or info.name in self.names:
            (self.stream or sys.stderr).write(f"// after {info.name}\n{_text(mod)}")


class PrintChanged(_OpenPasses[tuple[IRModule, bool]]):
    """Writes what each pass changed in the module's text, as a unified diff; passes that run others are left out.

    `colour` None means: where the stream is a terminal.
    """

    def __init__(self, stream: TextIO | None = None, colour: bool | None = None, context: int = 3) -> None:
        super().__init__()
        self.stream = stream
        self.colour = colour
        self.context = context

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if self._open:
            self._open[-1] = (self._open[-1][0], True)
        self._open.append((mod, False))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        before, runs_others = self._open.pop()
        if mod is before or runs_others:
            return
        import difflib

        old, new = (_text(module).splitlines() for module in (before, mod))
        names = (f"before {info.name}", f"after {info.name}")
        lines = difflib.unified_diff(old, new, *names, n=self.context, lineterm="")
        stream = self.stream or sys.stderr
        coloured = stream.isatty() if self.colour is None else self.colour
        stream.write("".join(f"{_coloured(line) if coloured else line}\n" for line in lines))

    def pass_failed(self, mod: IRModule, info: PassInfo) -> None:
        self._open.pop()


def _coloured(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    return f"{colour}{line}{_RESET}" if colour else line


class VerifyEach(PassInstrument):
    """Checks that the module is well-formed before the first pass and after each, so that the culprit is named."""

    def __init__(self, level: Level = "relay") -> None:
        self.level = level
        self._good: IRModule | None = None

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._verify(mod, f"before {info.name}")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._verify(mod, f"after {info.name}")

    def _verify(self, mod: IRModule, when: str) -> None:
        if mod is self._good:
            return
        try:
            verify_module(mod, self.level)
        except InternalError as error:
            error.with_note(f"found {when}")
            raise
        self._good = mod


class ImmutabilityCheck(_OpenPasses[tuple[IRModule, str]]):
    """Checks that no pass changes the module it is given, by the module's text before and after. Slow: for tests."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((mod, _text(mod)))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        before, text = self._open.pop()
        if _text(before) != text:
            raise InternalError(f"pass '{info.name}' changed the module it was given; a pass returns a new one")

    def pass_failed(self, mod: IRModule, info: PassInfo) -> None:
        self._open.pop()


def _text(mod: IRModule) -> str:
    return print_module(mod, weights="digest")
