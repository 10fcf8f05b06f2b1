"""`nn.softmax` and `nn.log_softmax` along one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Decompose, Evaluate, Op, OpKind
from relaybuild.ir.ops._layouts import follow_axis
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


def softmax_op(name: str, evaluate: Evaluate, fast: str | None = None, decompose: Decompose | None = None) -> Op:
    """An operator that normalises along one axis."""
    return Op(
        name,
        1,
        infer_type,
        evaluate,
        OpKind.REDUCE,
        SoftmaxAttrs,
        arg_names=("data",),
        follow_layout=follow_axis,
        fast=fast,
        decompose=decompose,
    )


OPS = (
    softmax_op("nn.softmax", evaluate_softmax, fast="nn.fast_softmax"),
    softmax_op("nn.log_softmax", evaluate_log_softmax),
)
