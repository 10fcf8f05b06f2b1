"""What every index does alike, and which one a folder gets."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from relaybuild.build.cache import database
from relaybuild.build.cache.database import DatabaseIndex
from relaybuild.build.cache.files import FileIndex
from relaybuild.build.cache.folder import CacheFolder, open_folder
from relaybuild.build.cache.index import MAX_VALUE, Index, IndexFailure, NoIndex, open_index

from .conftest import TIMEOUT, Start, mounted, together

NAMES = [f"{number:064x}" for number in range(5)]


@pytest.fixture
def folder(tmp_path: Path) -> CacheFolder:
    return open_folder(tmp_path / "cache")


@pytest.fixture(params=[DatabaseIndex, FileIndex])
def index(request: pytest.FixtureRequest, folder: CacheFolder) -> Iterator[Index]:
    opened: Index = request.param(folder)
    yield opened
    opened.close()


def test_an_absent_index_has_nothing(index: Index) -> None:
    assert index.get("ac/main", NAMES[0]) is None
    assert list(index.rows()) == []


def test_the_first_value_stays_unless_it_is_replaced(index: Index) -> None:
    assert index.put("ac/main", NAMES[0], b"first")
    assert not index.put("ac/main", NAMES[0], b"second")
    row = index.get("ac/main", NAMES[0])
    assert row is not None
    assert row.value == b"first"
    assert index.put("ac/main", NAMES[0], b"third", replace=True)
    row = index.get("ac/main", NAMES[0])
    assert row is not None
    assert row.value == b"third"


def test_many_values_are_replaced_at_once(index: Index) -> None:
    assert index.put("memo", NAMES[0], b"old")
    values = {f"{number:064x}": b"%d" % number for number in range(250)} | {NAMES[0]: b"new"}
    index.replace("memo", values)
    assert {row.name: row.row.value for row in index.rows()} == values


def test_kinds_do_not_share_names(index: Index) -> None:
    for kind in ("ac/main", "ac/pr/1", "slot", "memo"):
        assert index.put(kind, NAMES[0], kind.encode())
    assert {row.kind: row.row.value for row in index.rows()} == {
        "ac/main": b"ac/main",
        "ac/pr/1": b"ac/pr/1",
        "slot": b"slot",
        "memo": b"memo",
    }


def test_values_are_any_bytes(index: Index) -> None:
    for name, value in zip(NAMES, (b"", b"\0", bytes(range(256)) * 100, b"\x80\x04N.")):
        index.put("slot", name, value)
        row = index.get("slot", name)
        assert row is not None
        assert row.value == value


def test_uses_are_written_down(index: Index) -> None:
    for name in NAMES:
        index.put("ac/main", name, name.encode())
    index.touch("ac/main", [*NAMES[:2], "f" * 64], 1234.5)
    found = {row.name: row.row for row in index.rows()}
    assert [found[name].last_use == 1234.5 for name in NAMES] == [True, True, False, False, False]
    assert all(found[name].value == name.encode() for name in NAMES)


def test_values_are_forgotten(index: Index) -> None:
    for name in NAMES:
        index.put("ac/main", name, b"x")
    index.delete("ac/main", [*NAMES[:3], "f" * 64])
    assert sorted(row.name for row in index.rows()) == NAMES[3:]
    assert index.get("ac/main", NAMES[0]) is None
    assert index.put("ac/main", NAMES[0], b"again")


def test_it_can_be_used_after_it_was_closed(index: Index) -> None:
    index.put("ac/main", NAMES[0], b"x")
    index.close()
    assert index.get("ac/main", NAMES[0]) is not None


def test_rows_may_go_while_they_are_walked(index: Index) -> None:
    for number in range(300):
        index.put("ac/main", f"{number:064x}", b"x")
    for row in index.rows():
        index.delete("ac/main", [row.name])
    assert list(index.rows()) == []


@pytest.mark.parametrize("is_shared", [False, True])
def test_sixteen_processes_open_an_absent_index_at_once(tmp_path: Path, start: Start, is_shared: bool) -> None:
    path = tmp_path / "cache"
    if is_shared:
        open_folder(path).records.mkdir()
    title = "files" if is_shared else "database"
    assert together([start("index", path, number) for number in range(16)]) == [f"{title} True True"] * 16
    index = open_index(open_folder(path))
    assert len(list(index.rows())) == 17
    assert list((path / "v1" / "tmp").iterdir()) == []
    index.close()


def test_network_and_shared_folders_get_files(folder: CacheFolder) -> None:
    assert isinstance(open_index(folder), DatabaseIndex)
    assert isinstance(open_index(replace(folder, is_network=True)), FileIndex)
    assert isinstance(open_index(replace(folder, is_shared=True)), FileIndex)


def test_a_path_with_what_looks_like_a_variable_gets_files(tmp_path: Path) -> None:
    index = open_index(open_folder(tmp_path / "costs $5"))
    assert isinstance(index, FileIndex)
    assert index.put("slot", NAMES[0], b"x")


def test_a_folder_keeps_the_index_that_it_has(folder: CacheFolder) -> None:
    FileIndex(folder).put("slot", NAMES[0], b"x")
    assert isinstance(open_index(folder), FileIndex)


def test_without_diskcache_there_are_files(folder: CacheFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "is_available", lambda: False)
    assert isinstance(open_index(folder), FileIndex)


def test_an_absent_read_only_folder_has_no_index(folder: CacheFolder) -> None:
    index = open_index(replace(folder, is_writable=False))
    assert isinstance(index, NoIndex)
    assert (index.get("slot", NAMES[0]), list(index.rows())) == (None, [])
    with pytest.raises(IndexFailure):
        index.put("slot", NAMES[0], b"x")


def test_a_read_only_file_system_is_read(index: Index, folder: CacheFolder, tmp_path: Path) -> None:
    index.put("ac/main", NAMES[0], b"value")
    index.close()
    for view in mounted(tmp_path / "view", "--bind", folder.root.parent):
        subprocess.run(["mount", "-o", "remount,ro,bind", view], check=True, timeout=TIMEOUT)
        seen = open_index(open_folder(view))
        row = seen.get("ac/main", NAMES[0])
        assert seen.title == index.title
        assert row is not None
        assert row.value == b"value"
        with pytest.raises(IndexFailure) as caught:
            seen.put("ac/main", NAMES[1], b"x")
        assert caught.value.reason in ("read-only", "EROFS")
        assert not caught.value.is_damaged
        seen.close()


def test_a_value_that_is_too_long_is_refused(folder: CacheFolder) -> None:
    index = FileIndex(folder)
    index.put("slot", NAMES[0], b"x")
    path = folder.records / "slot" / NAMES[0][:2] / NAMES[0][2:]
    with path.open("r+b") as file:
        file.truncate(MAX_VALUE + 1)
    with pytest.raises(IndexFailure, match="bytes"):
        index.get("slot", NAMES[0])
    assert list(index.rows()) == []
    with pytest.raises(IndexFailure, match="bytes"):
        DatabaseIndex(folder).put("slot", NAMES[0], bytes(MAX_VALUE + 1))


@pytest.mark.parametrize(
    ("kind", "name"), [("../x", NAMES[0]), ("ac/..", "../../../etc"), ("ac", "xyz"), ("", NAMES[0])]
)
def test_names_never_lead_outside(folder: CacheFolder, kind: str, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a file"):
        FileIndex(folder).put(kind, name, b"x")


def test_files_of_other_programs_are_no_rows(folder: CacheFolder) -> None:
    index = FileIndex(folder)
    index.put("slot", NAMES[0], b"x")
    (folder.records / "slot" / "00" / ".x.tmp").write_bytes(b"half")
    (folder.records / "slot" / "readme").write_bytes(b"x")
    (folder.records / "stray").write_bytes(b"x")
    assert [row.name for row in index.rows()] == [NAMES[0]]
