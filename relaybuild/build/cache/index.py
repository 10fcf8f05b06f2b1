"""The seam between the cache and where its records are: small values by kind and name; knows no value's meaning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from relaybuild.build.cache.folder import CacheFolder

MAX_VALUE = 16 << 20
"""Bytes that a value has at most; a longer one is refused unread."""


class IndexFailure(Exception):
    """The index could not do what it was asked. `reason` is a word to count; `is_damaged` says that no answer of this
    index can be had any more, rather than this one."""

    def __init__(self, reason: str, message: str, *, is_damaged: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.is_damaged = is_damaged


class PoisonedEntry(IndexFailure):
    """A row that this program never writes: to read it could run code, or open a file that it names."""

    def __init__(self, message: str, *, is_damaged: bool = False) -> None:
        super().__init__("poisoned", message, is_damaged=is_damaged)


class Row(NamedTuple):
    """A value, and when it was last used, in seconds since the epoch."""

    value: bytes
    last_use: float


class NamedRow(NamedTuple):
    """A row with its kind and name."""

    kind: str
    name: str
    row: Row


class Index(Protocol):
    """Values by kind (`ac/main`, `slot`) and name (hexadecimal). All methods raise IndexFailure and nothing else."""

    @property
    def title(self) -> str:
        """What it is, for people."""
        ...

    def get(self, kind: str, name: str) -> Row | None:
        """The row of that name; None if there is none. Does not count as a use."""
        ...

    def put(self, kind: str, name: str, value: bytes, *, replace: bool = False) -> bool:
        """Keep a value. Without `replace` the first stays: False if there is one already."""
        ...

    def replace(self, kind: str, values: Mapping[str, bytes]) -> None:
        """Keep values by name, in place of those that are there; less work than one after the other."""
        ...

    def delete(self, kind: str, names: Sequence[str]) -> None:
        """Forget values; names without one are no error."""
        ...

    def touch(self, kind: str, names: Sequence[str], when: float) -> None:
        """Write down that values were used; names without one are no error."""
        ...

    def rows(self) -> Iterator[NamedRow]:
        """All rows, in no order; those that are refused are left out."""
        ...

    def close(self) -> None:
        """Let go of files. What is asked afterwards opens them again."""
        ...


class NoIndex:
    """The index of a folder that cannot even be read: it has nothing and keeps nothing."""

    title = "none"

    def get(self, kind: str, name: str) -> Row | None:
        return None

    def put(self, kind: str, name: str, value: bytes, *, replace: bool = False) -> bool:
        raise IndexFailure("read-only", "there is no index to write to")

    def replace(self, kind: str, values: Mapping[str, bytes]) -> None:
        raise IndexFailure("read-only", "there is no index to write to")

    def delete(self, kind: str, names: Sequence[str]) -> None:
        pass

    def touch(self, kind: str, names: Sequence[str], when: float) -> None:
        pass

    def rows(self) -> Iterator[NamedRow]:
        return iter(())

    def close(self) -> None:
        pass


def open_index(folder: CacheFolder) -> Index:
    """The index of a folder: files where it is shared, lies on a network file system, has a path that no database can
    have, or holds such an index already; else a database. A folder that cannot be written is read as what it is.

    Raises IndexFailure.
    """
    from relaybuild.build.cache.database import DatabaseIndex, has_database, is_available, is_possible
    from relaybuild.build.cache.files import FileIndex

    if folder.is_shared or folder.is_network or not is_possible(folder):
        return FileIndex(folder)
    if has_database(folder):
        return DatabaseIndex(folder)
    if folder.records.is_dir() or not is_available():
        return FileIndex(folder)
    return DatabaseIndex(folder) if folder.is_writable else NoIndex()


def replace_index(folder: CacheFolder) -> Index:
    """Put away the database of a folder, which is damaged or poisoned, and open a new one. Raises IndexFailure."""
    with contextlib.suppress(OSError):
        if folder.is_writable and not folder.put_away(folder.index):
            return NoIndex()
    return open_index(folder) if folder.is_writable else NoIndex()
