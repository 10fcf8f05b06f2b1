"""Blobs as files, by the digest of their content; does not know what a blob is for.

Nothing that is read is believed: a blob that is missing, cut or altered is reported as such and put away, and a copy of
it never appears under a final name.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from relaybuild.build.cache.folder import CacheFolder, remove
from relaybuild.build.files import temporary_beside
from relaybuild.digest import Digest, digest_bytes, long_sha256

_CHUNK = 1 << 20
_FOLDER_NAME = r"[0-9a-f]{2}"
_BLOB_NAME = r"[0-9a-f]{62}"


class Fault(Enum):
    """Why a blob cannot be had."""

    MISSING = "is missing"
    TRUNCATED = "has another size"
    ALTERED = "has another content"
    UNREADABLE = "cannot be read"


class BlobError(Exception):
    """A blob cannot be had."""

    def __init__(self, digest: Digest, fault: Fault) -> None:
        super().__init__(f"blob {digest.short()} {fault.value}")
        self.digest = digest
        self.fault = fault


class BlobFile(NamedTuple):
    """A file in the store: its digest by name, its size, and when it was last written or asked to stay."""

    hex: str
    size: int
    modified: float
    path: str


class BlobStore:
    """The blobs of a cache folder. Any number of processes may use one at the same time."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder

    def path_of(self, hex_digest: str) -> Path:
        """Where the blob of a digest is, or would be."""
        return self._folder.cas / hex_digest[:2] / hex_digest[2:]

    def put_bytes(self, data: bytes) -> Digest:
        """Keep some bytes; raises OSError, and leaves nothing incomplete then."""
        digest = digest_bytes(data)
        if not self._keep(digest):
            self._publish(self._folder.write_new(data, self._folder.blob_mode), digest)
        return digest

    def put_file(self, source: Path, known: Digest | None = None) -> Digest:
        """Keep a copy of a file; the digest is that of the copy. Raises OSError, leaving nothing incomplete.

        Where there is a blob of the digest that the file is `known` to have, the file is not read.
        """
        if known is not None and self._keep(known):
            return known
        temporary = self._folder.temporary()
        with open(source, "rb", buffering=0) as file, self._folder.creating(temporary) as copy:
            _copy(file.fileno(), copy)
            digest = _digest_of(copy)
            os.fchmod(copy, self._folder.blob_mode)
        if self._keep(digest):
            remove(temporary)
        else:
            self._publish(temporary, digest)
        return digest

    def put_stream(self, source: IO[bytes], digest: Digest) -> None:
        """Keep what a stream gives if that has the digest it is said to have, else raise BlobError; raises OSError."""
        self.receive(digest, lambda into: _pour(source, into))

    def receive(self, digest: Digest, send: Callable[[BinaryIO], bool]) -> None:
        """Keep what `send` writes if that has the digest it is said to have, else raise BlobError; raises OSError.

        `send` answers whether there is such a blob. It is cut off where it writes more than that has.
        """
        temporary = self._folder.temporary()
        with self._folder.creating(temporary) as copy:
            with io.BufferedWriter(_Limited(copy, digest)) as into:
                is_there = send(into)
            if not is_there:
                raise BlobError(digest, Fault.MISSING)
            found = _digest_of(copy)
            if found != digest:
                raise BlobError(digest, Fault.TRUNCATED if found.size != digest.size else Fault.ALTERED)
            os.fchmod(copy, self._folder.blob_mode)
        self._publish(temporary, digest)

    def has(self, digest: Digest) -> Fault | None:
        """None if there is a blob of that size under the digest, without a look at its content; else what is wrong."""
        try:
            size = os.stat(self.path_of(digest.hex)).st_size
        except FileNotFoundError:
            return Fault.MISSING
        except OSError:
            return Fault.UNREADABLE
        return None if size == digest.size else Fault.TRUNCATED

    def read(self, digest: Digest) -> bytes:
        """The bytes of a blob; raises BlobError, and puts away what is damaged."""
        try:
            with open(self.path_of(digest.hex), "rb", buffering=0) as file:
                if os.fstat(file.fileno()).st_size != digest.size:
                    raise self._damaged(digest, Fault.TRUNCATED)
                data = file.readall()
        except OSError as error:
            raise self._unreadable(digest, error) from error
        if digest_bytes(data) != digest:
            raise self._damaged(digest, Fault.ALTERED)
        return data

    def verify(self, digest: Digest) -> None:
        """Read a blob and compare; raises BlobError, and puts away what is damaged."""
        with self._opened(digest) as file:
            is_same = _digest_of(file) == digest
        if not is_same:
            raise self._damaged(digest, Fault.ALTERED)

    def copy_out(self, digest: Digest, target: Path, *, is_executable: bool = False) -> Path:
        """A verified copy of a blob under a temporary name beside `target`, never a link to the blob.

        Raises BlobError, and OSError if the copy cannot be written; nothing is left behind then.
        """
        temporary = temporary_beside(target)
        mode = 0o777 if is_executable else 0o666
        try:
            with self._opened(digest) as file:
                copy = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode)
                try:
                    _copy(file, copy)
                    # The copy is what will be used, so it is what is compared.
                    is_same = _digest_of(copy) == digest
                finally:
                    os.close(copy)
            if not is_same:
                raise self._damaged(digest, Fault.ALTERED)
        except BaseException:
            remove(temporary)
            raise
        return temporary

    def blobs(self) -> Iterator[BlobFile]:
        """All blobs, in no order; files with other names are none."""
        for folder in _entries(self._folder.cas):
            if not re.fullmatch(_FOLDER_NAME, folder.name):
                continue
            for entry in _entries(folder.path):
                if re.fullmatch(_BLOB_NAME, entry.name):
                    with contextlib.suppress(OSError):
                        found = entry.stat(follow_symlinks=False)
                        yield BlobFile(folder.name + entry.name, found.st_size, found.st_mtime, entry.path)

    def _keep(self, digest: Digest) -> bool:
        """Whether there is such a blob; it counts as new then, so that nobody removes it as one of no use."""
        path = self.path_of(digest.hex)
        try:
            os.utime(path)
            return os.stat(path).st_size == digest.size
        except FileNotFoundError:
            return False
        except OSError:
            # One of another user: it can be used, but not touched.
            return self.has(digest) is None

    def _publish(self, temporary: Path, digest: Digest) -> None:
        """Give a blob its name. One of the wrong size in its place is damaged and is replaced."""
        path = self.path_of(digest.hex)
        replace = self.has(digest) is Fault.TRUNCATED
        self._folder.publish(temporary, path, replace=replace)

    @contextlib.contextmanager
    def _opened(self, digest: Digest) -> Iterator[int]:
        """A descriptor of a blob of the right size; raises BlobError."""
        try:
            file = os.open(self.path_of(digest.hex), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unreadable(digest, error) from error
        try:
            if os.fstat(file).st_size != digest.size:
                raise self._damaged(digest, Fault.TRUNCATED)
            yield file
        finally:
            os.close(file)

    def _unreadable(self, digest: Digest, error: OSError) -> BlobError:
        if isinstance(error, FileNotFoundError):
            return BlobError(digest, Fault.MISSING)
        return self._damaged(digest, Fault.UNREADABLE)

    def _damaged(self, digest: Digest, fault: Fault) -> BlobError:
        self._folder.put_away(self.path_of(digest.hex))
        return BlobError(digest, fault)


class _Limited(io.RawIOBase):
    """Writes to a descriptor, which stays open, and no more than a blob of that digest has."""

    def __init__(self, file: int, digest: Digest) -> None:
        self._file = file
        self._digest = digest
        self._left = digest.size

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if len(data) > self._left:
            raise BlobError(self._digest, Fault.TRUNCATED)
        count = os.write(self._file, data)
        self._left -= count
        return count


def _pour(source: IO[bytes], into: BinaryIO) -> bool:
    while data := source.read(_CHUNK):
        into.write(data)
    return True


def _entries(path: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return list(found)
    except OSError:
        return []


def _copy(source: int, target: int) -> None:
    """Copy all of a file, by reference where the file system can."""
    if hasattr(os, "copy_file_range"):
        try:
            while os.copy_file_range(source, target, 1 << 30):
                pass
            if os.lseek(source, 0, os.SEEK_CUR) == os.fstat(source).st_size:
                return
        except OSError:
            # Not between these file systems. What is wrong with the disk comes up again below.
            os.lseek(source, 0, os.SEEK_SET)
            os.lseek(target, 0, os.SEEK_SET)
            os.ftruncate(target, 0)
    while data := os.read(source, _CHUNK):
        _write_all(target, data)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _digest_of(file: int) -> Digest:
    """The digest of an open file, from its beginning."""
    os.lseek(file, 0, os.SEEK_SET)
    state = long_sha256()
    buffer = memoryview(bytearray(_CHUNK))
    size = 0
    while count := os.readv(file, [buffer]):
        state.update(buffer[:count])
        size += count
    return Digest(state.hexdigest(), size)
