"""What a trace tells: paths and contents that were asked for, and what cannot be asked again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from relaybuild.build.cmake_files import Inputs
from relaybuild.build.cmake_output import Position
from relaybuild.build.cmake_trace import Trace, trace_of

SCRIPT = "/p/config.cmake"
OWN = "/usr/share/cmake/Modules/CMakeDetermineSystem.cmake"
FIND = "/usr/share/cmake/Modules/FindPkgConfig.cmake"
BUILD = Path("/tmp/run")


def read(folder: Path, *events: tuple[str, list[str]], script: str = SCRIPT) -> Trace:
    path = folder / "trace.json"
    lines: list[object] = [{"version": {"major": 1, "minor": 2}}]
    lines += [{"cmd": name, "args": args, "file": script, "line": i} for i, (name, args) in enumerate(events, 1)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    return trace_of(path, Inputs(frozenset((SCRIPT,)), frozenset((OWN, FIND))), BUILD)


def test_what_a_script_asks_the_file_system_for(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        ("if", ["NOT", "EXISTS", "/a", "AND", "X"]),
        ("elseif", ["IS_DIRECTORY", "/b"]),
        ("IF", ["IS_SYMLINK", "/c", "OR", "EXISTS", "relative"]),
        ("file", ["STRINGS", "/d", "lines"]),
        ("file", ["SHA256", "/e", "digest"]),
        ("file", ["READ", "/tmp/run/own", "text"]),
        ("file", ["GLOB", "found", "CONFIGURE_DEPENDS", "/f/*.cmake", "/g/x?"]),
        ("get_filename_component", ["x", "/h", "REALPATH"]),
        ("file", ["REAL_PATH", "/i", "x"]),
        ("include", ["parts/j.cmake", "OPTIONAL"]),
        ("file", ["RELATIVE_PATH", "x", "/p", "/q"]),
        ("file", ["WRITE", "/tmp/run/result.json", "x"]),
        ("string", ["TOUPPER", "a", "b"]),
        ("message", ["STATUS", "/k"]),
    )
    assert trace.opaque == ""
    assert trace.subjects.files == {"/d", "/e"}
    assert trace.subjects.paths >= {"/a", "/b", "/c", "/h", "/i", "/p/parts/j.cmake"}
    assert "relative" not in trace.subjects.paths
    assert trace.subjects.entries == {("/f", ""), ("/g", "")}


def test_where_variables_were_set_last(tmp_path: Path) -> None:
    trace = read(tmp_path, ("set", ["A", "1"]), ("option", ["B", "b", "ON"]), ("set", ["A", "2"]))
    assert trace.assignments == {"A": Position(SCRIPT, 3), "B": Position(SCRIPT, 2)}


@pytest.mark.parametrize(
    "event",
    [
        ("execute_process", ["COMMAND", "uname"]),
        ("try_compile", ["x"]),
        ("file", ["WRITE", "/p/x", "y"]),
        ("file", ["DOWNLOAD", "http://127.0.0.1", "/p/x"]),
        ("file", ["TIMESTAMP", "/p/x", "y"]),
        ("file", ["GLOB_RECURSE", "found", "/p/*.h"]),
        ("file", ["GLOB", "found", "/p/*/x.h"]),
        ("string", ["RANDOM", "x"]),
        ("string", ["TIMESTAMP", "x"]),
        ("if", ["/a", "IS_NEWER_THAN", "/b"]),
        ("get_filename_component", ["x", "ls", "PROGRAM"]),
        ("site_name", ["x"]),
    ],
)
def test_what_cannot_be_asked_again(tmp_path: Path, event: tuple[str, list[str]]) -> None:
    trace = read(tmp_path, ("set", ["A", "1"]), event)
    assert trace.opaque.endswith(f" at {SCRIPT}:2")


def test_programs_by_which_cmake_knows_the_machine_are_files(tmp_path: Path) -> None:
    event = ("execute_process", ["COMMAND", sys.executable, "-s", "OUTPUT_VARIABLE", "x"])
    assert read(tmp_path, event, script=OWN).opaque == ""
    assert read(tmp_path, event, script=OWN).subjects.files == {sys.executable}
    assert read(tmp_path, event, script=FIND).opaque.endswith(f" at {FIND}:1")


def test_cmakes_own_notes_are_its_business(tmp_path: Path) -> None:
    assert read(tmp_path, ("file", ["APPEND", "/p/log", "x"]), ("string", ["RANDOM", "x"]), script=OWN).opaque == ""
