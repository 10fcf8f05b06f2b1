"""`nn.softmax` and `nn.log_softmax` along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import FLOAT, Array, accumulator, expect_dtype, expect_tensor, normalize_axis
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class SoftmaxAttrs(Attrs):
    """`axis`: along which the result sums to one."""

    axis: int = -1


def infer_type(types: Sequence[Type], attrs: SoftmaxAttrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, FLOAT)
    normalize_axis(attrs.axis, data.rank)
    return data


def evaluate_softmax(values: Sequence[Array], attrs: SoftmaxAttrs) -> Array:
    """exp(x - max) / sum."""
    weights = np.exp(_shifted(values[0], attrs))
    return np.asarray(weights / weights.sum(attrs.axis, keepdims=True)).astype(values[0].dtype, copy=False)


def evaluate_log_softmax(values: Sequence[Array], attrs: SoftmaxAttrs) -> Array:
    """x - max - log(sum)."""
    shifted = _shifted(values[0], attrs)
    total = np.exp(shifted).sum(attrs.axis, keepdims=True)
    return np.asarray(shifted - np.log(total)).astype(values[0].dtype, copy=False)


def _shifted(data: Array, attrs: SoftmaxAttrs) -> Array:
    data = data.astype(accumulator(data.dtype), copy=False)
    return np.asarray(data - data.max(attrs.axis, keepdims=True, initial=-np.inf))


OPS = (
    Op("nn.softmax", 1, infer_type, evaluate_softmax, OpKind.REDUCE, SoftmaxAttrs, arg_names=("data",)),
    Op("nn.log_softmax", 1, infer_type, evaluate_log_softmax, OpKind.REDUCE, SoftmaxAttrs, arg_names=("data",)),
)
