"""The C that calls a BLAS: what it is, what it computes, and what the backend declines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runners.packed import options, typed
from runners.vendors import compare, region_of, require

from relaybuild.contrib.cblas import BACKEND
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Expr, Function, Var, const
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import all_backends

ROOT = Path(__file__).parents[4]
TOLERANCE = {"float32": 1e-5, "float64": 1e-13}

TEXT = """
def @main(%x: Tensor[(4, 7), float32], %w: Tensor[(5, 7), float32], %b: Tensor[(5,), float32],
          %y: Tensor[(2, 3, 6, 5), float32], %z: Tensor[(3, 4, 5), float32]) {
  %0 = add(nn.dense(%x, %w), %b);
  %1 = nn.matmul(%y, %z, transpose_b=True);
  nn.matmul(%1, %0)
}
"""


def source_of(function: Function) -> str:
    return BACKEND.codegen(function, options(function, "cblas_0")).units[0].text


def test_the_text_of_a_region() -> None:
    main = typed(TEXT)["main"]
    function = region_of(BACKEND, main.params, [main.body])
    wanted = Path(__file__).with_name("region.c").read_text(encoding="utf-8")
    assert source_of(function) == wanted


def test_the_readme_shows_that_text() -> None:
    readme = (ROOT / "relaybuild/contrib/cblas/README.md").read_text(encoding="utf-8")
    shown = readme.split("```c\n")[1].split("```")[0]
    assert shown.count("\n") > 10
    assert shown in Path(__file__).with_name("region.c").read_text(encoding="utf-8")


PARAMS = """%a: Tensor[(5, 7), float32], %d: Tensor[(3, 7), float32], %e: Tensor[(3,), float32],
  %f: Tensor[(5, 7), float16], %g: Tensor[(3, 7), float16], %n: Tensor[(n, 7), float32],
  %x: Tensor[(2, 5, 7), float64], %y: Tensor[(7, 3), float64], %v: Tensor[(3,), float64], %r: Tensor[(5, 1), float32]"""


def body_of(text: str) -> Call:
    body = typed(f"def @main({PARAMS}) {{ {text} }}")["main"].body
    assert isinstance(body, Call)
    return body


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("nn.dense(%a, %d)", True),
        ("nn.matmul(%x, %y)", True),
        ("nn.relu(%a)", False),
        ("nn.dense(%f, %g)", "found float16, expected float32 or float64"),
        ('nn.dense(%a, %d, out_dtype="float64")', "found float32 and float64, expected float32 or float64"),
        ("nn.dense(%n, %d)", "found Tensor[(n, 7), float32], expected tensors whose shapes are numbers"),
    ],
)
def test_what_is_taken_and_why_not(text: str, answer: bool | str) -> None:
    assert BACKEND.supports(body_of(text)) == answer


def test_extents_that_32_bits_cannot_hold_are_declined() -> None:
    large = 2**31
    call = call_op("nn.dense", [Var("a", TensorType((large, 1))), Var("b", TensorType((1, 1)))])
    assert BACKEND.supports(call) == f"found an extent of {large}, expected at most {large - 1}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("%0 = nn.dense(%a, %d); add(%0, %e)", "cblas.dense_bias"),
        ("%0 = nn.dense(%a, %d); add(%e, %0)", "cblas.dense_bias"),
        ("%0 = nn.dense(%a, %d); nn.bias_add(%0, %e, axis=-1)", "cblas.dense_bias"),
        ("%0 = nn.matmul(%x, %y); add(%0, %v)", "cblas.matmul_bias"),
        ("%0 = nn.dense(%a, %d); add(%0, %r)", None),
    ],
)
def test_biases_belong_to_products(text: str, name: str | None) -> None:
    module = typed(f"def @main({PARAMS}) {{ {text} }}")
    body = region_of(BACKEND, module["main"].params, [module["main"].body]).body
    calls = [each for each in post_order(body) if isinstance(each, Call) and isinstance(each.op, Function)]
    names = [call.op.attrs["Composite"] for call in calls if isinstance(call.op, Function)]
    assert names == ([name] if name else [])


def test_what_was_not_taken_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"has no C for 'nn\.relu'"):
        source_of(typed("def @main(%x: Tensor[(3,), float32]) { nn.relu(%x) }")["main"])


def test_the_backend_is_found_by_its_tag() -> None:
    assert all_backends()["cblas"] is BACKEND


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Var], list[Expr]]:
    """Products of all kinds, in one element type."""
    dtype = draw(st.sampled_from(sorted(TOLERANCE)))
    params: list[Var] = []
    extent = st.integers(1, 9) | st.sampled_from((0, 1, 70))

    def param(*shape: int) -> Var:
        params.append(Var(f"x{len(params)}", TensorType(shape, dtype)))
        return params[-1]

    def one() -> Expr:
        rows, inner, columns = (draw(extent) for _ in range(3))
        leading = [draw(st.integers(0, 3)) for _ in range(draw(st.integers(0, 3)))]
        if draw(st.booleans()):
            result = call_op("nn.dense", [param(*leading, rows, inner), param(columns, inner)])
        else:
            flags = [draw(st.booleans()) for _ in "ab"]
            operands = []
            for shape, flag in zip(((rows, inner), (inner, columns)), flags):
                extents = [draw(st.sampled_from((each, each, 1))) for each in leading]
                kept = extents[draw(st.integers(0, len(extents))) :]
                operands.append(param(*kept, *(reversed(shape) if flag else shape)))
            result = call_op("nn.matmul", operands, transpose_a=flags[0], transpose_b=flags[1])
        return call_op("add", [result, param(columns)]) if draw(st.booleans()) else result

    results = [one() for _ in range(draw(st.integers(3, 8)))]
    return params, results


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_products_of_all_kinds(program: tuple[list[Var], list[Expr]]) -> None:
    require(BACKEND)
    params, results = program
    compare(BACKEND, params, results, rtol=TOLERANCE[params[0].tensor_type.dtype])


def test_a_product_of_a_value_with_itself_and_of_a_literal() -> None:
    require(BACKEND)
    x = Var("x", TensorType((6, 6)))
    literal = const([[float(row == column) * row for column in range(6)] for row in range(6)], "float32")
    square = call_op("nn.matmul", [x, x], transpose_b=True)
    compare(BACKEND, [x], [square, call_op("nn.matmul", [square, literal])])
