"""Errors and searches in what CMake prints, old and new wording."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.build.cmake_output import CMakeError, Position, errors_of, searches_of

BUILD = Path("/tmp/run")

ERRORS = """\
-- The system is: Linux
CMake Error at /p/config.cmake:3 (message):
  a text that is so long that it had to be
  broken

    and indented
Call Stack (most recent call first):
  /p/outer.cmake:7 (include)
  CMakeLists.txt:12 (include)


CMake Warning at /p/config.cmake:4 (message):
  no error
Call Stack (most recent call first):
  CMakeLists.txt:12 (include)

CMake Error at /p/config.cmake:9:
  Parse error.  Expected a newline, got identifier with text "x".

CMake Error at /p/config.cmake:11 (if):
  Flow control statements are not properly nested.

CMake Error: could not do it
-- Configuring incomplete, errors occurred!
"""


def test_errors_with_their_places() -> None:
    assert errors_of(ERRORS) == (
        CMakeError(
            "a text that is so long that it had to be broken and indented",
            (Position("/p/config.cmake", 3), Position("/p/outer.cmake", 7), Position("CMakeLists.txt", 12)),
        ),
        CMakeError(
            'Parse error.  Expected a newline, got identifier with text "x".', (Position("/p/config.cmake", 9),)
        ),
        CMakeError("if: Flow control statements are not properly nested.", (Position("/p/config.cmake", 11),)),
        CMakeError("could not do it", ()),
    )


def search(command: str, *lines: str) -> str:
    body = "\n".join(lines)
    return f"CMake Debug Log at CMakeLists.txt:4 ({command}):\n{body}\n\n-- done\n"


def entries(text: str, architecture: str = "") -> set[tuple[str, str]]:
    found = searches_of(text, BUILD, architecture)
    assert found is not None
    assert not found.files | found.paths | found.variables
    return set(found.entries)


@pytest.mark.parametrize("pattern", ["(lib)foo-x(\\.so|\\.a)", "/libfoo-x(\\.so|\\.a)", "libfoo-x\\.(dylib|a)"])
def test_libraries_that_were_looked_for(pattern: str) -> None:
    text = search(
        "find_library",
        "  find_library called with the following settings:",
        "    VAR: FOO",
        '    NAMES: "foo-x"',
        "  find_library considered the following locations:",
        "",
        f"    /usr/lib/{pattern}",
        f"    /tmp/run/build/{pattern}",
        "",
        "  The item was found at",
        "",
        "    /opt/with space/libfoo-x.a",
    )
    assert {(folder, stem.rstrip(".")) for folder, stem in entries(text)} == {
        ("/usr/lib", "foo-x"),
        ("/opt/with space", "libfoo-x.a"),
    }


def test_headers_that_were_looked_for() -> None:
    text = search(
        "find_path",
        '    NAMES: "a/b.h"',
        '           "c.h"',
        "    /usr/local/include/a/b.h",
        "  The item was found at",
        "",
        "    /usr/include/",
    )
    assert entries(text) == {("/usr/local/include/a", "b.h"), ("/usr/include/a", "b.h"), ("/usr/include", "c.h")}


def test_packages_that_were_looked_for() -> None:
    text = search(
        "find_package",
        "  Standard system environment variables",
        "",
        "    /usr",
        "",
        "  find_package considered the following locations for Foo's Config module:",
        "",
        "    /usr/lib/cmake/foo/FooConfig.cmake",
        "    /usr/lib/cmake/foo/foo-config.cmake",
        "    /tmp/run/build/FooConfig.cmake",
    )
    found = entries(text, "x86_64-linux-gnu")
    assert {("/usr/lib/cmake/foo", "FooConfig.cmake"), ("/usr/lib/cmake/foo", "foo-config.cmake")} <= found
    below = {folder for folder, name in found if name == "Foo"}
    assert {"/usr", "/usr/lib", "/usr/lib/cmake", "/usr/share", "/usr/lib/x86_64-linux-gnu/cmake"} <= below
    assert not any(folder.startswith("/tmp/run") for folder, _ in found)


def test_a_log_without_searches_tells_nothing() -> None:
    assert searches_of("-- Configuring done\n", BUILD, "") is None
