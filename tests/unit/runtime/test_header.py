"""The C header of a model: it compiles by itself, its example works, its names never collide."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.runtime import TensorSpec, c_identifier, include_dir, model_header, standalone_header

from .building import DATA, INPUTS, OUTPUTS, RUNTIME, STRICT, cc, compiled

C99 = ("-std=c99", *STRICT[1:])
CXX = ("-x", "c++", "-std=c++11", "-Wall", "-Wextra", "-Wold-style-cast", "-Werror", "-pedantic")


def example(header: str) -> str:
    """The code in the header's introduction."""
    comment = header.split("*/")[0]
    return "\n".join(re.findall(r"^ \*   (.*)$", comment, re.MULTILINE))


def test_example_runs_from_one_file(tmp_path: Path) -> None:
    header = standalone_header("sample", INPUTS, OUTPUTS)
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "sample.h").write_text(header)
    check = "for (int i = 0; i < SAMPLE_OUTPUT_TOTAL_SIZE; ++i) if (output_1[i] != 0) return 1;"
    source = f'#include "sample.h"\n#include <stdio.h>\nint main(void) {{\n{example(header)}\n{check}\nreturn 0;\n}}\n'
    (tmp_path / "main.c").write_text(source)
    cc(*STRICT, f"-I{tmp_path / 'only'}", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    objects = [compiled(source) for source in (DATA / "program.c", *RUNTIME)]
    cc(tmp_path / "main.o", *objects, "-o", tmp_path / "main", "-pthread")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("write", [model_header, standalone_header])
@pytest.mark.parametrize("language", [STRICT, C99, CXX])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compiles_without_warnings(write: object, language: tuple[str, ...], compiler: str, tmp_path: Path) -> None:
    assert callable(write)
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    (tmp_path / "a.h").write_text(write("digits", INPUTS, OUTPUTS))
    (tmp_path / "b.h").write_text(write("other", (), (TensorSpec("scalar", (), "int64"),)))
    (tmp_path / "main.c").write_text(
        '#include "a.h"\n#include "b.h"\n#include "a.h"\n'
        "int64_t shape[DIGITS_INPUT_X_NDIM] = DIGITS_INPUT_X_SHAPE;\n"
        "char first[DIGITS_INPUT_X == 0 && DIGITS_INPUT_THE_BIAS == 1 && DIGITS_NUM_INPUTS == 2 ? 1 : -1];\n"
        "char second[OTHER_NUM_INPUTS == 0 && OTHER_OUTPUT_SCALAR_SIZE == 1 && OTHER_NUM_OUTPUTS == 1 ? 1 : -1];\n"
    )
    include = [f"-I{include_dir()}"] if write is model_header else []
    cc(*language, *include, "-c", tmp_path / "main.c", "-o", tmp_path / "main.o", compiler=compiler)


def test_users_own_dlpack_comes_first(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text(standalone_header("digits", INPUTS, OUTPUTS))
    dlpack = include_dir() / "relaybuild" / "dlpack.h"
    (tmp_path / "main.c").write_text(f'#include "{dlpack}"\n#include "a.h"\nint main(void) {{ return 0; }}\n')
    cc(*STRICT, "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")


def test_standalone_includes_only_the_standard_library() -> None:
    includes = set(re.findall(r"#\s*include\s*(\S+)", standalone_header("digits", INPUTS, OUTPUTS)))
    assert includes == {"<stddef.h>", "<stdint.h>"}


def test_constants_never_collide(tmp_path: Path) -> None:
    names = ["x", "X", "x size", "x.size", "x_ndim", "x/shape", "", "***", "日本", "9", "x_2", "end */ of", "a\nb"]
    specs = tuple(TensorSpec(name, (1, 2), "float32") for name in names)
    header = model_header("many", specs, specs)
    (tmp_path / "main.c").write_text(header)
    cc(*STRICT, f"-I{include_dir()}", "-c", tmp_path / "main.c", "-o", tmp_path / "main.o")
    defined = re.findall(r"#define (\w+)|^  (\w+) =", header, re.MULTILINE)
    flat = [first or second for first, second in defined]
    assert len(flat) == len(set(flat)) == 1 + 2 * (4 * len(names) + 1)


@pytest.mark.parametrize(
    ("name", "identifier"),
    [
        ("digits", "digits"),
        ("my-model.v2", "my_model_v2"),
        ("9net", "model_9net"),
        ("", "model"),
        ("größe", "gr_e"),
        ("timer", "timer_model"),
        ("rb", "rb_model"),
        ("relaybuild", "relaybuild_model"),
    ],
)
def test_identifiers(name: str, identifier: str) -> None:
    assert c_identifier(name) == identifier
