"""`nn.lrn`: local response normalisation across neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._layouts import follow_axis
from relaybuild.ir.ops._shapes import (
    FLOAT,
    Array,
    accumulator,
    expect_dtype,
    expect_positive,
    expect_tensor,
    normalize_axis,
)
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class LrnAttrs(Attrs):
    """`size`: how many channels take part, (size - 1) // 2 of them before the element's own."""

    size: int = 5
    axis: int = 1
    bias: float = 2.0
    alpha: float = 1e-5
    beta: float = 0.75


def infer_type(types: Sequence[Type], attrs: LrnAttrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, FLOAT)
    expect_positive("size", (attrs.size,))
    normalize_axis(attrs.axis, data.rank)
    return data


def evaluate(values: Sequence[Array], attrs: LrnAttrs) -> Array:
    """x / (bias + alpha / size * sum of squares) ** beta."""
    data = np.moveaxis(values[0], attrs.axis, -1).astype(accumulator(values[0].dtype), copy=False)
    before, channels = (attrs.size - 1) // 2, data.shape[-1]
    widths = [(0, 0)] * (data.ndim - 1) + [(before, attrs.size - 1 - before)]
    squares = np.pad(data * data, widths)
    total = np.zeros_like(data)
    for offset in range(attrs.size):
        total += squares[..., offset : offset + channels]
    result = data / (attrs.bias + attrs.alpha / attrs.size * total) ** attrs.beta
    return np.ascontiguousarray(np.moveaxis(result, -1, attrs.axis)).astype(values[0].dtype, copy=False)


OP = Op("nn.lrn", 1, infer_type, evaluate, OpKind.OPAQUE, LrnAttrs, arg_names=("data",), follow_layout=follow_axis)
