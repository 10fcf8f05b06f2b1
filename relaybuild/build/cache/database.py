"""An index in one SQLite database, written by diskcache and read without it; trusts no row, schema or setting of it.

diskcache unpickles rows, opens and removes files that rows name, and sets pragmas and attributes that its table of
settings names. So the database is checked before diskcache opens it, diskcache is given a `Disk` that knows values
inside rows and nothing else, and what is looked up is read by a query that takes such rows only. That also keeps
diskcache out of a run that finds everything.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from relaybuild.build.cache.folder import CacheFolder, remove
from relaybuild.build.cache.index import MAX_VALUE, IndexFailure, NamedRow, PoisonedEntry, Row

T = TypeVar("T")

TIMEOUT = 5.0
"""Seconds that a write waits for those of other processes."""

_NAME = "cache.db"
_RAW_MODE = 1
_ROWS_READ = 200
_ROWS_WRITTEN = 100
# A process that waits tries again more often than one that removes many rows lets others in.
_PAUSE, _RETRY = 0.002, 0.001
_LAST_USE = struct.Struct(">d")
_COLUMNS = f"mode, filename, expire_time, CASE WHEN length(value) <= {MAX_VALUE + _LAST_USE.size} THEN value END"
_GET = f"SELECT {_COLUMNS} FROM Cache WHERE key = ? AND raw = 1"
_ROWS = f"SELECT {_COLUMNS}, raw, key FROM Cache"

_OBJECTS = {
    ("table", "Settings"),
    ("table", "Cache"),
    ("index", "sqlite_autoindex_Settings_1"),
    ("index", "Cache_key_raw"),
    ("index", "Cache_expire_time"),
}
_TRIGGER = (
    r"CREATE TRIGGER (?:IF NOT EXISTS )?Settings_\w+ AFTER (?:INSERT|UPDATE|DELETE) ON Cache FOR EACH ROW BEGIN "
    r'UPDATE Settings SET value = value [-+\w. ]+ WHERE key = "(?:count|size)"; END'
)
_SETTINGS = frozenset(
    "count size hits misses statistics tag_index eviction_policy size_limit cull_limit sqlite_auto_vacuum "
    "sqlite_cache_size sqlite_journal_mode sqlite_mmap_size sqlite_synchronous disk_min_file_size "
    "disk_pickle_protocol".split()
)
_WORDS = {"eviction_policy": "none", "sqlite_journal_mode": "wal"}
_OPTIONS: dict[str, Any] = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "size_limit": 1 << 62,
    "statistics": 0,
    "tag_index": 0,
    "disk_min_file_size": 1 << 62,
    "sqlite_mmap_size": 0,
    # What a power failure damages is found out, and begun anew; waiting for the disk would stop every other writer.
    "sqlite_synchronous": 0,
}


def has_database(folder: CacheFolder) -> bool:
    """Whether the folder has an index of this kind."""
    return (folder.index / _NAME).is_file()


def is_possible(folder: CacheFolder) -> bool:
    """Whether a database can lie there: diskcache replaces what looks like a variable in a path, set or not yet."""
    text = str(folder.index)
    return "$" not in text and not text.startswith("~") and (os.name != "nt" or "%" not in text)


def is_available() -> bool:
    """Whether diskcache is installed; it is not imported."""
    return importlib.util.find_spec("diskcache") is not None


class DatabaseIndex:
    """Rows of a database; any number of processes may write at the same time."""

    title = "database"

    def __init__(self, folder: CacheFolder) -> None:
        """Opens nothing yet. The database is made complete under another name, so that no process sees half of one."""
        self._folder = folder
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._cache: Any = None
        self._owner = os.getpid()

    def get(self, kind: str, name: str) -> Row | None:
        def ask() -> Row | None:
            found = self._reader().execute(_GET, (_key(kind, name),)).fetchone()
            return _row(*found) if found is not None else None

        if self._connection is None and not has_database(self._folder):
            return None
        return self._guarded(ask)

    def put(self, kind: str, name: str, value: bytes, *, replace: bool = False) -> bool:
        if len(value) > MAX_VALUE:
            raise IndexFailure("too-long", f"a value of {len(value)} bytes")
        stored = _LAST_USE.pack(time.time()) + value

        def ask() -> bool:
            cache = self._writer()
            write = cache.set if replace else cache.add
            return bool(write(_key(kind, name), stored))

        return self._guarded(ask)

    def replace(self, kind: str, values: Mapping[str, bytes]) -> None:
        now = _LAST_USE.pack(time.time())
        self._in_batches([*values], lambda cache, name: cache.set(_key(kind, name), now + values[name]))

    def delete(self, kind: str, names: Sequence[str]) -> None:
        self._in_batches(names, lambda cache, name: cache.delete(_key(kind, name)))

    def touch(self, kind: str, names: Sequence[str], when: float) -> None:
        def one(cache: Any, name: str) -> None:
            stored = cache.get(_key(kind, name))
            if stored is not None:
                cache.set(_key(kind, name), _LAST_USE.pack(when) + stored[_LAST_USE.size :])

        self._in_batches(names, one)

    def rows(self) -> Iterator[NamedRow]:
        if not has_database(self._folder):
            return
        cursor = self._guarded(lambda: self._reader().execute(_ROWS))
        while found := self._guarded(lambda: cursor.fetchmany(_ROWS_READ)):
            for *columns, raw, key in found:
                with contextlib.suppress(PoisonedEntry):
                    kind, name = _names(raw, key)
                    yield NamedRow(kind, name, _row(*columns))

    def close(self) -> None:
        with self._lock:
            if self._owner == os.getpid():
                for each in (self._connection, self._cache):
                    with contextlib.suppress(sqlite3.Error):
                        if each is not None:
                            each.close()
            self._connection = self._cache = None
            self._owner = os.getpid()

    def _guarded(self, ask: Callable[[], T]) -> T:
        """The answer of `ask`, which is asked again while others hold the database's lock; what SQLite and diskcache
        raise becomes IndexFailure."""
        end = time.monotonic() + TIMEOUT
        while True:
            try:
                with self._lock:
                    if self._owner != os.getpid():
                        # Connections do not survive a fork.
                        self.close()
                    return ask()
            except sqlite3.Error as error:
                raise _failure(error) from error
            except OSError as error:
                raise IndexFailure(type(error).__name__, str(error)) from error
            except Exception as error:
                if type(error).__name__ != "Timeout":
                    raise
                # diskcache says so of whatever SQLite has against the beginning of a transaction.
                cause = error.__context__
                if not isinstance(cause, sqlite3.Error) or not _is_busy(cause) or time.monotonic() >= end:
                    raise _failure(cause if isinstance(cause, sqlite3.Error) else sqlite3.Error(error)) from error
            time.sleep(_RETRY)

    def _in_batches(self, names: Sequence[str], one: Callable[[Any, str], object]) -> None:
        """Do something for each name, in transactions so short that other processes get their turn."""
        for start in range(0, len(names), _ROWS_WRITTEN):
            if start:
                time.sleep(_PAUSE)

            def ask(part: Sequence[str] = names[start : start + _ROWS_WRITTEN]) -> None:
                cache = self._writer()
                with cache.transact():
                    for name in part:
                        one(cache, name)

            self._guarded(ask)

    def _reader(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = _connect(self._folder.index / _NAME)
            try:
                _check(connection)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _writer(self) -> Any:
        if not self._folder.is_writable:
            raise IndexFailure("read-only", f"'{self._folder.root}' cannot be written")
        if self._cache is None:
            if not has_database(self._folder):
                self._create()
            self._reader()
            self._cache = _open_cache(self._folder.index)
        return self._cache

    def _create(self) -> None:
        """Make an empty database; another process may be faster."""
        temporary = self._folder.temporary()
        self._folder.make(temporary)
        try:
            _open_cache(temporary).close()
            os.rename(temporary, self._folder.index)
        except OSError:
            if not has_database(self._folder):
                raise
        finally:
            _remove_folder(temporary)


def _key(kind: str, name: str) -> bytes:
    return f"{kind}\0{name}".encode()


def _names(raw: object, key: object) -> tuple[str, str]:
    if raw != 1 or not isinstance(key, bytes):
        raise PoisonedEntry("a row whose key is not bytes")
    kind, separator, name = key.decode(errors="replace").partition("\0")
    if not separator:
        raise PoisonedEntry("a row with a key of another program")
    return kind, name


def _row(mode: object, filename: object, expire_time: object, value: object) -> Row:
    """A row that this program wrote; raises PoisonedEntry for any other."""
    if mode != _RAW_MODE or filename is not None or expire_time is not None:
        raise PoisonedEntry(f"a row of mode {mode!r} that names the file {filename!r}")
    if not isinstance(value, bytes) or len(value) < _LAST_USE.size:
        raise PoisonedEntry("a row without a value of bytes, or with too long a one")
    return Row(value[_LAST_USE.size :], _LAST_USE.unpack_from(value)[0])


def _connect(path: Path) -> sqlite3.Connection:
    """A connection that only reads; a file system that only reads gets none of the files that readers share."""
    address = f"file:{_quoted(str(path))}?mode=ro"
    try:
        return _open(address)
    except sqlite3.OperationalError:
        log = path.with_name(f"{_NAME}-wal")
        if log.exists() and log.stat().st_size:
            raise
        return _open(f"{address}&immutable=1")


def _quoted(path: str) -> str:
    """A path as it stands in an address; urllib, which does that too, takes milliseconds to import."""
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _open(address: str) -> sqlite3.Connection:
    connection = sqlite3.connect(address, uri=True, timeout=TIMEOUT, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA trusted_schema = 0")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Raise PoisonedEntry for a database with anything in it that diskcache would not have made for this program."""
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
        is_trigger = kind == "trigger" and isinstance(text, str) and re.fullmatch(_TRIGGER, " ".join(text.split()))
        if (kind, name) not in _OBJECTS and not is_trigger:
            raise PoisonedEntry(f"the database has the {kind} '{name}'", is_damaged=True)
    for name, value in connection.execute("SELECT key, value FROM Settings").fetchall():
        is_known = value == _WORDS[name] if name in _WORDS else isinstance(value, (int, float))
        if name not in _SETTINGS or not is_known:
            raise PoisonedEntry(f"the database has the setting {name!r} = {value!r}", is_damaged=True)


