"""`nn.batch_norm`: normalisation by given statistics, one per channel, as at inference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Tuple, const
from relaybuild.ir.norms import along
from relaybuild.ir.op import Attrs, Op, OpKind, call_op
from relaybuild.ir.ops._layouts import follow_vector
from relaybuild.ir.ops._shapes import (
    FLOAT,
    Array,
    accumulator,
    along_axis,
    expect_dtype,
    expect_extent,
    expect_rank,
    expect_same_dtype,
    expect_tensors,
    normalize_axis,
)
from relaybuild.ir.types import TupleType, Type


@dataclass(frozen=True)
class BatchNormAttrs(Attrs):
    """`center` adds beta, `scale` multiplies by gamma; without them the argument is ignored."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


def infer_type(types: Sequence[Type], attrs: BatchNormAttrs) -> Type:
    """(data's type, mean's type, variance's type)."""
    data, *vectors = expect_tensors(types)
    expect_dtype(data, FLOAT, "data")
    expect_same_dtype((data, *vectors))
    channels = data.shape[normalize_axis(attrs.axis, data.rank)]
    for name, vector in zip(OP.arg_names[1:], vectors):
        expect_rank(vector, 1, name)
        expect_extent(vector.shape[0], channels, f"the extent of {name}")
    return TupleType((data, vectors[2], vectors[3]))


def evaluate(values: Sequence[Array], attrs: BatchNormAttrs) -> tuple[Array, Array, Array]:
    """((data - mean) / sqrt(variance + epsilon) * gamma + beta, mean, variance)."""
    data = values[0]
    work = accumulator(data.dtype)
    gamma, beta, mean, variance = (
        along_axis(value.astype(work), attrs.axis % data.ndim, data.ndim) for value in values[1:]
    )
    scale = 1 / np.sqrt(variance + work.type(attrs.epsilon))
    if attrs.scale:
        scale = scale * gamma
    result = (data.astype(work, copy=False) - mean) * scale
    if attrs.center:
        result = result + beta
    return result.astype(data.dtype, copy=False), np.copy(values[3]), np.copy(values[4])


def decompose(call: Call) -> Expr:
    """(data * scale + shift, mean, variance), whose scale and shift are vectors of the parameters alone."""
    data, gamma, beta, mean, variance = call.args
    kind, span = data.tensor_type, call.span
    attrs: Any = call.attrs
    scale: Expr = call_op("rsqrt", [call_op("add", [variance, const(attrs.epsilon, kind.dtype)], span)], span)
    if attrs.scale:
        scale = call_op("multiply", [gamma, scale], span)
    moved = call_op("multiply", [mean, scale], span)
    shift = call_op("subtract", [beta, moved], span) if attrs.center else call_op("negative", [moved], span)
    axis = attrs.axis % kind.rank
    scaled = call_op("multiply", [data, along(scale, axis, kind.rank)], span)
    return Tuple([call_op("add", [scaled, along(shift, axis, kind.rank)], span), mean, variance], span)


OP = Op(
    "nn.batch_norm",
    5,
    infer_type,
    evaluate,
    OpKind.OPAQUE,
    BatchNormAttrs,
    arg_names=("data", "gamma", "beta", "moving_mean", "moving_var"),
    follow_layout=follow_vector,
    decompose=decompose,
)
