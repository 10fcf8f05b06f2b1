"""Tells whether a file was changed after a moment, by the clock of the file systems; knows no content."""

from __future__ import annotations

import os
from pathlib import Path

from relaybuild.build.files import temporary_beside
from relaybuild.dataclass import dataclass

_SECOND = 1_000_000_000
_COARSEST = 2 * _SECOND
"""FAT's clock, the coarsest, has ticks of two seconds."""


@dataclass(frozen=True)
class Moment:
    """A moment, in nanoseconds, as the clock that gives files their times had it."""

    ns: int

    @classmethod
    def now(cls, folder: Path) -> Moment:
        """This moment, taken from a file that is made in `folder` and removed again. Raises OSError.

        `time.time_ns` would not do: files get the time of the last tick, which is some milliseconds behind.
        """
        path = temporary_beside(folder / "moment")
        path.touch(exist_ok=False)
        try:
            return cls(os.stat(path).st_mtime_ns)
        finally:
            path.unlink()

    def is_before_change_of(self, path: str | os.PathLike[str]) -> bool:
        """Whether a file may have been changed, replaced or made at this moment or later, or is not there."""
        try:
            found = os.stat(path)
        except OSError:
            return True
        return any(_end_of_tick(ns) >= self.ns for ns in (found.st_mtime_ns, found.st_ctime_ns))


def _end_of_tick(ns: int) -> int:
    """The latest moment that a file system may have meant: one that only knows whole seconds shows none of less."""
    return ns if ns % _SECOND else ns + _COARSEST - 1
