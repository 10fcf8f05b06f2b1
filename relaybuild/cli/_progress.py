"""Shows the stages of a build while it runs: live on a terminal, else a line each; knows no stage by name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.progress import TaskID

    from relaybuild.events import Event

Report = Callable[["Event"], None]


@contextmanager
def progress(stream: TextIO | None = None) -> Iterator[Report]:
    """A function that takes the events of one build and shows them on `stream` (default: stderr)."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        yield _Lines(stream).report
        return
    with _live(stream) as report:
        yield report


@contextmanager
def no_progress() -> Iterator[Report]:
    """A function that takes the events of one build and shows none."""
    yield lambda _event: None


class _Lines:
    """One line per finished stage, for logs."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._totals: dict[str, int] = {}

    def report(self, event: Event) -> None:
        self._totals[event.stage] = max(event.total, self._totals.get(event.stage, 0))
        if event.seconds is not None:
            count = self._totals.pop(event.stage)
            counted = f"{count} in " if count else ""
            click.echo(f"{event.stage}: {counted}{event.seconds:.2f} s", file=self._stream)


@contextmanager
def _live(stream: TextIO) -> Iterator[Report]:
    """A line per stage that changes in place, with a bar where the stage counts what it does."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, Task, TextColumn
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    class CountedBar(BarColumn):
        def render(self, task: Task) -> ProgressBar | Text:  # type: ignore[override]
            return super().render(task) if task.total is not None else Text("")

    columns = (
        TextColumn("{task.description:<9}", markup=False),
        TextColumn("{task.fields[count]:>9}", markup=False),
        TextColumn("{task.fields[clock]:>8}", markup=False),
        CountedBar(bar_width=32),
    )
    with Progress(*columns, console=Console(file=stream), refresh_per_second=10) as display:
        tasks: dict[str, TaskID] = {}
        begins: dict[str, float] = {}

        def report(event: Event) -> None:
            if event.stage not in tasks:
                tasks[event.stage] = display.add_task(event.stage, total=None, count="", clock="")
                begins[event.stage] = time.monotonic()
            task = tasks[event.stage]
            seconds = time.monotonic() - begins[event.stage] if event.seconds is None else event.seconds
            display.update(task, clock=f"{seconds:.2f} s")
            if event.total:
                display.update(task, completed=event.done, total=event.total, count=f"{event.done}/{event.total}")

        yield report
