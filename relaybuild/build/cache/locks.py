"""Locks between processes that end with the process: one at a time for a key, and leases; knows no cache.

A lock is `flock` on a file, never the file itself, so that a process that is killed holds nothing. What a child that is
forked without exec inherits, it holds too.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from relaybuild.build.cache.folder import CacheFolder, host_name, remove

try:
    import fcntl
except ImportError:  # no such locks on this system: every caller goes ahead
    fcntl = None  # type: ignore[assignment]

_FIRST_WAIT, _LONGEST_WAIT = 0.001, 0.05
_OTHER_HOSTS_HOURS = 24


@contextlib.contextmanager
def exclusive(folder: CacheFolder, name: str, timeout: float) -> Iterator[bool]:
    """Hold the lock of a name while the block runs; False where it could not be had within `timeout` seconds, or the
    folder has no locks. The block runs in any case."""
    file = _acquire(folder, name, timeout) if folder.is_writable and fcntl is not None else None
    try:
        yield file is not None
    finally:
        if file is not None:
            # Removed while it is held: who has it open already sees that its name is gone, and opens anew.
            remove(_path(folder, name))
            os.close(file)


def _path(folder: CacheFolder, name: str) -> Path:
    return folder.locks / name


def _acquire(folder: CacheFolder, name: str, timeout: float) -> int | None:
    end = time.monotonic() + timeout
    wait = _FIRST_WAIT
    try:
        while True:
            file = _locked(folder, _path(folder, name))
            if file is not None or time.monotonic() >= end:
                return file
            time.sleep(wait)
            wait = min(wait * 2, _LONGEST_WAIT)
    except OSError:
        # A file system without locks, or a full one.
        return None


def _locked(folder: CacheFolder, path: Path) -> int | None:
    """A descriptor that holds the lock of a path; None if another process has it. Raises OSError."""
    file = _open(folder, path)
    try:
        if _try_lock(file) and _is_named(file, path):
            return file
    except BaseException:
        os.close(file)
        raise
    os.close(file)
    return None


def _open(folder: CacheFolder, path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, folder.file_mode)
    except FileNotFoundError:
        folder.make(path.parent)
        return os.open(path, flags, folder.file_mode)


def _try_lock(file: int) -> bool:
    """Whether the lock was free and is ours now; raises OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _is_named(file: int, path: Path) -> bool:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    mine = os.fstat(file)
    return (found.st_dev, found.st_ino) == (mine.st_dev, mine.st_ino)


class Lease:
    """Says, as long as this process lives, which entries it needs. Made where the first one is; costs a write each."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder
        self._path = folder.leases / folder.temporary().name
        self._file: int | None = None
        self._lock = threading.Lock()
        self._is_off = not folder.is_writable or fcntl is None
        self._owner = os.getpid()

    def hold(self, name: str) -> None:
        """Say that an entry, by its name in hexadecimal, is needed."""
        if self._is_off or self._owner != os.getpid():
            return
        try:
            with self._lock:
                if self._file is None:
                    self._file = self._make()
                os.write(self._file, f"{name}\n".encode())
        except OSError:
            self.close()
            self._is_off = True

    def close(self) -> None:
        """Need nothing any longer."""
        if self._file is not None and self._owner == os.getpid():
            remove(self._path)
            os.close(self._file)
        self._file = None

    def end(self) -> None:
        """Need nothing any longer, nor later: an artifact that was found outlives its run."""
        self.close()
        self._is_off = True

    def _make(self) -> int:
        while True:
            file = _open(self._folder, self._path)
            fcntl.flock(file, fcntl.LOCK_SH)
            # Before it was locked, it looked like that of a dead process.
            if _is_named(file, self._path):
                return file
            os.close(file)


def held(folder: CacheFolder) -> frozenset[str]:
    """Names of all entries that living processes need."""
    names: set[str] = set()
    bury(folder)
    for path in _files(folder.leases):
        with contextlib.suppress(OSError):
            names.update(path.read_text(encoding="ascii", errors="replace").split())
    return frozenset(names)


def bury(folder: CacheFolder) -> int:
    """Remove the leases of dead processes; how many there were. Those processes have not ended their runs."""
    count = 0
    for path in _files(folder.leases):
        with contextlib.suppress(OSError):
            if _is_dead(path):
                count += remove(path)
    return count


def _is_dead(path: Path) -> bool:
    """Whether nobody holds a lease: no process of this machine, or none of another for a day."""
    if not path.name.startswith(f"{host_name()}-"):
        return path.stat().st_mtime < time.time() - _OTHER_HOSTS_HOURS * 3600
    if fcntl is None:
        return False
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return _try_lock(file)
    finally:
        os.close(file)


def _files(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder)]
    except OSError:
        return []
