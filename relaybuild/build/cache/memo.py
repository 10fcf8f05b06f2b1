"""Digests of files that need not be read again, and whether inputs are what they were; knows no action.

A file is known by device, inode, size and both of its times, never by its path. A file that was written within the last
seconds may be written again within one tick of the clock, so nothing is remembered of it; nor of a small one, which is
read as fast.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from relaybuild.digest import Digest, Hasher, digest_file

RACY_SECONDS = 2.0

SMALL_BYTES = 16 << 10
"""A smaller file is read sooner than a record that says its digest."""

LONG_BYTES = 64_000_000
"""A file so large takes as long to read as a large package to import."""

_LARGE_CHUNK = 8 << 20
"""Who reads a file while others work waits for the interpreter after each chunk, for milliseconds."""


class FileState(NamedTuple):
    """What tells that a file was changed, as far as the file system says."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path | str) -> FileState:
        """The state now; raises OSError, also for what is no file and may have no end."""
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a file", str(path))
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def is_racy(self, now: float) -> bool:
        """Whether the file may be changed after `now` without a change of its state."""
        return max(self.modified_ns, self.changed_ns) >= (now - RACY_SECONDS) * 1e9

    def name(self) -> str:
        """What a digest is remembered under."""
        return Hasher("file-state.2").field("state", " ".join(map(str, self))).digest().hex


class Memory(Protocol):
    """Where digests are remembered, by the name of a state; never raises."""

    def recall(self, name: str) -> Digest | None:
        """The digest remembered; None if there is none, or none that can be believed."""
        ...

    def remember(self, name: str, digest: Digest) -> None:
        """Remember a digest, if possible."""
        ...


class Inputs:
    """The files that a run reads: each is digested once, and can be asked whether it still is what was digested."""

    def __init__(
        self,
        memory: Memory | None,
        clock: Callable[[], float] = time.time,
        meanwhile: Iterable[object] = (),
    ) -> None:
        """Without a memory every file is read. `meanwhile` is gone through while the first long one is, and left when
        that has been."""
        self._memory = memory
        self._clock = clock
        self._meanwhile = meanwhile
        self._known: dict[str, tuple[FileState, Digest, bool]] = {}

    def digest(self, path: Path | str) -> Digest:
        """The SHA-256 of a file, as it was when this was first asked; raises OSError."""
        name = os.fspath(path)
        if name not in self._known:
            self._known[name] = self._look(name)
        return self._known[name][1]

    def __iter__(self) -> Iterator[str]:
        """The files that were digested."""
        return iter(self._known)

    def digest_now(self, path: Path | str) -> Digest:
        """The SHA-256 of a file that is no input, such as an output of an earlier run, as it is now; raises OSError."""
        return self._look(os.fspath(path))[1]

    def changed(self, among: Iterable[str] | None = None) -> list[Path]:
        """The files that are not any more what was digested, of all or `among` some: no result that was made of them
        may be stored."""
        return [Path(path) for path in (self._known if among is None else among) if not self._is_same(path)]

    def _look(self, path: str) -> tuple[FileState, Digest, bool]:
        now = self._clock()
        state = FileState.of(path)
        is_racy = state.is_racy(now)
        memory = None if is_racy or state.size < SMALL_BYTES else self._memory
        name = state.name() if memory is not None else ""
        if memory is not None and (known := memory.recall(name)) is not None and known.size == state.size:
            return state, known, is_racy
        digest = self._read(path, state.size)
        if memory is not None and digest.size == state.size and FileState.of(path) == state:
            memory.remember(name, digest)
        return state, digest, is_racy

    def _read(self, path: str, size: int) -> Digest:
        if size < LONG_BYTES or not self._meanwhile:
            return digest_file(path)
        work, self._meanwhile = self._meanwhile, ()
        return _read_beside(path, work)

    def _is_same(self, path: str) -> bool:
        state, digest, is_racy = self._known[path]
        try:
            if FileState.of(path) != state or digest.size != state.size:
                return False
            return not is_racy or digest_file(path) == digest
        except OSError:
            return False


def _read_beside(path: str, work: Iterable[object]) -> Digest:
    """The digest of a file, read while pieces of work are done; raises OSError, and what the work raises."""
    import threading

    found: list[Digest] = []

    def read() -> None:
        with contextlib.suppress(OSError):
            found.append(digest_file(path, _LARGE_CHUNK))

    thread = threading.Thread(target=read, name="relaybuild-digest")
    thread.start()
    try:
        for _ in work:
            if not thread.is_alive():
                break
    finally:
        thread.join()
    # what went wrong goes wrong again, and is raised here
    return found[0] if found else digest_file(path)
