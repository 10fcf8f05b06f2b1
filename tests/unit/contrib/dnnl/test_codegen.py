"""The unit that describes a region to the runtime."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from runners.packed import options, typed
from runners.vendors import region_of

from relaybuild.contrib.dnnl import BACKEND
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Function, Var, const
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.runtime.sources import include_dir

ROOT = Path(__file__).parents[4]

TEXT = """
def @main(%x: Tensor[(1, 8, 14, 14), float32], %w: Tensor[(16, 8, 3, 3), float32], %b: Tensor[(16, 1, 1), float32],
          %k: Tensor[(16, 1, 3, 3), float32]) {
  %0 = nn.conv2d(%x, %w, padding=[1, 1, 1, 1], strides=[2, 2]);
  %1 = add(%0, %b);
  %2 = clip(%1, a_min=0f, a_max=6f);
  %3 = nn.conv2d(%2, %k, groups=16, padding=[1, 1, 1, 1]);
  %4 = add(%3, %2);
  nn.relu(%4)
}
"""


def source_of(function: Function, constants: frozenset[int] = frozenset()) -> str:
    return BACKEND.codegen(function, options(function, "dnnl_0", constants)).units[0].text


def region(text: str) -> Function:
    main = typed(text)["main"]
    return region_of(BACKEND, main.params, [main.body])


def test_the_text_of_a_region() -> None:
    wanted = Path(__file__).with_name("region.c").read_text(encoding="utf-8")
    assert source_of(region(TEXT), frozenset({1, 2, 3})) == wanted


def test_the_readme_shows_that_text() -> None:
    readme = (ROOT / "relaybuild/contrib/dnnl/README.md").read_text(encoding="utf-8")
    shown = readme.split("```c\n")[1].split("```")[0]
    assert shown.count("\n") > 10
    assert shown in Path(__file__).with_name("region.c").read_text(encoding="utf-8")


def test_the_unit_needs_no_header_of_onednn(tmp_path: Path) -> None:
    """It is data: strict C11, compiled before anything of oneDNN is asked for."""
    unit = tmp_path / "region.c"
    unit.write_text(source_of(region(TEXT)), encoding="utf-8")
    flags = ["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", f"-I{include_dir()}", f"-I{BACKEND.folder}"]
    done = subprocess.run(
        ["cc", *flags, "-fsyntax-only", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_instances_keep_state() -> None:
    function = region(TEXT)
    assert BACKEND.codegen(function, options(function)).stateful


def test_constants_of_the_body_are_literals() -> None:
    x = Var("x", TensorType((2, 2)))
    text = source_of(region_of(BACKEND, [x], [call_op("nn.dense", [x, const([[1.5, -2.0]], "float32")])]))
    assert "static const float dnnl_0_const_0[2] = {\n    1.5f, -2.0f,\n};" in text
    assert "{RB_DNNL_LITERAL, 2, dnnl_0_const_0}" in text


def test_matrices_are_seen_as_few_axes_as_they_need() -> None:
    params = "%a: Tensor[(2, 3, 4, 7), float32], %b: Tensor[(7, 5), float32], %c: Tensor[(2, 3, 5, 4), float32]"
    text = source_of(region(f"def @main({params}) {{ %0 = nn.matmul(%a, %b); nn.matmul(%0, %c) }}"))
    assert ".src = {0, 2, {24, 7}, 0}," in text
    assert ".src = {3, 3, {6, 4, 5}, 0}," in text


def test_what_was_not_taken_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"has no C for 'nn\.relu'"):
        source_of(typed("def @main(%x: Tensor[(3,), float32]) { nn.relu(%x) }")["main"])
    params = "%x: Tensor[(3, 4), float64], %w: Tensor[(3, 4), float64]"
    wide = typed(f"def @main({params}) {{ nn.dense(%x, %w) }}")["main"]
    with pytest.raises(UnsupportedError, match=r"'nn\.dense': found float64, expected float32"):
        source_of(wide)
