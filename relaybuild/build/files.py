"""Writes files so that a reader sees all of one or nothing; does not know what is in them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from relaybuild.errors import UserError

_REASONS = {
    errno.ENOSPC: "there is no space left on the device; free some, or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another folder",
    errno.EFBIG: "the file system does not take a file of this size; choose another folder",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.EACCES: "permission is denied; choose another folder, or change its permissions",
    errno.EPERM: "the operation is not permitted; choose another folder, or change its permissions",
    errno.ENOENT: "its folder does not exist; create it, or choose another",
    errno.ENOTDIR: "what should be its folder is a file; choose another",
    errno.EISDIR: "it is a folder; name a file",
    errno.ENAMETOOLONG: "the name is too long; choose a shorter one",
}
_CANNOT_RESERVE = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENODEV)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an OSError inside the block into a UserError: `path` cannot be written, why, and what to do."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
        raise _cannot_write(path, reason) from error


def no_space(path: Path) -> UserError:
    """The error for a tool that found no space while it wrote below `path`."""
    return _cannot_write(path, _REASONS[errno.ENOSPC])


def _cannot_write(path: Path, reason: str) -> UserError:
    return UserError(f"cannot write '{path}': {reason}")


def make_folder(path: Path) -> None:
    """Create a folder and those above it, if they are not there; raises UserError."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_if_changed(path: Path, text: str) -> bool:
    """Make `path` hold `text` (UTF-8), leaving it and its time alone if it does already; whether it was written.

    Raises UserError if it cannot be written.
    """
    data = text.encode()
    with contextlib.suppress(OSError):
        if not _is_special(path) and path.read_bytes() == data:
            return False
    write_atomically(path, lambda file: _write_all(file, data))
    return True


def write_atomically(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Create `path` with what `write` puts into the file it is given, by rename; nothing is left behind on failure.

    A symbolic link stays, and what it leads to is replaced; a device or a pipe is written to. Raises UserError if the
    file cannot be written; other exceptions of `write` pass through.
    """
    if _is_special(path):
        with writing(path), open(path, "wb") as file:
            write(file)
        return
    if os.path.islink(path):
        path = Path(os.path.realpath(path))
    temporary = temporary_beside(path)
    with writing(path):
        try:
            with open(temporary, "wb") as file:
                write(file)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def reserve(file: BinaryIO, size: int) -> None:
    """Take the space that a file of so many bytes needs, where the file system can; raises OSError if it lacks it.

    Space that is taken as a whole costs less than taking it page by page, and what was not taken yet when a file is
    given the name of another is taken then, while everybody waits.
    """
    if size and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno not in _CANNOT_RESERVE:
                raise


def check_writable(path: Path) -> None:
    """Raise UserError if no file can be created at `path`: now, before time is spent on its content."""
    with writing(path):
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if _is_special(path):
            if not os.access(path, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            return
        temporary = temporary_beside(path)
        temporary.touch()
        temporary.unlink()


def check_replaceable(path: Path) -> None:
    """Raise UserError for a device, a pipe or a socket at `path`, which a file would replace."""
    if _is_special(path):
        raise _cannot_write(path, "it is no regular file; name one")


def _is_special(path: Path) -> bool:
    """Whether there is something that is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def publish(source: Path, path: Path, *, keep_source: bool) -> None:
    """Put a finished file at `path` by rename, replacing what is there at once; raises UserError.

    The source is moved, or copied if it is to be kept or lies on another device; a copy that is there already, and its
    time, are left alone.
    """
    with writing(path):
        if _is_copy(source, path):
            if not keep_source:
                source.unlink()
            return
        if not keep_source and _moved(source, path):
            return
        temporary = temporary_beside(path)
        try:
            import shutil

            shutil.copy(source, temporary)
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise


def _is_copy(source: Path, path: Path) -> bool:
    import filecmp

    try:
        return not path.is_symlink() and filecmp.cmp(source, path, shallow=False)
    except OSError:
        return False


def temporary_beside(path: Path) -> Path:
    """A name in the folder of `path` that no other process or thread of this build uses."""
    return path.with_name(f".{path.name[:200]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def _moved(source: Path, path: Path) -> bool:
    try:
        os.replace(source, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        return False
    return True


def _write_all(file: BinaryIO, data: bytes) -> None:
    file.write(data)
