"""Reductions of tensors along axes to one value: sums, products, extremes, logic, moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, prod
from typing import Any

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, const
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch, call_op
from relaybuild.ir.ops._shapes import (
    BOOL,
    FLOAT,
    NUMERIC,
    Array,
    as_ints,
    expect_dtype,
    expect_tensor,
    is_float,
    normalize_axes,
    wide,
)
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class ReduceAttrs(Attrs):
    """`axis`: the axes reduced, None for all; with `exclude`, all but these. `keepdims` leaves them with extent 1."""

    axis: tuple[int, ...] | None = None
    keepdims: bool = False
    exclude: bool = False

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", as_ints(self.axis))


@dataclass(frozen=True)
class VarianceAttrs(ReduceAttrs):
    """`unbiased` divides by one less than the number of elements."""

    unbiased: bool = False


def reduced_axes(attrs: ReduceAttrs, rank: int) -> tuple[int, ...]:
    """The axes of a tensor of that rank which are reduced, ascending."""
    axes = normalize_axes(attrs.axis, rank)
    if not attrs.exclude:
        return axes
    if attrs.axis is None:
        raise TypeMismatch("expected 'axis' where 'exclude' is set, found none")
    return tuple(axis for axis in range(rank) if axis not in axes)


def reduced_shape(shape: Sequence[Extent], axes: Sequence[int], keepdims: bool) -> tuple[Extent, ...]:
    """The shape without the axes, or with extent 1 there."""
    kept = [1 if axis in axes else extent for axis, extent in enumerate(shape)]
    return tuple(extent for axis, extent in enumerate(kept) if keepdims or axis not in axes)


def follow_layout(call: LayoutCall) -> LayoutChoice | None:
    """All stored parts of the axes are reduced; where these are kept, their blocks have one element."""
    layout, attrs = call.layouts[0], call.attrs
    axes = reduced_axes(attrs, layout.rank)
    places = tuple(place for place, (axis, _) in enumerate(layout.axes) if axis in axes)
    result = layout.with_unit_blocks(axes) if attrs.keepdims else layout.without(axes)
    return LayoutChoice((layout,), (result,), replace(attrs, axis=places, exclude=False))


def infer_type(types: Sequence[Type], attrs: ReduceAttrs, dtypes: frozenset[str]) -> Type:
    """The data's type without the axes reduced."""
    data = expect_tensor(types[0])
    expect_dtype(data, dtypes)
    axes = reduced_axes(attrs, data.rank)
    return TensorType(reduced_shape(data.shape, axes, attrs.keepdims), data.dtype)


def reduce_op(name: str, function: Callable[..., Any], dtypes: frozenset[str]) -> Op:
    """An operator that reduces axes by `function(array, axes, keepdims)` and keeps the dtype."""

    def evaluate(values: Sequence[Array], attrs: ReduceAttrs) -> Array:
        data = values[0]
        with np.errstate(all="ignore"):
            result = function(data, reduced_axes(attrs, data.ndim), attrs.keepdims)
        return np.asarray(result).astype(data.dtype, copy=False)

    return Op(
        name,
        1,
        partial(infer_type, dtypes=dtypes),
        evaluate,
        OpKind.REDUCE,
        ReduceAttrs,
        arg_names=("data",),
        follow_layout=follow_layout,
    )


def _sum(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.sum(data, axes, wide(data.dtype), keepdims=keepdims))


def _prod(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.prod(data, axes, wide(data.dtype), keepdims=keepdims))


def _count(data: Array, axes: tuple[int, ...]) -> int:
    return int(np.prod([data.shape[axis] for axis in axes], dtype=np.int64))


def _mean(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    if is_float(data.dtype):
        return np.asarray(_sum(data, axes, keepdims) / np.float64(_count(data, axes)))
    total = np.sum(data, axes, np.int64, keepdims=keepdims)
    count = np.int64(_count(data, axes))
    return np.asarray((total - np.fmod(total, count)) // count)


def _variance(values: Sequence[Array], attrs: VarianceAttrs) -> Array:
    data = values[0]
    axes = reduced_axes(attrs, data.ndim)
    with np.errstate(all="ignore"):
        centered = data.astype(np.float64) - _mean(data, axes, True)
        count = np.float64(_count(data, axes) - attrs.unbiased)
        return np.asarray(_sum(centered * centered, axes, attrs.keepdims) / count).astype(data.dtype, copy=False)


def _decompose_variance(call: Call) -> Expr:
    """The unbiased variance by the biased one."""
    attrs: Any = call.attrs
    data = call.args[0].tensor_type
    if not attrs.unbiased or not data.is_static:
        return call
    count = prod(data.static_shape[axis] for axis in reduced_axes(attrs, data.rank))
    biased = call_op(call.op_name, call.args, call.span, **{**dict(attrs.items()), "unbiased": False})
    scale = const(count / (count - 1) if count != 1 else inf, data.dtype)
    return call_op("multiply", [biased, scale], call.span)


def _max(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    lowest = -np.inf if is_float(data.dtype) else np.iinfo(data.dtype).min
    return np.asarray(np.max(data, axes, keepdims=keepdims, initial=lowest))


def _min(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    highest = np.inf if is_float(data.dtype) else np.iinfo(data.dtype).max
    return np.asarray(np.min(data, axes, keepdims=keepdims, initial=highest))


def _all(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.all(data, axes, keepdims=keepdims))


def _any(data: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    return np.asarray(np.any(data, axes, keepdims=keepdims))


OPS = (
    reduce_op("sum", _sum, NUMERIC),
    reduce_op("mean", _mean, NUMERIC),
    reduce_op("max", _max, NUMERIC),
    reduce_op("min", _min, NUMERIC),
    reduce_op("prod", _prod, NUMERIC),
    reduce_op("all", _all, BOOL),
    reduce_op("any", _any, BOOL),
    Op(
        "variance",
        1,
        partial(infer_type, dtypes=FLOAT),
        _variance,
        OpKind.REDUCE,
        VarianceAttrs,
        arg_names=("data",),
        follow_layout=follow_layout,
        decompose=_decompose_variance,
    ),
)
