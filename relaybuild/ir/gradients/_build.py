"""Expressions that gradient rules are written with; knows no rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaybuild.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem, const
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType


def attrs_of(call: Call) -> Any:
    """The attributes of a call, whose class the rule's operator tells."""
    return call.attrs


def scalar(value: float, like: Expr) -> Constant:
    """A rank-0 constant of the dtype of `like`."""
    return const(value, like.tensor_type.dtype)


def filled(kind: TensorType, value: float) -> Expr:
    """A tensor of static shape whose elements are all `value`."""
    if not kind.shape:
        return const(value, kind.dtype)
    return call_op("full", [], shape=kind.static_shape, fill_value=float(value), dtype=kind.dtype)


def zeros(kind: TensorType) -> Expr:
    """A tensor of zeros of static shape."""
    return filled(kind, 0)


def reshaped(value: Expr, shape: Sequence[int]) -> Expr:
    """`value` under another static shape; itself where it has it."""
    if value.tensor_type.shape == tuple(shape):
        return value
    return (
        call_op("reshape", [value], newshape=tuple(shape))
        if 0 not in shape
        else zeros(TensorType(tuple(shape), value.tensor_type.dtype))
    )


def transposed(value: Expr, axes: Sequence[int]) -> Expr:
    """`value` with its axes in another order; itself where it is the same."""
    return value if list(axes) == list(range(len(axes))) else call_op("transpose", [value], axes=tuple(axes))


def laid_out(value: Expr, layout: str, wanted: str) -> Expr:
    """`value`, stored in one layout, in another; itself where they are the same."""
    return value if layout == wanted else call_op("layout_transform", [value], src_layout=layout, dst_layout=wanted)


def inverse(axes: Sequence[int]) -> list[int]:
    """The permutation that undoes another."""
    return [int(axis) for axis in np.argsort(axes)]


def summed(value: Expr, axes: Sequence[int], keepdims: bool = False) -> Expr:
    """The sum along the axes; `value` itself where there are none."""
    return call_op("sum", [value], axis=tuple(axes), keepdims=keepdims) if axes else value


def sum_to(grad: Expr, kind: TensorType) -> Expr:
    """What reaches a tensor that was broadcast: `grad` summed along the axes it was repeated along."""
    found = grad.tensor_type.static_shape
    wanted = kind.static_shape
    lead = len(found) - len(wanted)
    axes = [axis for axis, extent in enumerate(found) if axis < lead or (wanted[axis - lead] == 1 and extent != 1)]
    return reshaped(summed(grad, axes), wanted)


def spread(value: Expr, axes: Sequence[int], shape: Sequence[int]) -> Expr:
    """A reduced tensor repeated along the axes (ascending) that were reduced, to the shape before the reduction."""
    kept = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    wide = reshaped(value, kept)
    return wide if kept == list(shape) else call_op("broadcast_to", [wide], shape=tuple(shape))


def masked(condition: Expr, value: Expr) -> Expr:
    """`value` where the condition holds, 0 elsewhere."""
    return call_op("where", [condition, value, scalar(0, value)])


def shares(value: Expr, best: Expr, axes: Sequence[int]) -> Expr:
    """For an extreme `best` spread over `value`: 1 divided among the elements that reach it, 0 elsewhere."""
    dtype = value.tensor_type.dtype
    hits = call_op("cast", [call_op("equal", [value, best])], dtype=dtype)
    return hits / summed(hits, axes, keepdims=True)


def pair_of(args: Call) -> tuple[Expr, Expr]:
    """Both arguments of a call of two."""
    left, right = args.args
    return left, right


def field_of(value: Expr, index: int) -> Expr:
    """A field of a tuple, without a projection where the tuple is spelled out."""
    return value.fields[index] if isinstance(value, Tuple) else TupleGetItem(value, index)
