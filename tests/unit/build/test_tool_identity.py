"""Whatever decides what a compiler makes is seen in its identity, whether it is a program or a script around one."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import open_cache
from relaybuild.build.flags import objection_to_command, objection_to_flags
from relaybuild.build.tool_identity import shown_words
from relaybuild.build.toolchain import Toolchain, probe

FIRST, SECOND = "-fno-inline", "-fno-omit-frame-pointer -mno-red-zone"


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def inner_script(folder: Path, flags: str) -> Path:
    script(folder / "inner", f'#!/bin/sh\nexec cc {flags} "$@"\n')
    return script(folder / "outer", f'#!/bin/sh\nexec {folder}/inner "$@"\n')


def computed(folder: Path, flags: str) -> Path:
    (folder / "flags").write_text(flags, encoding="utf-8")
    return script(folder / "outer", f'#!/bin/sh\nexec cc $(cat {folder}/flags) "$@"\n')


def response_file(folder: Path, flags: str) -> Path:
    (folder / "flags").write_text(flags, encoding="utf-8")
    return script(folder / "outer", f'#!/bin/sh\nexec cc @{folder}/flags "$@"\n')


def sourced(folder: Path, flags: str) -> Path:
    (folder / "settings.sh").write_text(f'exec cc {flags} "$@"\n', encoding="utf-8")
    return script(folder / "outer", f"#!/bin/sh\n. {folder}/settings.sh\n")


def python(folder: Path, flags: str) -> Path:
    (folder / "flags").write_text(flags, encoding="utf-8")
    run = f"os.execvp('cc', ['cc', *open('{folder}/flags').read().split(), *sys.argv[1:]])"
    return script(folder / "outer", f"#!{sys.executable}\nimport os, sys\n{run}\n")


WRAPPERS: Mapping[str, Callable[[Path, str], Path]] = {
    "a script in a script": inner_script,
    "flags that are computed": computed,
    "flags in a response file": response_file,
    "a script that is read": sourced,
    "a Python program": python,
}


@pytest.mark.parametrize("wrapper", WRAPPERS.values(), ids=WRAPPERS)
def test_flags_that_a_wrapper_adds(tmp_path: Path, toolchain: Toolchain, wrapper: Callable[[Path, str], Path]) -> None:
    def found(flags: str) -> Toolchain:
        with open_cache(CacheSettings(tmp_path / "cache")) as cache:
            return probe(str(wrapper(tmp_path, flags)), cache=cache)

    first, again, other = found(FIRST), found(FIRST), found(SECOND)
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert not first.objection


def test_a_linker_of_which_it_is_not_known_what_it_runs(tmp_path: Path, toolchain: Toolchain) -> None:
    script(tmp_path / "bin" / "ld", f'#!/bin/sh\nexec $(cat {tmp_path}/which) "$@"\n')
    (tmp_path / "which").write_text("/usr/bin/ld")
    environ = {**os.environ, "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    found = probe(str(toolchain.path), environ=environ)
    if str(tmp_path / "bin" / "ld") not in found.programs:
        pytest.skip("this compiler does not look for its linker on the PATH")
    assert found.objection.endswith("is a script of which it is not known what it runs")


def test_the_name_under_which_a_compiler_is_called_does_not_count(tmp_path: Path, toolchain: Toolchain) -> None:
    (tmp_path / "other-gcc").symlink_to(toolchain.path)
    assert probe(str(tmp_path / "other-gcc")).digest == toolchain.digest


def test_words_of_commands_without_places() -> None:
    text = """gcc version 12
COMPILER_PATH=/usr/lib/gcc/
 /usr/lib/gcc/cc1 -quiet probe.c -mtune=generic -O2 -o - |
 "/usr/bin/ld" "-plugin-opt=-fresolution=/tmp/ccBk1Q.res" "-L/usr/lib" "-dumpdir" "/tmp/x/a-"
"""
    expected = ["", "-quiet", "probe.c", "-mtune=generic", "-O2", "-o", "-", "|"]
    assert [*shown_words(text)] == [*expected, "", "-plugin-opt=-fresolution=", "-L", "-dumpdir", ""]
    assert [*shown_words(' cc1 "unbalanced\n')] == ["cc1", '"unbalanced']


@pytest.mark.parametrize(
    "flag", ["-include", "-imacros", "-L", "-L/usr/lib", "-Tx.ld", "-Wl,-z,now", "-Xlinker", "-lz"]
)
def test_flags_that_name_files_of_which_nobody_has_told(flag: str) -> None:
    assert objection_to_command(["-O1", flag]) == f"'{flag}' may read files that are not known"
    assert objection_to_flags([flag]) == ""


@pytest.mark.parametrize("flags", [("@flags",), ("-specs=x",), ("-O2", "-fplugin=x")])
def test_flags_that_no_key_may_have(flags: tuple[str, ...]) -> None:
    assert (
        objection_to_flags(flags) == objection_to_command(flags) == f"'{flags[-1]}' may read files that are not known"
    )


@pytest.mark.parametrize("flags", [(), ("-O2", "-I/x", "-isystem", "/y", "--sysroot=/z", "-m64", "-DNAME=1")])
def test_other_flags_are_keyed_as_they_are(flags: tuple[str, ...]) -> None:
    assert objection_to_command(flags) == ""
