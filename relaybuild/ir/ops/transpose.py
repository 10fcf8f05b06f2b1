"""`transpose`: axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, expect_tensor, normalize_axis
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class TransposeAttrs(Attrs):
    """`axes`: which axis of the data each axis of the result is; None (or none) reverses them."""

    axes: tuple[int, ...] | None = None


def infer_type(types: Sequence[Type], attrs: TransposeAttrs) -> Type:
    """The shape in the new order."""
    data = expect_tensor(types[0])
    return TensorType(tuple(data.shape[axis] for axis in resolve_axes(attrs, data.rank)), data.dtype)


def resolve_axes(attrs: TransposeAttrs, rank: int) -> tuple[int, ...]:
    """The axes as a permutation of 0 … rank-1."""
    if not attrs.axes:
        return tuple(reversed(range(rank)))
    axes = tuple(normalize_axis(axis, rank, "axes") for axis in attrs.axes)
    if sorted(axes) != list(range(rank)):
        raise TypeMismatch(f"expected a permutation of {rank} axes, found {attrs.axes}")
    return axes


def evaluate(values: Sequence[Array], attrs: TransposeAttrs) -> Array:
    """The array transposed."""
    return np.transpose(values[0], resolve_axes(attrs, values[0].ndim))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the permuted index."""
    source: list[Index] = [0] * len(index)
    for position, axis in enumerate(resolve_axes(call.attrs, len(index))):
        source[axis] = index[position]
    return args[0](source)


def follow_layout(call: LayoutCall) -> LayoutChoice | None:
    """The storage stays as it is, and its axes are called otherwise."""
    layout = call.layouts[0]
    return LayoutChoice((layout,), (layout.permuted(resolve_axes(call.attrs, layout.rank)),), None)


OP = Op(
    "transpose",
    1,
    infer_type,
    evaluate,
    OpKind.INJECTIVE,
    TransposeAttrs,
    compute,
    ("data",),
    follow_layout=follow_layout,
)
