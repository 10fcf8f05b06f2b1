"""Repetition: `tile` repeats whole tensors, `repeat` each element along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._indexing import delinearize
from relaybuild.ir.ops._shapes import Array, as_ints, expect_tensor, normalize_axis, number, numbers
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class TileAttrs(Attrs):
    """`reps`: how often along each axis, the last ones if there are fewer than axes; more put axes in front."""

    reps: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "reps", as_ints(self.reps))


@dataclass(frozen=True)
class RepeatAttrs(Attrs):
    """`repeats`: how often each element follows itself; `axis` None flattens the data first."""

    repeats: int
    axis: int | None = None


def infer_tile_type(types: Sequence[Type], attrs: TileAttrs) -> Type:
    """Each extent times its repetitions; axes repeated once may be symbolic."""
    data = expect_tensor(types[0])
    if any(count < 0 for count in attrs.reps):
        raise TypeMismatch(f"expected repetitions of 0 or more in 'reps', found {attrs.reps}")
    rank = max(data.rank, len(attrs.reps))
    shape = (*(1,) * (rank - data.rank), *data.shape)
    reps = (*(1,) * (rank - len(attrs.reps)), *attrs.reps)
    return TensorType(tuple(_times(extent, count) for extent, count in zip(shape, reps)), data.dtype)


def _times(extent: Extent, count: int) -> Extent:
    return extent if count == 1 else number(extent, "a repeated extent") * count


def infer_repeat_type(types: Sequence[Type], attrs: RepeatAttrs) -> Type:
    """The shape with the axis' extent multiplied, or a vector of all."""
    data = expect_tensor(types[0])
    if attrs.repeats < 0:
        raise TypeMismatch(f"expected 'repeats' of 0 or more, found {attrs.repeats}")
    if attrs.axis is None:
        numbers(data, "data")
        return TensorType((data.num_elements * attrs.repeats,), data.dtype)
    axis = normalize_axis(attrs.axis, data.rank)
    return TensorType(
        (*data.shape[:axis], _times(data.shape[axis], attrs.repeats), *data.shape[axis + 1 :]), data.dtype
    )


def evaluate_tile(values: Sequence[Array], attrs: TileAttrs) -> Array:
    """The array repeated."""
    return np.tile(values[0], attrs.reps)


def evaluate_repeat(values: Sequence[Array], attrs: RepeatAttrs) -> Array:
    """The array's elements repeated."""
    return np.repeat(values[0], attrs.repeats, attrs.axis)


def compute_tile(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the index modulo the extents."""
    data = call.arg_types[0]
    tail = index[len(index) - data.rank :]
    extents = call.out_type.shape[len(index) - data.rank :]
    source = [
        position if extent == repeated else position % number(extent, "a repeated extent") if extent != 1 else 0
        for position, extent, repeated in zip(tail, data.shape, extents)
    ]
    return args[0](source)


def compute_repeat(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the index divided by the repetitions."""
    attrs: RepeatAttrs = call.attrs
    axis = attrs.axis or 0
    original = index[axis] // attrs.repeats if attrs.repeats > 1 else index[axis]
    if attrs.axis is None:
        return args[0](delinearize(original, call.arg_types[0].static_shape))
    source = list(index)
    source[axis] = original
    return args[0](source)


OPS = (
    Op("tile", 1, infer_tile_type, evaluate_tile, OpKind.INJECTIVE, TileAttrs, compute_tile, ("data",)),
    Op("repeat", 1, infer_repeat_type, evaluate_repeat, OpKind.INJECTIVE, RepeatAttrs, compute_repeat, ("data",)),
)
