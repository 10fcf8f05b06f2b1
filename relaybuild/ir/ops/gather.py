"""`gather` picks elements along one axis, `gather_nd` slices by tuples of indices; indices outside are limited."""

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
    expect_tensors,
    normalize_axis,
    number,
)
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class GatherAttrs(Attrs):
    """`axis`: of the data that the indices run along."""

    axis: int = 0


@dataclass(frozen=True)
class GatherNdAttrs(Attrs):
    """`batch_dims`: how many leading axes data and indices share."""

    batch_dims: int = 0


def infer_gather_type(types: Sequence[Type], attrs: GatherAttrs) -> Type:
    """The shape of the indices, which is nowhere larger than the data's save along the axis."""
    data, indices = expect_tensors(types)
    expect_dtype(indices, INTEGER, "indices")
    expect_rank(indices, data.rank, "indices")
    axis = normalize_axis(attrs.axis, data.rank)
    expect_indexable(number(data.shape[axis], f"the extent of axis {axis}"), indices.shape)
    for position, (found, limit) in enumerate(zip(indices.shape, data.shape)):
        if position != axis and found != limit and not _within(found, limit):
            raise TypeMismatch(f"expected indices' extent at most {limit} at axis {position}, found {found}")
    return TensorType(indices.shape, data.dtype)


def expect_indexable(extent: int, indices_shape: Sequence[Extent]) -> None:
    """Raise where there are indices but no elements."""
    if extent == 0 and 0 not in indices_shape:
        raise TypeMismatch("expected elements to pick, found extent 0")


def _within(found: Extent, limit: Extent) -> bool:
    return isinstance(found, int) and isinstance(limit, int) and found <= limit


def infer_gather_nd_type(types: Sequence[Type], attrs: GatherNdAttrs) -> Type:
    """data (B…, X…, R…) and indices (B…, Y…, number of X) give (B…, Y…, R…)."""
    data, indices = expect_tensors(types)
    expect_dtype(indices, INTEGER, "indices")
    batch = attrs.batch_dims
    if not 0 <= batch < indices.rank:
        raise TypeMismatch(f"expected 'batch_dims' in [0, {indices.rank}), found {batch}")
    depth = number(indices.shape[-1], "the last extent of indices")
    if batch + depth > data.rank:
        raise TypeMismatch(f"expected index tuples of at most {data.rank - batch}, found {depth}")
    for axis in range(batch):
        expect_extent(indices.shape[axis], data.shape[axis], f"indices' extent at axis {axis}")
    for axis in range(batch, batch + depth):
        expect_indexable(number(data.shape[axis], f"the extent of axis {axis}"), indices.shape[:-1])
    return TensorType((*indices.shape[:-1], *data.shape[batch + depth :]), data.dtype)


def evaluate_gather(values: Sequence[Array], attrs: GatherAttrs) -> Array:
    """data[i, indices[i, j], …] for each element of the indices."""
    data, indices = values
    axis = attrs.axis % data.ndim
    common = tuple(slice(None) if a == axis else slice(extent) for a, extent in enumerate(indices.shape))
    limited = np.clip(indices.astype(np.int64), 0, max(data.shape[axis] - 1, 0))
    return np.take_along_axis(data[common], limited, axis)


def evaluate_gather_nd(values: Sequence[Array], attrs: GatherNdAttrs) -> Array:
    """data[b, indices[b, y]] for each index tuple."""
    data, indices = values
    batch, depth = attrs.batch_dims, indices.shape[-1]
    places = indices.shape[:-1]
    if 0 in places:
        return np.empty((*places, *data.shape[batch + depth :]), data.dtype)
    grid = np.indices(places, sparse=True)[:batch]
    extents = data.shape[batch : batch + depth]
    picked = (np.clip(indices[..., axis].astype(np.int64), 0, extent - 1) for axis, extent in enumerate(extents))
    key = (*grid, *picked)
    return np.asarray(data[key]) if key else np.broadcast_to(data, (*places, *data.shape)).copy()


def compute_gather(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element whose index along the axis is read from the indices."""
    axis = call.attrs.axis % len(index)
    source = list(index)
    extent = number(call.arg_types[0].shape[axis], f"the extent of axis {axis}")
    source[axis] = _limited(s, args[1](index), extent)
    return args[0](source)


def compute_gather_nd(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element whose leading indices are read from the index tuple."""
    data, indices = call.arg_types
    batch = call.attrs.batch_dims
    depth = number(indices.shape[-1], "the last extent of indices")
    place = index[: indices.rank - 1]
    picked = [
        _limited(s, args[1]([*place, position]), number(data.shape[batch + position], "an indexed extent"))
        for position in range(depth)
    ]
    return args[0]([*index[:batch], *picked, *index[indices.rank - 1 :]])


def _limited(s: ScalarAlgebra, value: Scalar, extent: int) -> Index:
    value = s.binary("max", s.cast(value, "int64"), s.const(0, "int64"))
    return s.to_index(s.binary("min", value, s.const(extent - 1, "int64")))


OPS = (
    Op(
        "gather",
        2,
        infer_gather_type,
        evaluate_gather,
        OpKind.INJECTIVE,
        GatherAttrs,
        compute_gather,
        ("data", "indices"),
    ),
    Op(
        "gather_nd",
        2,
        infer_gather_nd_type,
        evaluate_gather_nd,
        OpKind.INJECTIVE,
        GatherNdAttrs,
        compute_gather_nd,
        ("data", "indices"),
    ),
)
