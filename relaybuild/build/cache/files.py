"""An index of one file for each value, for network file systems and shared folders; believes no file's name."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from relaybuild.build.cache.folder import CacheFolder, remove
from relaybuild.build.cache.index import MAX_VALUE, IndexFailure, NamedRow, Row

_NAME = r"[0-9a-f]{8,64}"
_KIND = r"[A-Za-z0-9._+-]+"


class FileIndex:
    """Values are files `ac/<kind>/ab/cdef…`; their time of modification is the last use."""

    title = "files"

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder

    def get(self, kind: str, name: str) -> Row | None:
        try:
            return _read(self._path(kind, name))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _failure(error) from error

    def put(self, kind: str, name: str, value: bytes, *, replace: bool = False) -> bool:
        path = self._path(kind, name)
        try:
            temporary = self._folder.write_new(value, self._folder.file_mode)
            return self._folder.publish(temporary, path, replace=replace)
        except OSError as error:
            raise _failure(error) from error

    def replace(self, kind: str, values: Mapping[str, bytes]) -> None:
        for name, value in values.items():
            self.put(kind, name, value, replace=True)

    def delete(self, kind: str, names: Sequence[str]) -> None:
        for name in names:
            remove(self._path(kind, name))

    def touch(self, kind: str, names: Sequence[str], when: float) -> None:
        for name in names:
            # Somebody else's file can be read, but not touched.
            with contextlib.suppress(OSError):
                os.utime(self._path(kind, name), (when, when))

    def rows(self) -> Iterator[NamedRow]:
        for kind in _names(self._folder.records, re.compile(_KIND)):
            for part in _names(self._folder.records / kind, re.compile("[0-9a-f]{2}")):
                for rest in _names(self._folder.records / kind / part, re.compile("[0-9a-f]{6,62}")):
                    with contextlib.suppress(OSError, IndexFailure):
                        row = _read(self._folder.records / kind / part / rest)
                        yield NamedRow(kind.replace("+", "/"), part + rest, row)

    def close(self) -> None:
        pass

    def _path(self, kind: str, name: str) -> Path:
        folder = kind.replace("/", "+")
        if not re.fullmatch(_NAME, name) or not re.fullmatch(_KIND, folder) or folder.startswith("."):
            raise ValueError(f"'{kind}' and '{name}' cannot name a file")
        return self._folder.records / folder / name[:2] / name[2:]


def _read(path: Path) -> Row:
    with open(path, "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        if found.st_size > MAX_VALUE:
            raise IndexFailure("too-long", f"'{path}' has {found.st_size} bytes")
        return Row(file.readall(), found.st_mtime)


def _failure(error: OSError) -> IndexFailure:
    word = errno.errorcode.get(error.errno or 0, "OSError")
    return IndexFailure(word, f"'{error.filename}': {error.strerror or error}")


def _names(folder: Path, pattern: re.Pattern[str]) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if pattern.fullmatch(name)]
    except OSError:
        return []
