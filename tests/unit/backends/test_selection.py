"""Which backends a configuration switches on, in which order, and what it must not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from relaybuild.backends.selection import select
from relaybuild.errors import UserError
from relaybuild.partition.backend import Backend, register_backend


def test_nothing_is_on_unless_it_is_asked_for() -> None:
    assert select(None).tags == ()
    assert select({"USE_CODEGENC": "OFF", "USE_EXAMPLE_JSON": False}).tags == ()


def test_backends_of_higher_priority_come_first() -> None:
    found = select({"USE_CODEGENC": True, "USE_EXAMPLE_JSON": "ON"})
    priorities = [backend.priority for backend in found.backends]
    assert set(found.tags) == {"ccompiler", "examplejsoncompiler"}
    assert priorities == sorted(priorities, reverse=True)


def test_a_backend_without_a_flag_is_on_beside_those_that_are_asked_for() -> None:
    def generate(*args: Any) -> Any:
        raise AssertionError("no code is generated here")

    register_backend(Backend("script", "script", "", generate, priority=10**6))
    assert select(None).tags == ("script",)
    found = select({"USE_CODEGENC": "ON"})
    assert found.tags == ("script", "ccompiler")
    assert [found.of(backend) is None for backend in found.backends] == [True, False]


@pytest.mark.parametrize(
    ("in_file", "flags", "is_on"),
    [
        ("ON", {}, True),
        ("OFF", {}, False),
        ("ON", {"USE_CODEGENC": "OFF"}, False),
        ("OFF", {"USE_CODEGENC": "ON"}, True),
    ],
)
def test_flags_win_over_the_file_and_that_over_the_default(
    in_file: str, flags: dict[str, object], is_on: bool, tmp_path: Path
) -> None:
    script = tmp_path / "config.cmake"
    script.write_text(f"set(USE_CODEGENC {in_file})\n", encoding="utf-8")
    assert (select(script, flags, cache_dir=tmp_path / "cache").tags == ("ccompiler",)) is is_on
    assert (select({"USE_CODEGENC": in_file}, flags).tags == ("ccompiler",)) is is_on


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("USE_CODEGENC", "MAYBE", "USE_CODEGENC: found 'MAYBE', expected OFF or ON"),
        ("USE_EXAMPLE_JSON", 2, "USE_EXAMPLE_JSON: found '2', expected OFF or ON"),
        ("USE_CODEGENC", "AUTO", "USE_CODEGENC: found 'AUTO', expected OFF or ON"),
        ("USE_CBLAS", "/nowhere", "found '/nowhere', which is no file or folder; expected OFF, AUTO, ON or a path"),
        ("USE_DNNL", "maybe", "found 'maybe', which is no file or folder; expected OFF, AUTO, ON or a path"),
        ("USE_DNLL", "ON", "no backend obeys the flag 'USE_DNLL'; did you mean 'USE_DNNL'?"),
    ],
)
def test_values_that_a_flag_does_not_take(flag: str, value: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        select({flag: value}, cache_dir=tmp_path)
    assert message in str(raised.value)


HIDE = """
set(CMAKE_FIND_ROOT_PATH "{0}")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set({1} {2})
"""


@pytest.mark.parametrize("flag", ["USE_CBLAS", "USE_DNNL"])
def test_a_library_that_is_not_there(flag: str, tmp_path: Path) -> None:
    """At AUTO its backend is off, and what was not found is said; at ON that is an error which says what to install."""
    script = tmp_path / "config.cmake"
    (tmp_path / "empty").mkdir()
    script.write_text(HIDE.format(tmp_path / "empty", flag, "AUTO"), encoding="utf-8")
    found = select(script, cache_dir=tmp_path / "cache")
    assert found.tags == ()
    assert not found.settings[flag].enabled
    assert "there is neither a library" in found.settings[flag].message
    script.write_text(HIDE.format(tmp_path / "empty", flag, "ON"), encoding="utf-8")
    with pytest.raises(UserError, match=rf"neither .* run 'apt-get install \S+' .* its place with {flag}=/path"):
        select(script, cache_dir=tmp_path / "cache")
