"""Folders that are made of what was packed: complete or not there, brought up to date, and nobody else's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from runners.building import tree

from relaybuild.build import bundle
from relaybuild.build.bundle import LIST, File, check_folder, pack, unpack
from relaybuild.errors import InternalError, UserError

FIRST: dict[str, File] = {"a.txt": b"a\n", "deep/er/b.txt": b"b\n", "empty": b""}


@pytest.fixture
def packed(tmp_path: Path) -> Callable[[dict[str, File]], Path]:
    def make(files: dict[str, File]) -> Path:
        path = tmp_path / "packed"
        pack(files, path)
        return path

    return make


Packed = Callable[[dict[str, File]], Path]


def content(folder: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree(folder).items() if name != LIST}


def times(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_mtime_ns for name in tree(folder)}


def test_a_folder_is_made(tmp_path: Path, packed: Packed) -> None:
    assert unpack(packed(FIRST), tmp_path / "made") == 4
    assert content(tmp_path / "made") == FIRST
    assert {path.name for path in tmp_path.iterdir()} == {"packed", "made"}


def test_equal_files_give_equal_bytes(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"b\n")
    pack(FIRST, tmp_path / "one")
    pack({**dict(reversed(FIRST.items())), "deep/er/b.txt": tmp_path / "file"}, tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_what_is_as_it_should_be_is_left_alone(tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "made"
    unpack(packed(FIRST), folder)
    before = times(folder)
    unpack(packed(FIRST), folder)
    assert times(folder) == before
    unpack(packed({**FIRST, "a.txt": b"A\n"}), folder)
    changed = {name for name, time in times(folder).items() if time != before[name]}
    assert changed == {"a.txt", LIST}


def test_what_is_no_longer_made_goes_and_what_others_put_there_stays(tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "made"
    unpack(packed(FIRST), folder)
    (folder / "build").mkdir()
    (folder / "build" / "out").write_text("mine")
    unpack(packed({"a.txt": b"a\n", "c.txt": b"c\n"}), folder)
    assert content(folder) == {"a.txt": b"a\n", "build/out": b"mine", "c.txt": b"c\n"}
    assert not (folder / "deep").exists()


def test_what_was_edited_is_not_removed(tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "made"
    unpack(packed(FIRST), folder)
    (folder / "deep/er/b.txt").write_text("edited")
    unpack(packed({"a.txt": b"a\n"}), folder)
    assert content(folder) == {"a.txt": b"a\n", "deep/er/b.txt": b"edited"}


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "made"
    folder.mkdir()
    unpack(packed(FIRST), folder)  # an empty one is taken
    (folder / LIST).unlink()
    for act in (lambda: unpack(packed({}), folder), lambda: check_folder(folder)):
        with pytest.raises(UserError, match=r"has files that relaybuild did not put there; choose an empty or a new"):
            act()
    assert content(folder) == FIRST


@pytest.mark.parametrize(("name", "message"), [("file", "is a file"), ("no/where", "'.*no' does not exist")])
def test_names_that_cannot_be_folders(tmp_path: Path, packed: Packed, name: str, message: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=message):
        unpack(packed(FIRST), tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"


def test_nothing_is_there_when_it_fails(tmp_path: Path, packed: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    path = packed(FIRST)

    def fail(*_arguments: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "_list_text", fail)
    with pytest.raises(UserError, match="no space left"):
        unpack(path, tmp_path / "made")
    assert [entry.name for entry in tmp_path.iterdir()] == ["packed"]


@pytest.mark.parametrize("name", ["../a", "/a", "a/../../b", "a//b", "", LIST])
def test_names_that_lead_elsewhere_are_not_packed(tmp_path: Path, name: str) -> None:
    with pytest.raises(InternalError, match="cannot be the name of a file"):
        pack({name: b""}, tmp_path / "packed")


def test_a_list_that_is_none_removes_nothing(tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "made"
    unpack(packed(FIRST), folder)
    (tmp_path / "outside").write_text("mine")
    for text in ("{", '{"files": 3}', '{"files": {"../outside": ""}}'):
        (folder / LIST).write_text(text)
        unpack(packed({"a.txt": b"a\n"}), folder)
        assert (folder / "deep/er/b.txt").exists()
        assert (tmp_path / "outside").read_text() == "mine"
