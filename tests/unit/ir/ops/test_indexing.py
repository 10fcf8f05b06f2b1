"""Index arithmetic stays as small as the shapes allow: code for loads is derived from it."""

from __future__ import annotations

from typing import Any

import pytest
from suites.numpy_algebra import NumpyAlgebra

from relaybuild.ir.op import get_op
from relaybuild.ir.ops._indexing import reshape_index
from relaybuild.ir.scalar import ComputeCall
from relaybuild.ir.types import Dim, TensorType


class Symbol:
    """An index that writes down what is done to it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __add__(self, other: object) -> Symbol:
        return Symbol(f"({self}+{other})")

    def __sub__(self, other: object) -> Symbol:
        return Symbol(f"({self}-{other})")

    def __mul__(self, other: object) -> Symbol:
        return Symbol(f"{self}*{other}")

    def __floordiv__(self, other: object) -> Symbol:
        return Symbol(f"{self}//{other}")

    def __mod__(self, other: object) -> Symbol:
        return Symbol(f"{self}%{other}")


def symbols(rank: int) -> list[Symbol]:
    return [Symbol("ijklm"[axis]) for axis in range(rank)]


@pytest.mark.parametrize(
    ("from_shape", "to_shape", "wanted"),
    [
        ((2, 3), (2, 3), "[i, j]"),
        ((2, 3), (1, 2, 1, 3), "[j, l]"),
        ((1, 2, 1, 3), (2, 3), "[0, i, 0, j]"),
        ((2, 3, 5), (2, 15), "[i, j//5, j%5]"),
        ((2, 15), (2, 3, 5), "[i, (j*5+k)]"),
        ((2, 3, 5), (6, 5), "[i//3, i%3, j]"),
        ((6,), (6, 1), "[i]"),
        ((4, 6, 5), (8, 3, 5), "[(i*3+j)//6, (i*3+j)%6, k]"),
        ((2, 1, 3), (6,), "[i//3, 0, i%3]"),
        ((Dim("n"), 4, 3), (Dim("n"), 12), "[i, j//3, j%3]"),
        ((1,), (), "[0]"),
        ((0, 3), (3, 0), "[0, 0]"),
    ],
)
def test_reshape_index(from_shape: tuple[Any, ...], to_shape: tuple[Any, ...], wanted: str) -> None:
    assert str(reshape_index(symbols(len(to_shape)), from_shape, to_shape)) == wanted


def test_symbolic_extents_that_do_not_match_are_refused() -> None:
    with pytest.raises(ValueError, match="symbolic"):
        reshape_index(symbols(1), (Dim("n"), 4), (Dim("m"),))


def loads(name: str, shape: tuple[int, ...], **attrs: object) -> list[str]:
    """The indices at which a call reads its argument."""
    op = get_op(name)
    record = op.make_attrs(attrs)
    data = TensorType(shape)
    out = op.infer_type([data], record)
    assert isinstance(out, TensorType)
    assert op.compute is not None
    found: list[str] = []
    one = NumpyAlgebra().const(1, "float32")

    def read(index: Any) -> Any:
        found.append(str(list(index)))
        return one

    op.compute(NumpyAlgebra(), [read], symbols(out.rank), ComputeCall((data,), out, record))
    return found


def test_resize_by_whole_factors_is_one_division() -> None:
    nearest: dict[str, object] = {"method": "nearest_neighbor", "rounding_method": "floor"}
    asymmetric = {**nearest, "coordinate_transformation_mode": "asymmetric"}
    assert loads("image.resize2d", (1, 2, 5, 7), size=(10, 21), **asymmetric) == ["[i, j, k//2, l//3]"]
    assert loads("image.resize2d", (1, 2, 6, 7), size=(3, 7), **asymmetric) == ["[i, j, k*2, l]"]
    half_pixel = {**nearest, "rounding_method": "round_prefer_floor"}
    assert loads("image.resize2d", (1, 2, 5, 7), size=(10, 14), **half_pixel) == ["[i, j, k//2, l//2]"]


def test_slices_and_reversal_are_affine() -> None:
    assert loads("strided_slice", (9, 9), begin=(1, -1), end=(9, 0), strides=(1, -2)) == ["[(i+1), (j*-2+8)]"]
    assert loads("reverse", (4, 3), axis=1) == ["[i, (j*-1+2)]"]
    assert loads("transpose", (2, 3, 4), axes=(2, 0, 1)) == ["[j, k, i]"]
    assert loads("tile", (2, 3), reps=(2, 1)) == ["[i%2, j]"]
