"""The database: whatever somebody puts into it, nothing is executed, and nothing outside is read or removed."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import diskcache
import pytest

from relaybuild.build.cache.database import DatabaseIndex, has_database
from relaybuild.build.cache.folder import CacheFolder, open_folder
from relaybuild.build.cache.index import IndexFailure, PoisonedEntry
from relaybuild.build.cache.inline_disk import InlineDisk

from .conftest import ROOT, TIMEOUT

NAME = "0" * 64
KEY = f"ac/main\0{NAME}".encode()


class Exploit:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return open_folder(tmp_path / "cache")


@pytest.fixture
def index(folder: CacheFolder) -> Iterator[DatabaseIndex]:
    opened = DatabaseIndex(folder)
    opened.put("ac/main", NAME, b"good")
    opened.close()
    yield opened
    opened.close()


def sql(folder: CacheFolder, statement: str, *values: object) -> None:
    connection = sqlite3.connect(folder.index / "cache.db")
    with connection:
        connection.execute(statement, values)
    connection.close()


ROWS = {
    "a pickle inside": "UPDATE Cache SET mode = 4, value = :pickle",
    "a pickle in a file": "UPDATE Cache SET mode = 4, value = NULL, filename = :pickled_file",
    "a file outside": "UPDATE Cache SET mode = 2, value = NULL, filename = :secret",
    "a text file outside": "UPDATE Cache SET mode = 3, value = NULL, filename = :secret",
    "a file beside the value": "UPDATE Cache SET filename = :secret",
    "an expiry": "UPDATE Cache SET expire_time = 1.0",
    "a number": "UPDATE Cache SET value = 5",
    "a text": "UPDATE Cache SET value = 'text of some length'",
    "nothing": "UPDATE Cache SET value = NULL",
    "too few bytes": "UPDATE Cache SET value = x'00'",
    "too many bytes": "UPDATE Cache SET value = zeroblob(16777300)",
    "another mode": "UPDATE Cache SET mode = 99",
}


@pytest.mark.parametrize("name", ROWS)
def test_a_poisoned_row_is_refused_and_can_be_replaced(
    index: DatabaseIndex, folder: CacheFolder, tmp_path: Path, name: str
) -> None:
    made, secret, pickled = tmp_path / "made", tmp_path / "secret", tmp_path / "pickled"
    secret.write_bytes(b"secret" * 10)
    pickled.write_bytes(pickle.dumps(Exploit(made)))
    connection = sqlite3.connect(folder.index / "cache.db")
    with connection:
        parameters = {"pickle": pickle.dumps(Exploit(made)), "secret": str(secret), "pickled_file": str(pickled)}
        used = {key: value for key, value in parameters.items() if f":{key}" in ROWS[name]}
        connection.execute(ROWS[name], used)
    connection.close()
    with pytest.raises(PoisonedEntry) as caught:
        index.get("ac/main", NAME)
    assert not caught.value.is_damaged
    assert list(index.rows()) == []
    index.put("ac/main", NAME, b"new", replace=True)
    row = index.get("ac/main", NAME)
    assert row is not None
    assert row.value == b"new"
    index.delete("ac/main", [NAME])
    assert not made.exists()
    assert secret.read_bytes() == b"secret" * 10
    assert pickled.exists()


def test_a_poisoned_row_is_removed_without_its_file(index: DatabaseIndex, folder: CacheFolder, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    sql(folder, "UPDATE Cache SET mode = 2, filename = ?", "../../../precious")
    index.delete("ac/main", [NAME])
    assert index.get("ac/main", NAME) is None
    assert (tmp_path / "precious").read_text() == "data"


def test_a_key_that_is_a_pickle_is_left_out(index: DatabaseIndex, folder: CacheFolder, tmp_path: Path) -> None:
    sql(folder, "UPDATE Cache SET raw = 0, key = ?", pickle.dumps(Exploit(tmp_path / "made")))
    assert index.get("ac/main", NAME) is None
    assert list(index.rows()) == []
    assert not (tmp_path / "made").exists()


SCHEMAS = {
    "a trigger": "CREATE TRIGGER evil AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
    "a trigger by a known name": (
        "CREATE TRIGGER Settings_evil AFTER INSERT ON Cache FOR EACH ROW BEGIN UPDATE Settings "
        "SET value = value + 1 WHERE key = \"count\"; SELECT load_extension('x'); END"
    ),
    "a view": "CREATE VIEW evil AS SELECT * FROM Cache",
    "a table": "CREATE TABLE evil (a)",
    "an attribute of diskcache": "INSERT INTO Settings VALUES ('_disk', 'x')",
    "a pragma": "INSERT INTO Settings VALUES ('sqlite_writable_schema', 1)",
    "a disk option": "INSERT INTO Settings VALUES ('disk_directory', '/etc')",
    "a pragma's value": "UPDATE Settings SET value = 'off; x' WHERE key = 'sqlite_journal_mode'",
    "an eviction": "UPDATE Settings SET value = 'least-recently-used' WHERE key = 'eviction_policy'",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_poisoned_database_is_refused_before_anything_opens_it(
    index: DatabaseIndex, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sql(folder, SCHEMAS[name])

    def fail(*_arguments: object, **_options: object) -> None:
        raise AssertionError("diskcache has opened it")

    monkeypatch.setattr(diskcache, "Cache", fail)
    for ask in (lambda: index.get("ac/main", NAME), lambda: index.put("ac/main", "1" * 64, b"x")):
        with pytest.raises(PoisonedEntry) as caught:
            ask()
        assert caught.value.is_damaged


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\0" + bytes(4080)])
def test_a_file_that_is_no_database_is_damaged(index: DatabaseIndex, folder: CacheFolder, content: bytes) -> None:
    for path in folder.index.iterdir():
        path.unlink()
    (folder.index / "cache.db").write_bytes(content)
    with pytest.raises(IndexFailure) as caught:
        index.get("ac/main", NAME)
    assert caught.value.is_damaged


def test_a_locked_database_fails_in_bounded_time(
    index: DatabaseIndex, folder: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relaybuild.build.cache.database.TIMEOUT", 0.2)
    index.put("ac/main", "1" * 64, b"opens the writer")
    other = sqlite3.connect(folder.index / "cache.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(IndexFailure) as caught:
        index.put("ac/main", "2" * 64, b"x")
    assert caught.value.reason == "busy"
    assert index.get("ac/main", NAME) is not None
    other.execute("ROLLBACK")
    other.close()


def test_many_rows_are_removed_in_short_transactions(index: DatabaseIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{number:064x}" for number in range(500)]
    for name in names:
        index.put("ac/main", name, b"x")
    transactions = 0
    original = diskcache.Cache.transact

    def counted(cache: diskcache.Cache) -> object:
        nonlocal transactions
        transactions += 1
        return original(cache)

    monkeypatch.setattr(diskcache.Cache, "transact", counted)
    index.delete("ac/main", names)
    assert list(index.rows()) == []
    assert transactions >= 5


def test_a_path_that_diskcache_would_expand_is_no_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RB_ELSEWHERE", "elsewhere")
    index = DatabaseIndex(open_folder(tmp_path / "$RB_ELSEWHERE"))
    with pytest.raises(IndexFailure, match="names a variable"):
        index.put("ac/main", NAME, b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_reading_needs_no_diskcache(index: DatabaseIndex, folder: CacheFolder) -> None:
    code = (
        "import sys; from pathlib import Path; from relaybuild.build.cache.database import DatabaseIndex; "
        "from relaybuild.build.cache.folder import open_folder; "
        f"row = DatabaseIndex(open_folder(Path({str(folder.root.parent)!r}))).get('ac/main', {NAME!r}); "
        "assert row.value == b'good'; sys.exit('diskcache' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=TIMEOUT)
    assert done.returncode == 0


def test_connections_are_not_used_in_a_forked_process(index: DatabaseIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    index.put("ac/main", "1" * 64, b"x")
    before = index._connection
    assert before is not None
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert index.get("ac/main", NAME) is not None
    assert index._connection is not before
    before.close()


def test_the_disk_knows_bytes_inside_of_rows_only(tmp_path: Path) -> None:
    cache = diskcache.Cache(str(tmp_path / "d"), disk=InlineDisk, disk_min_file_size=1 << 62)
    with pytest.raises(TypeError, match="a key of type 'str'"):
        cache.set("key", b"x")
    with pytest.raises(TypeError, match="a value of type 'list'"):
        cache.set(b"key", [1])
    cache.set(KEY, b"x" * 100_000)
    assert cache.get(KEY) == b"x" * 100_000
    with cache.transact():
        cache._sql("UPDATE Cache SET mode = 4")
    with pytest.raises(PoisonedEntry):
        cache.get(KEY)
    with pytest.raises(PoisonedEntry):
        cache.disk.filename()
    assert sorted(path.name.split(".")[0] for path in (tmp_path / "d").iterdir()) == ["cache"] * 3
    cache.close()


def test_a_database_appears_complete(index: DatabaseIndex, folder: CacheFolder) -> None:
    assert has_database(folder)
    assert list(folder.tmp.iterdir()) == []
    connection = sqlite3.connect(folder.index / "cache.db")
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
