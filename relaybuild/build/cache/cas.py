"""Blobs as files, by the digest of their content; does not know what a blob is for.

A large blob may be kept as a list of parts, which are blobs themselves and which others may have too. Nothing that is
read is believed: a blob that is missing, cut or altered is reported as such and put away, and a copy of it never
appears under a final name.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from relaybuild.build.cache import parts
from relaybuild.build.cache.folder import CacheFolder, remove
from relaybuild.build.files import temporary_beside
from relaybuild.digest import Digest, digest_bytes, digest_file, long_sha256

_CHUNK = 1 << 20
_OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Why files cannot be opened that nothing is wrong with."""

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
    """A file in the store: its digest by name, its size, and when it was last written or asked to stay.

    One that is a list has the digest of what its `parts` (by name) are together, and the size of the list.
    """

    hex: str
    size: int
    modified: float
    path: str
    parts: tuple[str, ...] = ()


class BlobStore:
    """The blobs of a cache folder. Any number of processes may use one at the same time."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder
        self._has_found_damage = False

    def path_of(self, hex_digest: str) -> Path:
        """Where the blob of a digest is, or would be."""
        return self._folder.cas / hex_digest[:2] / hex_digest[2:]

    def put_bytes(self, data: bytes | memoryview) -> Digest:
        """Keep some bytes; raises OSError, and leaves nothing incomplete then."""
        digest = digest_bytes(data)
        if not self._keep(digest):
            self._publish(self._folder.write_new(data, self._folder.blob_mode), digest)
        return digest

    def put_file(self, source: Path, known: Digest | None = None, cuts: Sequence[int] = ()) -> Digest:
        """Keep a copy of a file; the digest is that of the copy. Raises OSError, leaving nothing incomplete.

        Where there is a blob of the digest that the file is `known` to have, the file is not read. With `cuts`
        (ascending offsets) it is kept in parts that begin there, of which those are not written that are there.
        """
        if known is not None and self._keep(known):
            return known
        if len(spans := parts.spans(os.stat(source).st_size, cuts)) > 1:
            return self._put_parts(source, spans)
        temporary = self._folder.temporary()
        with open(source, "rb", buffering=0) as file, self._folder.creating(temporary) as copy:
            _copy(file.fileno(), copy)
            digest = _digest_of([copy])
            os.fchmod(copy, self._folder.blob_mode)
        if self._keep(digest):
            remove(temporary)
        else:
            self._publish(temporary, digest)
        return digest

    def _put_parts(self, source: Path, spans: Sequence[tuple[int, int]]) -> Digest:
        """Keep a file in parts; each is what was read of it at once, and all of it is compared where it is used."""
        from concurrent.futures import ThreadPoolExecutor

        long_sha256()  # what it loads is what hashes parts fast
        buffers: list[memoryview] = []
        most = max(end - begin for begin, end in spans)
        with open(source, "rb", buffering=0) as file, ThreadPoolExecutor(2) as pool:

            def keep(span: tuple[int, int]) -> Digest:
                # memory that was used before is fast
                buffer = buffers.pop() if buffers else memoryview(bytearray(most))
                try:
                    return self.put_bytes(_read_span(file.fileno(), *span, buffer))
                finally:
                    buffers.append(buffer)

            whole = pool.submit(digest_file, source)
            kept = list(pool.map(keep, spans))
            digest = whole.result()
        if sum(part.size for part in kept) != digest.size:
            raise OSError(f"'{source}' was changed while it was stored")
        if not self._keep(digest):
            listed = self._folder.write_new(parts.encode(kept), self._folder.blob_mode)
            # One that is there and was not kept is damaged, or lacks a part.
            self._folder.publish(listed, self._list_of(digest), replace=True)
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
            found = _digest_of([copy])
            if found != digest:
                raise BlobError(digest, Fault.TRUNCATED if found.size != digest.size else Fault.ALTERED)
            os.fchmod(copy, self._folder.blob_mode)
        self._publish(temporary, digest)

    def has(self, digest: Digest) -> Fault | None:
        """None if there is a blob of that size under the digest, without a look at its content; else what is wrong."""
        fault = self._fault_of_file(digest)
        if fault is not Fault.MISSING:
            return fault
        listed = self._parts_of(digest)
        if listed is None:
            return Fault.MISSING
        if sum(part.size for part in listed) != digest.size:
            return Fault.TRUNCATED
        return next(filter(None, map(self._fault_of_file, listed)), None)

    def read(self, digest: Digest) -> bytes:
        """The bytes of a blob; raises BlobError, and puts away what is damaged."""
        try:
            data = b"".join(map(_read_all, self._files(digest)))
        except OSError as error:
            raise self._damaged(digest, Fault.UNREADABLE) from error
        if digest_bytes(data) != digest:
            raise self._altered(digest)
        return data

    def verify(self, digest: Digest) -> None:
        """Read a blob and compare; raises BlobError, and puts away what is damaged."""
        try:
            is_same = _digest_of(self._files(digest)) == digest
        except OSError as error:
            raise self._damaged(digest, Fault.UNREADABLE) from error
        if not is_same:
            raise self._altered(digest)

    @contextlib.contextmanager
    def as_file(self, digest: Digest) -> Iterator[Path]:
        """A file with the bytes of a blob while the block runs, not verified; raises BlobError and OSError."""
        if self._fault_of_file(digest) is None:
            yield self.path_of(digest.hex)
            return
        import tempfile

        place = self._folder.tmp if self._folder.is_writable else None
        with tempfile.NamedTemporaryFile(dir=place) as copy:
            for file in self._files(digest):
                _copy(file, copy.fileno())
            yield Path(copy.name)

    def copy_out(self, digest: Digest, target: Path, *, is_executable: bool = False) -> Path:
        """A verified copy of a blob under a temporary name beside `target`, never a link to the blob.

        Raises BlobError, and OSError if the copy cannot be written; nothing is left behind then.
        """
        temporary = temporary_beside(target)
        mode = 0o777 if is_executable else 0o666
        try:
            copy = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, mode)
            try:
                for file in self._files(digest):
                    _copy(file, copy)
                # The copy is what will be used, so it is what is compared.
                is_same = _digest_of([copy]) == digest
            finally:
                os.close(copy)
            if not is_same:
                raise self._altered(digest)
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
                name = entry.name.removesuffix(parts.SUFFIX)
                if re.fullmatch(_BLOB_NAME, name):
                    with contextlib.suppress(OSError):
                        found = entry.stat(follow_symlinks=False)
                        listed = _listed(entry.path) or () if name != entry.name else ()
                        names = tuple(part.hex for part in listed)
                        yield BlobFile(folder.name + name, found.st_size, found.st_mtime, entry.path, names)

    def _keep(self, digest: Digest) -> bool:
        """Whether there is such a blob; it counts as new then, so that nobody removes it as one of no use."""
        path = self.path_of(digest.hex)
        try:
            os.utime(path)
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                self._folder.put_away(path)
                return False
            return found.st_size == digest.size and (not self._has_found_damage or self._is_intact(digest))
        except FileNotFoundError:
            return self._keep_parts(digest)
        except OSError:
            # One of another user: it can be used, but not touched.
            return self.has(digest) is None

    def _is_intact(self, digest: Digest) -> bool:
        """Whether a blob is what it should be; it is put away otherwise. One that was damaged is seldom alone."""
        try:
            self.verify(digest)
        except BlobError:
            return False
        return True

    def _keep_parts(self, digest: Digest) -> bool:
        listed = self._parts_of(digest)
        if listed is None or self.has(digest) is not None:
            return False
        with contextlib.suppress(OSError):
            os.utime(self._list_of(digest))
        return all(map(self._keep, listed))

    def _list_of(self, digest: Digest) -> Path:
        path = self.path_of(digest.hex)
        return path.with_name(path.name + parts.SUFFIX)

    def _parts_of(self, digest: Digest) -> tuple[Digest, ...] | None:
        """The parts in which a blob is kept; None if it is not, or if its list is damaged."""
        return _listed(self._list_of(digest))

    def _fault_of_file(self, digest: Digest) -> Fault | None:
        """The same as `has` for a blob that is one file."""
        try:
            found = os.stat(self.path_of(digest.hex))
        except FileNotFoundError:
            return Fault.MISSING
        except OSError:
            return Fault.UNREADABLE
        return None if stat.S_ISREG(found.st_mode) and found.st_size == digest.size else Fault.TRUNCATED

    def _publish(self, temporary: Path, digest: Digest) -> None:
        """Give a blob its name. One of the wrong size in its place is damaged and is replaced."""
        path = self.path_of(digest.hex)
        replace = self.has(digest) is Fault.TRUNCATED
        self._folder.publish(temporary, path, replace=replace)

    def _files(self, digest: Digest) -> Iterator[int]:
        """Descriptors of the files, of the right sizes, that a blob is: each is open until the next one is asked for.

        Raises BlobError.
        """
        try:
            with self._opened(digest) as file:
                yield file
            return
        except _Absent:
            listed = self._parts_of(digest)
        if listed is None:
            raise BlobError(digest, Fault.MISSING)
        if sum(part.size for part in listed) != digest.size:
            raise self._damaged(digest, Fault.TRUNCATED)
        for part in listed:
            try:
                with self._opened(part) as file:
                    yield file
            except BlobError as error:
                raise BlobError(digest, error.fault) from error

    @contextlib.contextmanager
    def _opened(self, digest: Digest) -> Iterator[int]:
        """A descriptor of a blob that is one file; raises BlobError."""
        try:
            file = _open_at_once(self.path_of(digest.hex), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise _Absent(digest, Fault.MISSING) from error
        except OSError as error:
            if error.errno in _OF_THE_PROCESS:
                raise BlobError(digest, Fault.UNREADABLE) from error
            raise self._damaged(digest, Fault.UNREADABLE) from error
        try:
            found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_size != digest.size:
                raise self._damaged(digest, Fault.TRUNCATED)
            yield file
        finally:
            os.close(file)

    def _altered(self, digest: Digest) -> BlobError:
        """What to raise for a blob of another content; what it comes from is put away."""
        listed = self._parts_of(digest) if self._fault_of_file(digest) is Fault.MISSING else None
        for part in listed or ():
            with contextlib.suppress(BlobError):
                self.verify(part)
        return self._damaged(digest, Fault.ALTERED)

    def _damaged(self, digest: Digest, fault: Fault) -> BlobError:
        self._has_found_damage = True
        for path in (self.path_of(digest.hex), self._list_of(digest)):
            self._folder.put_away(path)
        return BlobError(digest, fault)


class _Absent(BlobError):
    """There is no such file."""


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


def _listed(path: str | Path) -> tuple[Digest, ...] | None:
    """The parts that a file lists; None where there is none, or it is damaged."""
    try:
        with open(path, "rb", buffering=0, opener=_open_at_once) as file:
            return parts.decode(file.readall())
    except OSError:
        return None


def _open_at_once(path: str | Path, flags: int) -> int:
    """A descriptor of a file; that of a pipe, too, for which others would wait until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def _read_span(file: int, begin: int, end: int, buffer: memoryview) -> memoryview:
    """What a file has there, less if it ends before, at the beginning of a buffer; the file's position stays."""
    size = 0
    while begin + size < end and (count := os.preadv(file, [buffer[size : end - begin]], begin + size)):
        size += count
    return buffer[:size]


