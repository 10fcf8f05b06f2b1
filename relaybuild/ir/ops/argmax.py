"""`argmax` and `argmin`: where along an axis (or in the flattened tensor) the extreme element stands, as int64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import NUMERIC, Array, expect_dtype, expect_tensor, normalize_axis
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class ArgReduceAttrs(Attrs):
    """`axis`: None searches the flattened tensor. Of equal elements the first counts, or the last."""

    axis: int | None = None
    keepdims: bool = False
    select_last_index: bool = False


def infer_type(types: Sequence[Type], attrs: ArgReduceAttrs) -> Type:
    """The shape without the axis (extent 1 with `keepdims`), int64."""
    data = expect_tensor(types[0])
    expect_dtype(data, NUMERIC)
    axes = range(data.rank) if attrs.axis is None else (normalize_axis(attrs.axis, data.rank),)
    if any(data.shape[axis] == 0 for axis in axes):
        raise TypeMismatch("expected elements to choose from, found extent 0")
    shape = [1 if axis in axes else extent for axis, extent in enumerate(data.shape)]
    return TensorType(tuple(e for axis, e in enumerate(shape) if attrs.keepdims or axis not in axes), "int64")


def follow_layout(call: LayoutCall) -> LayoutChoice | None:
    """The search runs along the stored axis, which must not be split."""
    layout, attrs = call.layouts[0], call.attrs
    if attrs.axis is None or layout.is_split(attrs.axis % layout.rank):
        return None
    axis = attrs.axis % layout.rank
    result = layout if attrs.keepdims else layout.without((axis,))
    return LayoutChoice((layout,), (result,), replace(attrs, axis=layout.outer(axis)))


def arg_reduce_op(name: str, function: Callable[..., Any]) -> Op:
    """An operator that finds positions by a function of an array and an axis."""

    def evaluate(values: Sequence[Array], attrs: ArgReduceAttrs) -> Array:
        flat = attrs.axis is None
        data = values[0].reshape(-1) if flat else values[0]
        axis = attrs.axis or 0
        found = function(np.flip(data, axis) if attrs.select_last_index else data, axis, keepdims=attrs.keepdims)
        if attrs.select_last_index:
            found = data.shape[axis] - 1 - found
        result = np.asarray(found).astype(np.int64, copy=False)
        return result.reshape((1,) * values[0].ndim) if flat and attrs.keepdims else result

    return Op(
        name, 1, infer_type, evaluate, OpKind.REDUCE, ArgReduceAttrs, arg_names=("data",), follow_layout=follow_layout
    )


OPS = (arg_reduce_op("argmax", np.argmax), arg_reduce_op("argmin", np.argmin))
