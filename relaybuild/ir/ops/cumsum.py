"""`cumsum`: running sums along one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import NUMERIC, Array, expect_dtype, expect_tensor, normalize_axis, numbers, wide
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class CumsumAttrs(Attrs):
    """`axis`: None flattens the data first. `exclusive` leaves the element itself out; `reverse` sums from the end."""

    axis: int | None = None
    exclusive: bool = False
    reverse: bool = False


def infer_type(types: Sequence[Type], attrs: CumsumAttrs) -> Type:
    """The type of the argument, flattened where there is no axis."""
    data = expect_tensor(types[0])
    expect_dtype(data, NUMERIC)
    if attrs.axis is None:
        numbers(data, "data")
        return TensorType((data.num_elements,), data.dtype)
    normalize_axis(attrs.axis, data.rank)
    return data


def evaluate(values: Sequence[Array], attrs: CumsumAttrs) -> Array:
    """The running sums."""
    data = values[0].reshape(-1) if attrs.axis is None else values[0]
    axis = attrs.axis or 0
    directed = np.flip(data, axis) if attrs.reverse else data
    total = np.cumsum(directed, axis, wide(data.dtype))
    if attrs.exclusive:
        total = np.roll(total, 1, axis)
        np.moveaxis(total, axis, 0)[:1] = 0
    return np.asarray(np.flip(total, axis) if attrs.reverse else total).astype(data.dtype, copy=False)


OP = Op("cumsum", 1, infer_type, evaluate, OpKind.OPAQUE, CumsumAttrs, arg_names=("data",))