def _read_all(file: int) -> bytes:
    with open(file, "rb", buffering=0, closefd=False) as stream:
        return stream.readall()


def _copy(source: int, target: int) -> None:
    """Copy all of a file to where another one ends, by reference where the file system can."""
    start = os.lseek(target, 0, os.SEEK_END)
    if hasattr(os, "copy_file_range"):
        try:
            while os.copy_file_range(source, target, 1 << 30):
                pass
            if os.lseek(source, 0, os.SEEK_CUR) == os.fstat(source).st_size:
                return
        except OSError:
            # Not between these file systems. What is wrong with the disk comes up again below.
            os.lseek(source, 0, os.SEEK_SET)
            os.lseek(target, start, os.SEEK_SET)
            os.ftruncate(target, start)
    while data := os.read(source, _CHUNK):
        _write_all(target, data)


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _digest_of(files: Iterable[int]) -> Digest:
    """The digest of what open files are together, each from its beginning."""
    state = long_sha256()
    buffer = memoryview(b"")
    size = 0
    for file in files:
        # to clear a buffer takes longer than to hash a small file; one byte more tells that it ends
        needed = min(_CHUNK, os.fstat(file).st_size + 1)
        if len(buffer) < needed:
            buffer = memoryview(bytearray(needed))
        os.lseek(file, 0, os.SEEK_SET)
        while count := os.readv(file, [buffer]):
            state.update(buffer[:count])
            size += count
    return Digest(state.hexdigest(), size)
