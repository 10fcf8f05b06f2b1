"""Literals read back as the value they were written for; scalar expressions share what is used twice."""

from __future__ import annotations

import math
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from relaybuild.build.toolchain import probe
from relaybuild.errors import UnsupportedError
from relaybuild.lower.emit import Emitter, c_literal, c_type
from relaybuild.lower.index import Axis, Index
from relaybuild.lower.loop_ir import Builder
from relaybuild.lower.scalar import ScalarBuilder

FLOATS = [0.0, -0.0, 1.0, -1.0, 0.1, 1e-45, 1.17549435e-38, 3.4028234e38, -3.4028234e38, 1e10, 16777217.0, math.pi]
FLOATS += [math.inf, -math.inf, math.nan, 1e-30, 1.5e-31, 123456789.0, 5e-324, 1.7976931348623157e308]
INTEGERS = {
    "int8": [-128, -1, 0, 127],
    "int16": [-(2**15), 2**15 - 1],
    "int32": [-(2**31), -(2**31) + 1, 2**31 - 1, 0],
    "int64": [-(2**63), -(2**63) + 1, 2**63 - 1, 2**31, -(2**31), -(2**31) - 1, 7],
    "uint8": [0, 255],
    "uint16": [65535],
    "uint32": [2**32 - 1, 2**31, 5],
    "uint64": [2**64 - 1, 2**63, 2**32, 0],
    "bool": [False, True],
}


def stored(values: Sequence[tuple[str, str]], folder: Path) -> bytes:
    """The bytes of variables with the initial values, as a C compiler lays them out."""
    lines = ["#include <math.h>", "#include <stdint.h>", "#include <stdio.h>", "int main(void) {"]
    for number, (ctype, text) in enumerate(values):
        lines.append(f"const {ctype} v{number} = {text};")
        lines.append(f"fwrite(&v{number}, sizeof v{number}, 1, stdout);")
    (folder / "literals.c").write_text("\n".join([*lines, "return 0;", "}", ""]))
    program = str(folder / "literals")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([str(probe(None).path), *flags, str(folder / "literals.c"), "-o", program], check=True)
    return subprocess.run([program], capture_output=True, check=True).stdout


def test_literals_read_back(tmp_path: Path) -> None:
    texts: list[tuple[str, str]] = []
    expected = b""
    for value in FLOATS:
        texts.append(("double", c_literal(value, "float64")))
        expected += struct.pack("d", value)
        if not math.isfinite(value) or abs(value) <= 3.4028234e38:
            texts.append(("float", c_literal(float(np.float32(value)), "float32")))
            expected += struct.pack("f", np.float32(value))
    for dtype, values in INTEGERS.items():
        for number in values:
            texts.append((c_type(dtype), c_literal(number, dtype)))
            expected += np.asarray(number, dtype).tobytes()
    assert stored(texts, tmp_path) == expected


def test_a_type_without_c_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="'bfloat16'"):
        c_type("bfloat16")


def emitted(lanes: int) -> str:
    from relaybuild.lower.c_writer import print_statements

    scalars, builder = ScalarBuilder(), Builder()
    axis = Axis("lane", lanes - 1) if lanes > 1 else None
    index = Index.of(Axis("i", 15)) * 16 + (Index.of(axis) if axis else 0)
    x = scalars.load(0, index, "float32")
    root = scalars.unary("exp", x)
    for _ in range(3):
        root = scalars.binary("add", root, root)
    text = Emitter(builder, ["p0"], scalars, lanes, axis).emit(root)
    return "\n".join([*print_statements(builder.body, 0), text])


@pytest.mark.parametrize("lanes", [1, 8])
def test_what_is_used_twice_is_a_local(lanes: int) -> None:
    text = emitted(lanes)
    assert text.count("exp") == 1
    assert text.count(" + ") == 3 + (0 if lanes == 1 else text.count("p0 + "))


def test_equal_expressions_are_one_object() -> None:
    s = ScalarBuilder()
    x = s.load(0, Index.of(3), "float32")
    assert s.binary("add", x, x) is s.binary("add", s.load(0, Index.of(3), "float32"), x)
    assert s.const(0.0, "float32") is not s.const(-0.0, "float32")
    assert s.const(1, "int32") is not s.const(1.0, "float32")
    assert s.const(1, "int32") is not s.const(True, "bool")
    assert s.const(math.nan, "float32") is s.const(math.nan, "float32")


def test_ranges_that_are_known_are_constants() -> None:
    s = ScalarBuilder()
    i = Index.of(Axis("i", 9))
    assert s.in_range(i, 0, 10).data is True
    assert s.in_range(i + 10, 0, 10).data is False
    assert s.in_range(i - 10, 0, 5).data is False
    assert s.in_range(i, 0, 9).op == "range"
    assert s.in_range(i - 1, 0, 20).op == "range"


def test_a_guarded_load_stands_in_a_branch() -> None:
    from relaybuild.lower.c_writer import print_statements

    s, builder = ScalarBuilder(), Builder()
    i = Index.of(Axis("i", 9))
    inside = s.in_range(i - 2, 0, 5)
    root = s.select(inside, s.load(0, i - 2, "float32"), s.const(7.0, "float32"))
    text = Emitter(builder, ["p0"], s).emit(root)
    lines = print_statements(builder.body, 0)
    assert lines[0].startswith("float")
    assert lines[1] == "if ((i - 2 >= 0 && i - 2 < 5)) {"
    assert "p0[i - 2]" in "".join(lines[2:-2])
    assert text in lines[0]