def _is_busy(error: sqlite3.Error) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def _failure(error: sqlite3.Error) -> IndexFailure:
    text = str(error)
    if _is_busy(error):
        return IndexFailure("busy", f"{text}, for {TIMEOUT:g} seconds")
    if "full" in text:
        return IndexFailure("ENOSPC", text)
    if "readonly" in text:
        return IndexFailure("read-only", text)
    # An OperationalError is of the surroundings, unless the tables are not those of an index.
    is_damaged = not isinstance(error, sqlite3.OperationalError) or "no such" in text or "malformed" in text
    return IndexFailure("damaged" if is_damaged else "sqlite", text, is_damaged=is_damaged)


def _open_cache(folder: Path) -> Any:
    import diskcache

    from relaybuild.build.cache.inline_disk import InlineDisk

    return diskcache.Cache(_literal(folder), timeout=0, disk=InlineDisk, **_OPTIONS)


def _literal(folder: Path) -> str:
    """A path in which diskcache, which expands variables, finds nothing to expand; raises IndexFailure if it does."""
    text = str(folder)
    if os.path.expandvars(os.path.expanduser(text)) != text:
        raise IndexFailure("path", f"'{text}' names a variable, which diskcache would replace")
    return text


def _remove_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            remove(folder / name)
        os.rmdir(folder)
