"""Files of the system in a key: noted when they are read, by content, with what would take their place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaybuild.artifact.surroundings import add_noted, note, noted, within
from relaybuild.build.cache.action import Action, ActionBuilder
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[Cache]:
    with open_cache(CacheSettings(tmp_path / "cache")) as opened:
        yield opened


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Two folders that are searched, the second of which has a header, and one that is not there."""
    (tmp_path / "first").mkdir()
    (tmp_path / "second" / "sys").mkdir(parents=True)
    (tmp_path / "second" / "sys" / "a.h").write_text("a\n")
    return [str(tmp_path / name) for name in ("absent", "first", "second")]


def base(name: str = "one") -> Action:
    return ActionBuilder("artifact", "library").option("name", name).build()


def key(cache: Cache, files: list[str], folders: list[str]) -> dict[str, str]:
    builder = ActionBuilder("artifact", "library")
    add_noted(builder, files, [folders], cache)
    return builder.build().components()


def test_files_are_noted_for_a_key_and_for_a_place(cache: Cache) -> None:
    assert noted(cache, base(), "here") == []
    note(cache, base(), "here", ["/usr/include/a.h"])
    note(cache, base("two"), "here", ["/usr/include/b.h"])
    assert noted(cache, base(), "elsewhere") == ["/usr/include/a.h"]
    assert noted(cache, base("three"), "here") == ["/usr/include/b.h"]
    assert noted(cache, base("three"), "elsewhere") == []


def test_files_within_folders_that_are_searched(folders: list[str], tmp_path: Path) -> None:
    inside = os.path.join(folders[2], "sys", "a.h")
    roundabout = Path(folders[1], "..", "second", "sys", "a.h")
    assert within([roundabout, tmp_path / "other.h", Path(folders[2] + "-not") / "b.h"], [folders]) == [inside]


def test_content_counts(cache: Cache, folders: list[str]) -> None:
    path = Path(folders[2], "sys", "a.h")
    first = key(cache, [str(path)], folders)
    assert key(cache, [str(path)], folders) == first
    path.write_text("b\n")
    assert {name for name, value in key(cache, [str(path)], folders).items() if first[name] != value} == {
        f"system{path}"
    }
    path.unlink()
    assert f"system{path}" not in key(cache, [str(path)], folders)


def test_what_is_remembered_is_not_read(cache: Cache, folders: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(folders[2], "sys", "a.h")
    os.utime(path, (1, 1))
    # the time of a change of its state cannot be put back: the file is made to look old
    monkeypatch.setattr("relaybuild.artifact.surroundings.time.time", lambda: 1e12)
    first = key(cache, [str(path)], folders)
    monkeypatch.setattr(Cache, "inputs", None)
    assert key(cache, [str(path)], folders) == first


def test_a_file_in_its_way_counts(cache: Cache, folders: list[str]) -> None:
    path = str(Path(folders[2], "sys", "a.h"))
    assert key(cache, [path], folders)["option.shadows"] == "[]"
    for folder in folders[:2]:
        Path(folder, "sys").mkdir(parents=True)
        Path(folder, "sys", "a.h").write_text("another\n")
    assert key(cache, [path], folders)["option.shadows"].count("a.h") == 2
