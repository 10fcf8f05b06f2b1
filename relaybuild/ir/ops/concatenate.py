"""`concatenate` and `stack`: tensors of a tuple joined along an axis they have, or along a new one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import (
    Array,
    expect_fields,
    expect_rank,
    expect_same_dtype,
    normalize_axis,
    number,
    unify_extents,
)
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class JoinAttrs(Attrs):
    """`axis`: of the result, along which the fields follow one another."""

    axis: int = 0


def infer_concatenate_type(types: Sequence[Type], attrs: JoinAttrs) -> Type:
    """The common shape with the extents of the axis added up."""
    fields = expect_fields(types[0])
    dtype = expect_same_dtype(fields)
    axis = normalize_axis(attrs.axis, fields[0].rank)
    shape = _common_shape(fields, axis)
    if len(fields) > 1:
        shape[axis] = sum(number(field.shape[axis], f"the extent of axis {axis}") for field in fields)
    return TensorType(tuple(shape), dtype)


def infer_stack_type(types: Sequence[Type], attrs: JoinAttrs) -> Type:
    """The common shape with an axis of as many extents as there are fields put in."""
    fields = expect_fields(types[0])
    dtype = expect_same_dtype(fields)
    axis = normalize_axis(attrs.axis, fields[0].rank + 1)
    shape = _common_shape(fields, None)
    return TensorType((*shape[:axis], len(fields), *shape[axis:]), dtype)


def _common_shape(fields: Sequence[TensorType], free_axis: int | None) -> list[Extent]:
    shape = list(fields[0].shape)
    for position, field in enumerate(fields):
        expect_rank(field, len(shape), f"field {position}")
        for axis, extent in enumerate(field.shape):
            if axis != free_axis:
                shape[axis] = _common_extent(extent, shape[axis], position, axis)
    return shape


def _common_extent(found: Extent, wanted: Extent, position: int, axis: int) -> Extent:
    unified = unify_extents(found, wanted)
    if unified is None:
        raise TypeMismatch(f"expected extent {wanted} at axis {axis} of field {position}, found {found}")
    return unified


def evaluate_concatenate(values: Sequence[Sequence[Array]], attrs: JoinAttrs) -> Array:
    """The arrays joined."""
    return np.concatenate(values[0], attrs.axis)


def evaluate_stack(values: Sequence[Sequence[Array]], attrs: JoinAttrs) -> Array:
    """The arrays joined along a new axis."""
    return np.stack(values[0], attrs.axis)


def compute_concatenate(
    s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall
) -> Scalar:
    """The element of the field in whose range the index along the axis lies."""
    axis = call.attrs.axis % len(index)
    extents = [number(found.shape[axis], f"the extent of axis {axis}") for found in call.arg_types]
    pieces: list[tuple[Scalar, int, int]] = []
    begin = 0
    for arg, extent in zip(args, extents):
        if extent:
            shifted = index[axis] - begin if begin else index[axis]
            pieces.append((arg([*index[:axis], shifted, *index[axis + 1 :]]), begin, begin + extent))
        begin += extent
    return _chain(s, pieces, index[axis]) if pieces else s.const(0, call.out_type.dtype)


def compute_stack(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element of the field that the index along the axis names."""
    axis = call.attrs.axis % len(index)
    inner = [*index[:axis], *index[axis + 1 :]]
    pieces = [(arg(inner), position, position + 1) for position, arg in enumerate(args)]
    return _chain(s, pieces, index[axis])


def _chain(s: ScalarAlgebra, pieces: Sequence[tuple[Scalar, int, int]], position: Index) -> Scalar:
    result = pieces[-1][0]
    for value, begin, end in reversed(pieces[:-1]):
        result = s.select(s.in_range(position, begin, end), value, result)
    return result


def follow_concatenation(call: LayoutCall) -> LayoutChoice | None:
    """All fields in the layout of one of them, joined along what its blocks leave of the axis, if they divide all."""
    layout = next(layout for layout in call.layouts if not layout.is_plain)
    axis = call.attrs.axis % layout.rank
    if not all(layout.fits(kind.shape) for kind in call.types):
        return None
    return LayoutChoice((layout,) * len(call.types), (layout,), JoinAttrs(layout.outer(axis)))


OPS = (
    Op(
        "concatenate",
        1,
        infer_concatenate_type,
        evaluate_concatenate,
        OpKind.INJECTIVE,
        JoinAttrs,
        compute_concatenate,
        ("data",),
        follow_layout=follow_concatenation,
    ),
    Op("stack", 1, infer_stack_type, evaluate_stack, OpKind.INJECTIVE, JoinAttrs, compute_stack, ("data",)),
)
