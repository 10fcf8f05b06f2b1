"""Ordering along one axis: `sort`, `argsort`, `topk`; equal elements keep their order, in either direction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import NUMERIC, Array, expect_dtype, expect_tensor, normalize_axis, number
from relaybuild.ir.types import TensorType, TupleType, Type


@dataclass(frozen=True)
class SortAttrs(Attrs):
    """`is_ascend`: from the least to the greatest."""

    axis: int = -1
    is_ascend: bool = True


@dataclass(frozen=True)
class ArgsortAttrs(SortAttrs):
    """`dtype`: of the positions."""

    dtype: str = "int64"


@dataclass(frozen=True)
class TopkAttrs(Attrs):
    """`k`: how many (below 1: all); `ret_type`: both (a tuple), values or indices; `dtype`: of the indices."""

    k: int = 1
    axis: int = -1
    is_ascend: bool = False
    ret_type: str = "both"
    dtype: str = "int64"


def infer_sort_type(types: Sequence[Type], attrs: SortAttrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, NUMERIC)
    normalize_axis(attrs.axis, data.rank)
    return data


def infer_argsort_type(types: Sequence[Type], attrs: ArgsortAttrs) -> Type:
    """The shape of the argument with the positions' dtype."""
    infer_sort_type(types, attrs)
    _expect_number_dtype(attrs.dtype)
    return TensorType(expect_tensor(types[0]).shape, attrs.dtype)


def infer_topk_type(types: Sequence[Type], attrs: TopkAttrs) -> Type:
    """(values, indices), or one of them, of extent k along the axis."""
    data = expect_tensor(types[0])
    expect_dtype(data, NUMERIC)
    _expect_number_dtype(attrs.dtype)
    axis = normalize_axis(attrs.axis, data.rank)
    extent = number(data.shape[axis], f"the extent of axis {axis}")
    if attrs.k > extent:
        raise TypeMismatch(f"expected 'k' at most {extent} (the extent of axis {axis}), found {attrs.k}")
    shape = (*data.shape[:axis], attrs.k if attrs.k > 0 else extent, *data.shape[axis + 1 :])
    values, indices = TensorType(shape, data.dtype), TensorType(shape, attrs.dtype)
    results: dict[str, Type] = {"both": TupleType((values, indices)), "values": values, "indices": indices}
    if attrs.ret_type not in results:
        raise TypeMismatch(f"expected 'ret_type' to be one of {', '.join(results)}, found '{attrs.ret_type}'")
    return results[attrs.ret_type]


def _expect_number_dtype(dtype: str) -> None:
    if dtype not in NUMERIC:
        raise TypeMismatch(f"expected 'dtype' to be one of {', '.join(sorted(NUMERIC))}, found '{dtype}'")


def sorted_positions(data: Array, axis: int, ascending: bool) -> Array:
    """Positions in sorted order along the axis."""
    if ascending:
        return np.argsort(data, axis, kind="stable")
    backwards = np.argsort(np.flip(data, axis), axis, kind="stable")
    return np.asarray(data.shape[axis] - 1 - np.flip(backwards, axis))


def evaluate_sort(values: Sequence[Array], attrs: SortAttrs) -> Array:
    """The elements in order."""
    return np.take_along_axis(values[0], sorted_positions(values[0], attrs.axis, attrs.is_ascend), attrs.axis)


def evaluate_argsort(values: Sequence[Array], attrs: ArgsortAttrs) -> Array:
    """Their positions in order."""
    return sorted_positions(values[0], attrs.axis, attrs.is_ascend).astype(attrs.dtype)


def evaluate_topk(values: Sequence[Array], attrs: TopkAttrs) -> Array | tuple[Array, Array]:
    """The first k of both."""
    data = values[0]
    positions = sorted_positions(data, attrs.axis, attrs.is_ascend)
    if attrs.k > 0:
        positions = np.take(positions, range(attrs.k), attrs.axis)
    top, indices = np.take_along_axis(data, positions, attrs.axis), positions.astype(attrs.dtype)
    if attrs.ret_type == "both":
        return top, indices
    return top if attrs.ret_type == "values" else indices


OPS = (
    Op("sort", 1, infer_sort_type, evaluate_sort, OpKind.OPAQUE, SortAttrs, arg_names=("data",)),
    Op("argsort", 1, infer_argsort_type, evaluate_argsort, OpKind.OPAQUE, ArgsortAttrs, arg_names=("data",)),
    Op("topk", 1, infer_topk_type, evaluate_topk, OpKind.OPAQUE, TopkAttrs, arg_names=("data",)),
)
