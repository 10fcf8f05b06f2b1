"""Digests of folders: what counts, what is remembered, and what is noticed when it changes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from relaybuild.build import trees
from relaybuild.build.trees import TreeInputs
from relaybuild.digest import Digest


class Memory(dict[str, Digest]):
    def recall(self, name: str) -> Digest | None:
        return self.get(name)

    def remember(self, name: str, digest: Digest) -> None:
        self[name] = digest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "a.py").write_text("a")
    (tmp_path / "tree" / "inner" / "b.py").write_text("b")
    return tmp_path / "tree"


def later() -> float:
    return time.time() + 60


def digest(folder: Path, memory: Memory | None = None) -> Digest:
    return TreeInputs(memory, later).tree(folder, lambda name: not name.endswith(".pyc"))[0]


def test_names_and_contents_count(folder: Path) -> None:
    first = digest(folder)
    (folder / "a.pyc").write_text("derived")
    assert digest(folder) == first
    (folder / "a.py").rename(folder / "c.py")
    second = digest(folder)
    (folder / "c.py").write_text("c")
    third = digest(folder)
    (folder / "inner" / "d.py").write_text("")
    assert len({first, second, third, digest(folder)}) == 4


def test_a_folder_that_has_not_changed_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    first = digest(folder, memory)
    monkeypatch.setattr(trees, "digest_file", None)
    assert digest(folder, memory) == first


def test_what_was_written_just_now_is_read_again(folder: Path) -> None:
    memory = Memory()
    TreeInputs(memory).tree(folder, lambda _name: True)
    assert not memory


def test_a_change_is_noticed_even_if_the_time_is_put_back(folder: Path) -> None:
    memory = Memory()
    first = digest(folder, memory)
    before = (folder / "a.py").stat()
    (folder / "a.py").write_text("A")
    os.utime(folder / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert digest(folder, memory) != first


def test_changes_while_it_is_in_use(folder: Path) -> None:
    inputs = TreeInputs(Memory(), later)
    inputs.tree(folder, lambda _name: True)
    inputs.digest(folder / "a.py")
    assert inputs.changed() == []
    (folder / "inner" / "new.py").write_text("")
    assert inputs.changed() == [folder]
