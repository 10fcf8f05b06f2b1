"""What the context and the type decide: negative zeros, rounding, unknown extents."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import functions_text
from relaybuild.passes.infra import PassContext
from relaybuild.passes.simplify_expr import SimplifyExpr

MINUS_ZERO = np.asarray([-0.0, 0.0, 1.0], "float32")


def simplified(text: str, *, precise: bool = False) -> tuple[IRModule, IRModule]:
    mod = parse(text)
    with PassContext(config={"relaybuild.precise": precise}):
        return mod, SimplifyExpr()(mod)


@pytest.mark.parametrize(("expression", "kept"), [("%x + 0f", True), ("0f + %x", True), ("%x - 0f", False)])
def test_precise_programs_keep_what_adding_zero_does_to_negative_zero(expression: str, kept: bool) -> None:
    """SX01: -0.0 + 0.0 is 0.0, while -0.0 - 0.0 is -0.0."""
    mod, after = simplified(f"def @main(%x: Tensor[(3,), float32]) {{ {expression} }}", precise=True)
    assert (after is mod) is kept
    wanted, found = (np.signbit(interpret(each, MINUS_ZERO)) for each in (mod, after))
    np.testing.assert_array_equal(wanted, found)


def test_otherwise_adding_zero_is_nothing() -> None:
    """SX02: x + 0 becomes x, for floating-point numbers and integers."""
    for dtype, zero in (("float32", "0f"), ("int32", "0")):
        _, after = simplified(f"def @main(%x: Tensor[(3,), {dtype}]) {{ %x + {zero} }}", precise=dtype == "int32")
        assert after["main"].body is after["main"].params[0]


def test_a_division_by_a_root_is_rounded_as_written_where_asked() -> None:
    """SX03: precise programs keep division and square root."""
    text = "def @main(%x: Tensor[(3,), float32]) { 1f / sqrt(%x) }"
    assert "rsqrt" in functions_text(simplified(text)[1])
    mod, after = simplified(text, precise=True)
    assert after is mod


def test_reshapes_of_unknown_extents_are_not_merged() -> None:
    """SX04: the batch is a name, whose number the outer reshape does not say."""
    text = """
    def @main(%x: Tensor[(n, 2, 3), float32]) {
      reshape(reshape(%x, newshape=[0, 6]), newshape=[0, 3, 2])
    }
    """
    mod, after = simplified(text)
    assert after is mod


@pytest.mark.parametrize(
    ("before", "between", "merged"),
    [("int8", "float32", True), ("int32", "float32", False), ("int64", "float64", False), ("float16", "float32", True)],
)
def test_casts_are_merged_only_where_nothing_is_lost(before: str, between: str, merged: bool) -> None:
    """SX05: the type in between has every value of the first."""
    text = f"""
    def @main(%x: Tensor[(3,), {before}]) {{ cast(cast(%x, dtype="{between}"), dtype="int64") }}
    """
    mod, after = simplified(text)
    assert (after is not mod) is merged


def test_reciprocals_that_are_rounded_are_not_for_precise_programs() -> None:
    text = "def @main(%x: Tensor[(3,), float32]) { (erf(%x / 3f), %x / 4f) }"
    _, after = simplified(text, precise=True)
    assert [name for name in ("divide", "multiply") if name in str(after)] == ["divide", "multiply"]
    _, after = simplified(text)
    assert "divide" not in str(after)
