"""How places in scripts are named, and texts quoted; runs are in test_configure.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build import detect
from relaybuild.build.cmake_output import Position
from relaybuild.build.detect import shown


@pytest.mark.parametrize(
    ("config", "file", "place"),
    [
        ("config.cmake", "config.cmake", "config.cmake:7"),
        ("config.cmake", "parts/a.cmake", "parts/a.cmake:7"),
        ("../here/config.cmake", "config.cmake", "../here/config.cmake:7"),
        ("parts/config.cmake", "config.cmake", "{here}/config.cmake:7"),
        (None, "config.cmake", "{here}/config.cmake:7"),
    ],
)
def test_places_are_named_from_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str | None, file: str, place: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    position = Position(str(here / file), 7)
    assert shown(position, Path(config) if config else None) == place.format(here=here)


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", "[=[]=]"),
        ('a$b"c\\', '[=[a$b"c\\]=]'),
        ("a]=]b", "[==[a]=]b]==]"),
        ("a]=", "[==[a]=]==]"),
    ],
)
def test_quoted_texts_end_where_they_should(text: str, quoted: str) -> None:
    assert detect._quoted(text) == quoted
