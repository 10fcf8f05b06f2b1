"""`scatter_elements` and `scatter_nd`: a copy of a tensor with updates written or accumulated at indices.

Updates at indices outside the tensor are dropped; of several updates written to one place the last one stays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import (
    INTEGER,
    Array,
    expect_dtype,
    expect_extent,
    expect_rank,
    expect_same_dtype,
    expect_tensors,
    normalize_axis,
    number,
)
from relaybuild.ir.types import TensorType, Type

MODES = ("update", "add", "mul", "min", "max")


@dataclass(frozen=True)
class ScatterElementsAttrs(Attrs):
    """`reduction`: update, add, mul, min or max."""

    axis: int = 0
    reduction: str = "update"


@dataclass(frozen=True)
class ScatterNdAttrs(Attrs):
    """`mode`: update, add, mul, min or max."""

    mode: str = "update"


def _expect_mode(name: str, mode: str) -> None:
    if mode not in MODES:
        raise TypeMismatch(f"expected '{name}' to be one of {', '.join(MODES)}, found '{mode}'")


def infer_elements_type(types: Sequence[Type], attrs: ScatterElementsAttrs) -> Type:
    """The type of the data; indices and updates have one shape, of the data's rank."""
    data, indices, updates = expect_tensors(types)
    _expect_mode("reduction", attrs.reduction)
    expect_dtype(indices, INTEGER, "indices")
    expect_same_dtype((data, updates))
    axis = normalize_axis(attrs.axis, data.rank)
    expect_rank(indices, data.rank, "indices")
    expect_rank(updates, data.rank, "updates")
    for position, (found, wanted) in enumerate(zip(updates.shape, indices.shape)):
        expect_extent(found, wanted, f"updates' extent at axis {position}")
        limit = data.shape[position]
        if position != axis and isinstance(wanted, int) and isinstance(limit, int) and wanted > limit:
            raise TypeMismatch(f"expected indices' extent at most {limit} at axis {position}, found {wanted}")
    return data


def infer_nd_type(types: Sequence[Type], attrs: ScatterNdAttrs) -> Type:
    """The type of the data (X…, R…); indices are (Y…, number of X), updates (Y…, R…)."""
    data, indices, updates = expect_tensors(types)
    _expect_mode("mode", attrs.mode)
    expect_dtype(indices, INTEGER, "indices")
    expect_same_dtype((data, updates))
    if indices.rank < 1:
        raise TypeMismatch("expected indices of rank 1 or more, found a scalar")
    depth = number(indices.shape[-1], "the last extent of indices")
    if depth > data.rank:
        raise TypeMismatch(f"expected index tuples of at most {data.rank}, found {depth}")
    wanted = TensorType((*indices.shape[:-1], *data.shape[depth:]), data.dtype)
    if updates != wanted:
        raise TypeMismatch(f"expected updates of type {wanted}, found {updates}")
    return data


def evaluate_elements(values: Sequence[Array], attrs: ScatterElementsAttrs) -> Array:
    """The copy with each update at its own index, save along the axis, where the index tells."""
    data, indices, updates = values
    axis = attrs.axis % data.ndim
    grid: list[Array] = list(np.indices(indices.shape))
    grid[axis] = indices.astype(np.int64)
    return _scatter(data, np.stack(grid), updates, attrs.reduction)


def evaluate_nd(values: Sequence[Array], attrs: ScatterNdAttrs) -> Array:
    """The copy with each slice of updates at its index tuple."""
    data, indices, updates = values
    return _scatter(data, np.moveaxis(indices, -1, 0).astype(np.int64), updates, attrs.mode)


def _scatter(data: Array, index: Array, updates: Array, mode: str) -> Array:
    result = np.copy(data)
    limits = np.asarray(data.shape[: len(index)], np.int64).reshape(-1, *(1,) * (index.ndim - 1))
    inside = ((index >= 0) & (index < limits)).all(0)
    key = tuple(position[inside] for position in index)
    kept = updates[inside]
    if mode == "update":
        result[key] = kept
    else:
        ufunc = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[mode]
        ufunc.at(result, key, kept)
    return result


OPS = (
    Op(
        "scatter_elements",
        3,
        infer_elements_type,
        evaluate_elements,
        OpKind.OPAQUE,
        ScatterElementsAttrs,
        arg_names=("data", "indices", "updates"),
    ),
    Op(
        "scatter_nd",
        3,
        infer_nd_type,
        evaluate_nd,
        OpKind.OPAQUE,
        ScatterNdAttrs,
        arg_names=("data", "indices", "updates"),
    ),
)
