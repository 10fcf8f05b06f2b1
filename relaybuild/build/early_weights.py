"""Writes weights while compilers run, to where they are expected to stand in a library; knows no linker."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaybuild.build.elf_room import write_ahead
from relaybuild.build.files import writing
from relaybuild.build.weights import WeightBlob

if TYPE_CHECKING:
    from concurrent.futures import Future


class EarlyWeights:
    """Weights that are being written to a file of their own, as `elf_room.fill_room` can take it over."""

    def __init__(self, path: Path, place: int, weights: WeightBlob) -> None:
        """Begin, for a library in which the weights stand at `place`; raises UserError where no file can be made."""
        # most compilations begin no weights early, and the import takes as long as that of ten modules
        from concurrent.futures import ThreadPoolExecutor

        self._path = path
        with writing(path):
            self._file = _Stoppable(io.FileIO(path, "w"))
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="early-weights")
        self._written: Future[None] = self._pool.submit(self._write, place, weights)

    def file(self) -> Path:
        """The file, as soon as it is complete; raises UserError where it cannot be written, and what `write` of the
        weights raises."""
        with writing(self._path):
            self._written.result()
        return self._path

    def stop(self) -> None:
        """Write no more, and leave no file."""
        self._file.is_stopped = True
        self._pool.shutdown(cancel_futures=True)
        self._path.unlink(missing_ok=True)

    def _write(self, place: int, weights: WeightBlob) -> None:
        with self._file as file:
            write_ahead(file, place, weights.size, weights.write)


class _Stopped(Exception):
    """Nobody needs the weights any more."""


class _Stoppable(io.BufferedWriter):
    """A file that takes nothing once it is stopped."""

    is_stopped = False

    def write(self, data: Any, /) -> int:
        if self.is_stopped:
            raise _Stopped
        return super().write(data)


@contextlib.contextmanager
def early_weights(path: Path, place: int | None, weights: WeightBlob | None) -> Iterator[EarlyWeights | None]:
    """Write the weights of a library while the block runs, if it is known at which place they are expected."""
    if place is None or weights is None:
        yield None
        return
    early = EarlyWeights(path, place, weights)
    try:
        yield early
    finally:
        early.stop()
