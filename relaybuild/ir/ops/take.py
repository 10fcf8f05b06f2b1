"""`take`: slices of a tensor picked along one axis (or elements of it, flattened) by a tensor of indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._indexing import delinearize
from relaybuild.ir.ops._shapes import INTEGER, Array, expect_dtype, expect_tensors, normalize_axis, number, numbers
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import TensorType, Type

MODES = ("clip", "wrap", "fast")


@dataclass(frozen=True)
class TakeAttrs(Attrs):
    """`axis`: None picks elements of the flattened data.

    `mode`: indices outside are limited (clip), taken modulo the extent (wrap: -1 is the last), or must not be (fast).
    """

    axis: int | None = None
    mode: str = "clip"


def infer_type(types: Sequence[Type], attrs: TakeAttrs) -> Type:
    """The shape of the data with the axis replaced by the shape of the indices."""
    data, indices = expect_tensors(types)
    expect_dtype(indices, INTEGER, "indices")
    if attrs.mode not in MODES:
        raise TypeMismatch(f"expected 'mode' to be one of {', '.join(MODES)}, found '{attrs.mode}'")
    if attrs.axis is None:
        extent = prod(numbers(data, "data"))
        shape = indices.shape
    else:
        axis = normalize_axis(attrs.axis, data.rank)
        extent = number(data.shape[axis], f"the extent of axis {axis}")
        shape = (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :])
    if extent == 0 and 0 not in indices.shape:
        raise TypeMismatch("expected elements to take, found extent 0")
    return TensorType(shape, data.dtype)


def evaluate(values: Sequence[Array], attrs: TakeAttrs) -> Array:
    """The slices picked."""
    data, indices = values
    indices = indices.astype(np.int64, copy=False)
    return np.asarray(np.take(data, indices, attrs.axis, mode="wrap" if attrs.mode == "wrap" else "clip"))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element whose index along the axis is read from the indices."""
    data, indices = call.arg_types
    axis = 0 if call.attrs.axis is None else call.attrs.axis % data.rank
    behind = axis + indices.rank
    picked = args[1](index[axis:behind])
    if call.attrs.axis is None:
        shape = data.static_shape
        return args[0](delinearize(_picked_index(s, picked, prod(shape), call.attrs.mode), shape))
    extent = number(data.shape[axis], f"the extent of axis {axis}")
    return args[0]([*index[:axis], _picked_index(s, picked, extent, call.attrs.mode), *index[behind:]])


def _picked_index(s: ScalarAlgebra, value: Scalar, extent: int, mode: str) -> Index:
    value = s.cast(value, "int64")
    if mode == "wrap":
        value = s.binary("floormod", value, s.const(extent, "int64"))
    elif mode == "clip":
        value = s.binary("max", value, s.const(0, "int64"))
        value = s.binary("min", value, s.const(extent - 1, "int64"))
    return s.to_index(value)


OP = Op("take", 2, infer_type, evaluate, OpKind.INJECTIVE, TakeAttrs, compute, ("data", "indices"))
