"""Where shapes are known, and what happens where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.errors import TypeCheckError
from relaybuild.ir.expr import Call, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.visitor import post_order
from relaybuild.passes.dynamic_to_static import DynamicToStatic


def operators(text: str) -> list[str]:
    after = DynamicToStatic()(parse(text))
    return [node.op_name for node in post_order(after["main"].body) if isinstance(node, Call)]


def test_shapes_are_followed_through_arithmetic() -> None:
    """DS01: a shape cut, joined and multiplied."""
    found = operators(
        """
        def @main(%x: Tensor[(2, 6), float32]) {
          %0 = strided_slice(shape_of(%x), begin=[1], end=[2]);
          dyn.reshape(%x, concatenate((%0 * Tensor[(1,), int64](2), Tensor[(1,), int64](-1))))
        }
        """
    )
    assert found[-1] == "reshape"


def test_unknown_shapes_stay_arguments() -> None:
    """DS02: a parameter as shape; the program still runs."""
    text = "def @main(%x: Tensor[(2, 6), float32], %s: Tensor[(2,), int64]) { dyn.reshape(%x, %s) }"
    mod = parse(text)
    assert DynamicToStatic()(mod) is mod
    x = np.arange(12, dtype="float32").reshape(2, 6)
    assert interpret(mod, x, np.asarray([3, 4])).shape == (3, 4)


def test_a_static_form_that_needs_unknown_extents_is_not_taken() -> None:
    """DS03: tile over data whose extents are not known."""
    text = """
    def @main(%x: Tensor[(2, 6), float32], %s: Tensor[(2,), int64]) {
      dyn.tile(dyn.reshape(%x, %s), Tensor[(2,), int64](1, 2))
    }
    """
    assert operators(text) == ["dyn.reshape", "dyn.tile"]


def test_shapes_must_be_integers() -> None:
    """The message names the argument."""
    with pytest.raises(TypeCheckError, match=r"expected newshape of dtype .*found float32"):
        call_op("dyn.reshape", [var("x", (2, 6)), var("s", (2,))])
