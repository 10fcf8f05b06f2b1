"""Shapes given for inputs of a program, and mistakes in them."""

from __future__ import annotations

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.infer import infer_types
from relaybuild.ir.input_shapes import with_shapes
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType

HEAD = '#[version = "0.0.5"]\n'
OPEN = parse(
    HEAD + "def @main(%x: Tensor[(n, 3), float32], %p: (Tensor[(n,), float32], int32), %y: Tensor[(?,), float32])"
    " -> Tensor[(n, 3), float32] { add(%x, sum(%y)) }"
)


def test_a_named_dimension_becomes_a_number_everywhere() -> None:
    module = infer_types(with_shapes(OPEN, {"x": (2, 3), "y": (5,)}))
    kinds = [str(param.checked_type) for param in module["main"].params]
    assert kinds == ["Tensor[(2, 3), float32]", "(Tensor[(2,), float32], int32)", "Tensor[(5,), float32]"]
    assert module["main"].body.checked_type == TensorType((2, 3), "float32")


def test_other_functions_stay_open() -> None:
    text = """
    def @f(%x: Tensor[(n,), float32]) -> Tensor[(n,), float32] { exp(%x) }
    def @main(%x: Tensor[(m,), float32]) -> Tensor[(m,), float32] { @f(%x) }
    """
    module = infer_types(with_shapes(parse(HEAD + text), {"x": (4,)}))
    assert module["main"].body.checked_type == TensorType((4,), "float32")
    assert str(module["f"].params[0].checked_type) == "Tensor[(n,), float32]"


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            {"z": (1,)},
            "a shape is given for 'z', which is no tensor parameter of '@main'; its parameters: 'x', 'p.0', 'p.1', 'y'",
        ),
        ({"p": (1,)}, "'p', which is no tensor parameter"),
        ({"x": (2,)}, r"the shape \(2,\) for 'x' has 1 extents, expected 2"),
        ({"x": (2, 4)}, r"the shape \(2, 4\) for 'x' has 4 as dimension 1, expected 3"),
    ],
)
def test_mistakes_are_named(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        with_shapes(OPEN, shapes)


def test_one_name_has_one_extent() -> None:
    module = parse(HEAD + "def @main(%x: Tensor[(n,), float32], %y: Tensor[(n,), float32]) { add(%x, %y) }")
    with pytest.raises(UserError, match=r"the shape \(3,\) for 'y' has 3 as dimension 0, expected 2"):
        with_shapes(module, {"x": (2,), "y": (3,)})


def test_a_field_of_a_tuple_has_a_name() -> None:
    module = infer_types(with_shapes(OPEN, {"p.0": (2,), "p.1": (), "y": (5,)}))
    assert str(module["main"].params[0].checked_type) == "Tensor[(2, 3), float32]"
