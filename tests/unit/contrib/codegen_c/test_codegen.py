"""The C of element-wise regions: what it is, that it computes what the operators mean, and what it declines."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runners.packed import build, options, typed

from relaybuild.contrib.codegen_c import BACKEND
from relaybuild.contrib.codegen_c.operators import DTYPES
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Expr, Function, Tuple, Var, const
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import all_backends, flat_types

ROOT = Path(__file__).parents[4]
BOTH_KINDS = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
FLOATS_ONLY = ("exp", "log", "tanh", "sigmoid", "sqrt", "floor", "ceil")
EXACT_UNARY = ("nn.relu", "negative", "abs")
ROUNDED = ("exp", "log", "tanh", "sigmoid", "power")
"""What two libraries of functions may round differently."""
TOLERANCE = {"float32": 2e-6, "float64": 4e-15}
SPECIAL = (0, -1, 1, float("nan"), float("inf"), float("-inf"), -0.0, 1e30)

TUTORIAL = """
def @main(%a: Tensor[(10, 10), float32], %b: Tensor[(10, 10), float32],
          %c: Tensor[(10, 10), float32], %d: Tensor[(10, 10), float32]) {
  multiply(subtract(add(%a, %b), %c), %d)
}
"""


def source_of(function: Function, symbol: str = "region") -> str:
    return BACKEND.codegen(function, options(function, symbol)).units[0].text


def test_the_text_of_a_region() -> None:
    wanted = Path(__file__).with_name("region.c").read_text(encoding="utf-8")
    assert source_of(typed(TUTORIAL)["main"], "ccompiler_0") == wanted


def test_the_readme_shows_that_text() -> None:
    readme = (ROOT / "relaybuild/contrib/codegen_c/README.md").read_text(encoding="utf-8")
    shown = readme.split("```c\n")[1].split("```")[0]
    assert shown in Path(__file__).with_name("region.c").read_text(encoding="utf-8")
    assert shown.count("\n") > 20


def test_the_backend_is_found_by_its_tag() -> None:
    backend = all_backends()["ccompiler"]
    assert (backend.name, backend.cmake_flag, backend.cmake_module) == ("codegen_c", "USE_CODEGENC", "CODEGENC")


@dataclass
class Region:
    """A random region, and arguments for it. Only what rounds alike everywhere is computed with again."""

    params: list[Var]
    arguments: list[Any]
    exact: list[Expr]
    rounded: list[Expr]

    def compare(self) -> None:
        """Fail where the C and the reference semantics differ."""
        function = Function(self.params, Tuple([*self.exact, *self.rounded]))
        module = infer_types(IRModule({"main": function}))
        wanted = interpret(module, *self.arguments)
        with tempfile.TemporaryDirectory() as folder:
            library = build(BACKEND.codegen(module["main"], options(module["main"])).units, Path(folder))
            found = library.run("region", self.arguments, flat_types(module["main"].body.checked_type))
        for number, (value, want, have) in enumerate(zip((*self.exact, *self.rounded), wanted, found)):
            if number < len(self.exact):
                np.testing.assert_array_equal(have, want, str(value))
            else:
                np.testing.assert_allclose(have, want, TOLERANCE[want.dtype.name], err_msg=str(value))


def numbers(random: np.random.Generator, shape: Sequence[int], dtype: str) -> Any:
    if dtype.startswith("int"):
        limits = np.iinfo(dtype)
        pool = np.array(
            [0, -1, 1, 2, 3, -7, limits.min, limits.max, *random.integers(limits.min, limits.max, 8)], dtype
        )
    else:
        pool = np.array([*SPECIAL, *random.normal(size=24)]).astype(dtype)
    return random.choice(pool, size=tuple(shape)) if shape else np.asarray(random.choice(pool))


@st.composite
def regions(draw: st.DrawFn) -> Region:
    """Tensors of ranks 0 to 6 that broadcast to one shape, and calls over them."""
    dtype = draw(st.sampled_from(DTYPES))
    largest = draw(st.lists(st.integers(1, 4) | st.sampled_from((0, 1)), max_size=6))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    region = Region([], [], [], [])
    for number in range(draw(st.integers(1, 4))):
        shape = [draw(st.sampled_from((extent, extent, 1))) for extent in largest]
        shape = shape[draw(st.integers(0, len(shape))) :]
        region.params.append(Var(f"x{number}", TensorType(tuple(shape), dtype)))
        region.arguments.append(numbers(random, shape, dtype))
    region.exact = [const(numbers(random, (), dtype)), const(numbers(random, largest, dtype)), *region.params]
    for _ in range(draw(st.integers(1, 12))):
        draw_call(draw, region, dtype)
    return region


def draw_call(draw: st.DrawFn, region: Region, dtype: str) -> None:
    operand = st.sampled_from(region.exact)
    floats = dtype.startswith("float")
    name = draw(st.sampled_from((*BOTH_KINDS, *EXACT_UNARY, "clip", "power", *(FLOATS_ONLY if floats else ()))))
    attrs: dict[str, object] = {}
    if name == "clip":
        limit = st.none() | st.floats(-3, 3) | st.sampled_from((1e30, -1e30, float("inf")))
        attrs = {"a_min": draw(limit), "a_max": draw(limit)}
    args = [draw(operand) for _ in range(2 if name in (*BOTH_KINDS, "power") else 1)]
    call = call_op(name, args, **attrs)
    (region.rounded if floats and name in ROUNDED else region.exact).append(call)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(regions())
def test_regions_mean_what_their_operators_do(region: Region) -> None:
    region.compare()


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_operator_over_every_special_number(dtype: str) -> None:
    """Each number with each, in one region of all operators."""
    random = np.random.default_rng(5)
    row = numbers(random, (40,), dtype)
    a, b = Var("a", TensorType((40, 1), dtype)), Var("b", TensorType((40,), dtype))
    region = Region([a, b], [row.reshape(40, 1), row], [], [])
    for name in (*BOTH_KINDS, "power"):
        region.exact.append(call_op(name, [a, b]))
    region.exact += [call_op(name, [b]) for name in EXACT_UNARY]
    if dtype.startswith("float"):
        region.exact += [call_op(name, [b]) for name in ("sqrt", "floor", "ceil")]
        power = region.exact.pop(len(BOTH_KINDS))
        region.rounded = [power, *(call_op(name, [b]) for name in ROUNDED if name != "power")]
    region.compare()


@pytest.mark.parametrize("limits", [(0.0, 6.0), (None, 6.0), (0.5, None), (None, None), (3.0, -3.0), (-1e30, 1e30)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_clip(limits: tuple[float | None, float | None], dtype: str) -> None:
    x = Var("x", TensorType((40,), dtype))
    low, high = limits
    values = numbers(np.random.default_rng(1), (40,), dtype)
    Region([x], [values], [call_op("clip", [x], a_min=low, a_max=high)], []).compare()


def one_call(text: str) -> Call:
    params = "%x: Tensor[(n, 3), float32], %h: Tensor[(3,), float16], %i: int32, %f: float32"
    call = typed(f"def @main({params}) {{ {text} }}")["main"].body
    assert isinstance(call, Call)
    return call


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("add(%f, %f)", True),
        ("add(%i, %i)", True),
        ("clip(%f, a_min=0f)", True),
        ("tan(%f)", False),
        ("add(%h, %h)", "found float16, expected float32, float64, int32, int64"),
        ("nn.relu(%x)", "found Tensor[(n, 3), float32], expected tensors whose shapes are numbers"),
    ],
)
def test_what_is_taken_and_why_not(text: str, answer: bool | str) -> None:
    assert BACKEND.supports(one_call(text)) == answer


def test_a_limit_that_is_no_number_is_declined() -> None:
    call = call_op("clip", [Var("x", TensorType((3,)))], a_min=float("nan"))
    assert BACKEND.supports(call) == "found a limit that is NaN"


def test_what_was_not_supported_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="region 'region' has no C for 'tan'"):
        source_of(typed("def @main(%x: float32) { tan(%x) }")["main"])
