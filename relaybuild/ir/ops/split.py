"""`split`: a tensor cut along one axis into a tuple of parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, expect_tensor, normalize_axis, number
from relaybuild.ir.types import TensorType, TupleType, Type


@dataclass(frozen=True)
class SplitAttrs(Attrs):
    """`indices_or_sections`: a number of equal parts, or the ascending positions where to cut."""

    indices_or_sections: int | tuple[int, ...]
    axis: int = 0


def infer_type(types: Sequence[Type], attrs: SplitAttrs) -> Type:
    """A tuple of the parts' types."""
    data = expect_tensor(types[0])
    axis = normalize_axis(attrs.axis, data.rank)
    bounds = split_bounds(number(data.shape[axis], f"the extent of axis {axis}"), attrs)
    return TupleType(
        tuple(
            TensorType((*data.shape[:axis], end - begin, *data.shape[axis + 1 :]), data.dtype) for begin, end in bounds
        )
    )


def split_bounds(extent: int, attrs: SplitAttrs) -> list[tuple[int, int]]:
    """(begin, end) of each part along the axis."""
    cuts = attrs.indices_or_sections
    if isinstance(cuts, int):
        if cuts < 1 or extent % cuts:
            raise TypeMismatch(f"expected an extent that divides into {cuts} equal sections, found {extent}")
        cuts = tuple(range(extent // cuts, extent, extent // cuts)) if extent else (0,) * (cuts - 1)
    bounds = [0, *cuts, extent]
    if bounds != sorted(bounds):
        raise TypeMismatch(f"expected ascending cuts between 0 and {extent}, found {cuts}")
    return list(pairwise(bounds))


def evaluate(values: Sequence[Array], attrs: SplitAttrs) -> tuple[Array, ...]:
    """The parts of the array."""
    data = values[0]
    axis = attrs.axis % data.ndim
    return tuple(data[(slice(None),) * axis + (slice(*bound),)] for bound in split_bounds(data.shape[axis], attrs))


OP = Op("split", 1, infer_type, evaluate, OpKind.INJECTIVE, SplitAttrs, arg_names=("data",))
