"""Dependency files are understood by the programs that read them: ninja, make, and cmake on the way to make."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaybuild.build.depfile import depfile_text, read_depfile, write_depfile
from relaybuild.build.ninja import find_ninja
from relaybuild.errors import UserError

NAMES = ["plain.onnx", "with space.onnx", "a#b", "$price", "ümlaut", "back\\slash", "(round) [x] ~", "a+b=c%d,e&f"]


def test_the_text() -> None:
    text = depfile_text(Path("out dir/model.so"), [Path("/a b/c"), Path("d#1$")])
    assert text == "out\\ dir/model.so: \\\n  /a\\ b/c \\\n  d\\#1$$\n"


def test_ninja_reads_every_name(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    write_depfile(tmp_path / "kept.d", Path("out"), [tmp_path / name for name in NAMES])
    rule = "rule make\n  command = cp kept.d out.d && cp kept.d out\n  depfile = out.d\n  deps = gcc\nbuild out: make\n"
    (tmp_path / "build.ninja").write_text(rule)
    run(tmp_path, find_ninja())
    lines = run(tmp_path, find_ninja(), "-t", "deps").splitlines()
    assert [line.strip() for line in lines if line.startswith("    ")] == [str(tmp_path / name) for name in NAMES]


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_reads_names_without_patterns(tmp_path: Path) -> None:
    # what is a pattern or a variable to make itself cannot be escaped everywhere
    names = [name for name in NAMES if not set(name) & set("[%=\\")]
    for name in names:
        (tmp_path / name).touch()
    write_depfile(tmp_path / "out.d", Path("out"), [Path(name) for name in names])
    (tmp_path / "Makefile").write_text("out:\n\ttouch out\ninclude out.d\n")
    run(tmp_path, "make", "-s")
    for name in names:
        (tmp_path / "out").touch()
        assert subprocess.run(["make", "-q"], cwd=tmp_path, check=False).returncode == 0
        later = (tmp_path / "out").stat().st_mtime + 10
        set_time(tmp_path / name, later)
        assert subprocess.run(["make", "-q"], cwd=tmp_path, check=False).returncode == 1, name
        set_time(tmp_path / name, later - 20)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_what_compilers_write_is_read(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    names = [name for name in NAMES if "\\" not in name]
    for name in names:
        (tmp_path / f"{name}.h").touch()
    (tmp_path / "main.c").write_text("".join(f'#include "{name}.h"\n' for name in names), encoding="utf-8")
    run(tmp_path, compiler, "-MD", "-MF", "out dir.d", "-c", "main.c", "-o", "out dir.o")
    found = read_depfile((tmp_path / "out dir.d").read_text(encoding="utf-8"))
    own = [name for name in found if not name.startswith("/usr/include/")]
    assert own == ["main.c", *(f"{name}.h" for name in names)]


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\n\r\0/", exclude_categories=["C", "Z"]) | st.just(" "), min_size=1)
    )
)
def test_what_was_written_is_read(names: list[str]) -> None:
    inputs = [Path(f"x{name}y") for name in names]
    assert read_depfile(depfile_text(Path("out dir"), inputs)) == tuple(map(str, inputs))


@pytest.mark.parametrize("text", ["", "no rule\n", "a b c", "out:", "out:\n"])
def test_what_is_no_rule_has_no_inputs(text: str) -> None:
    assert read_depfile(text) == ()


def test_a_file_that_says_the_same_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.d"
    write_depfile(path, Path("out"), [Path("in")])
    set_time(path, 1)
    write_depfile(path, Path("out"), [Path("in")])
    assert path.stat().st_mtime == 1


def test_a_name_with_a_lines_end_is_refused() -> None:
    with pytest.raises(UserError, match="a line's end in its name"):
        depfile_text(Path("out"), [Path("a\nb")])


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def set_time(path: Path, seconds: float) -> None:
    os.utime(path, (seconds, seconds))
