"""What installed packages declare: found on Python's path, as `importlib.metadata` finds it, and loaded when asked."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from relaybuild.entry_points import EntryPoint, entry_points, metadata_folders
from relaybuild.errors import UserError

GROUP = "users.tools"


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders of packages, the first before the second on Python's path, and one that is not there."""
    first, second = tmp_path / "first", tmp_path / "second"
    monkeypatch.setattr(sys, "path", [str(first), str(tmp_path / "absent"), str(second), *sys.path])
    return first, second


def declare(place: Path, package: str, *lines: str) -> Path:
    folder = place / package
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.partition('-')[0]}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("\n".join(("[console_scripts]", "a = b:c", f"[{GROUP}]", *lines)))
    return folder


def test_what_is_declared_is_found_as_by_the_standard_library(places: tuple[Path, Path]) -> None:
    first, second = places
    declare(first, "Saws-1.0.dist-info", "saw = users_saws:Saw", "Fret.Saw = users_saws.fret : Saw.small [extra]")
    declare(second, "saws-2.0.dist-info", "saw = users_old_saws:Saw")
    declare(second, "planes.egg-info", "plane = users_planes")
    found = entry_points(GROUP)
    assert [(point.name, point.module) for point in found] == [
        ("saw", "users_saws"),
        ("Fret.Saw", "users_saws.fret"),
        ("plane", "users_planes"),
    ]
    theirs = importlib.metadata.entry_points(group=GROUP)
    assert {(point.name, point.value) for point in found} == {(point.name, point.value) for point in theirs}
    assert {str(first / "Saws-1.0.dist-info"), str(second / "planes.egg-info")} <= {*metadata_folders()}


def test_other_groups_are_none(places: tuple[Path, Path]) -> None:
    declare(places[0], "saws-1.0.dist-info", "saw = users_saws:Saw")
    assert entry_points("users.other") == []


def test_an_object_is_loaded_by_its_path() -> None:
    assert EntryPoint("x", "os.path").load() is sys.modules["os.path"]
    assert EntryPoint("x", "pathlib : Path.cwd [extra]").load() == Path.cwd
    with pytest.raises(AttributeError, match="absent"):
        EntryPoint("x", "pathlib:Path.absent").load()
    with pytest.raises(ModuleNotFoundError, match="users_absent_module"):
        EntryPoint("x", "users_absent_module").load()


def test_a_declaration_without_form_is_an_error_that_names_its_folder(places: tuple[Path, Path]) -> None:
    folder = declare(places[0], "saws-1.0.dist-info", "no delimiter here")
    with pytest.raises(UserError, match=f"'{folder}' has entry points that cannot be read"):
        entry_points(GROUP)
