"""Rectifiers: `nn.relu`, `nn.leaky_relu` and, with one slope per channel, `nn.prelu`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._layouts import follow_vector
from relaybuild.ir.ops._shapes import (
    FLOAT,
    NUMERIC,
    Array,
    along_axis,
    expect_dtype,
    expect_extent,
    expect_rank,
    expect_same_dtype,
    expect_tensor,
    expect_tensors,
    normalize_axis,
)
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class LeakyReluAttrs(Attrs):
    """`alpha`: the slope below zero."""

    alpha: float = 0.01


@dataclass(frozen=True)
class PReluAttrs(Attrs):
    """`axis`: the data's axis that the slopes belong to."""

    axis: int = 1


def infer_relu_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, NUMERIC)
    return data


def infer_leaky_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of the argument, which must be floating point."""
    data = expect_tensor(types[0])
    expect_dtype(data, FLOAT)
    return data


def infer_prelu_type(types: Sequence[Type], attrs: PReluAttrs) -> Type:
    """The type of the data; the slopes have one value per extent of the axis."""
    data, alpha = expect_tensors(types)
    expect_dtype(data, FLOAT, "data")
    expect_same_dtype((data, alpha))
    expect_rank(alpha, 1, "alpha")
    expect_extent(alpha.shape[0], data.shape[normalize_axis(attrs.axis, data.rank)], "alpha's extent")
    return data


def evaluate_relu(values: Sequence[Array], attrs: Attrs) -> Array:
    """max(x, 0)."""
    return np.asarray(np.maximum(values[0], values[0].dtype.type(0)))


def evaluate_leaky(values: Sequence[Array], attrs: LeakyReluAttrs) -> Array:
    """x, or x * alpha below zero."""
    data = values[0]
    return np.where(data < 0, data * data.dtype.type(attrs.alpha), data)


def evaluate_prelu(values: Sequence[Array], attrs: PReluAttrs) -> Array:
    """x, or x * alpha[channel] below zero."""
    data, alpha = values
    slopes = along_axis(alpha, attrs.axis % data.ndim, data.ndim)
    return np.where(data < 0, data * slopes, data)


def compute_relu(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """max(x, 0)."""
    return s.binary("max", args[0](index), s.const(0, call.out_type.dtype))


def compute_leaky(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """x, or x * alpha below zero."""
    dtype = call.out_type.dtype
    return _below_zero(s, args[0](index), s.const(call.attrs.alpha, dtype), dtype)


def compute_prelu(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """x, or x * alpha[channel] below zero."""
    slope = args[1]([index[call.attrs.axis]])
    return _below_zero(s, args[0](index), slope, call.out_type.dtype)


def _below_zero(s: ScalarAlgebra, x: Scalar, slope: Scalar, dtype: str) -> Scalar:
    return s.select(s.binary("lt", x, s.const(0, dtype)), s.binary("mul", x, slope), x)


OPS = (
    Op(
        "nn.relu",
        1,
        infer_relu_type,
        evaluate_relu,
        OpKind.ELEMWISE,
        compute=compute_relu,
        arg_names=("data",),
        follow_layout=keep_layout,
    ),
    Op(
        "nn.leaky_relu",
        1,
        infer_leaky_type,
        evaluate_leaky,
        OpKind.ELEMWISE,
        LeakyReluAttrs,
        compute_leaky,
        ("data",),
        follow_layout=keep_layout,
    ),
    Op(
        "nn.prelu",
        2,
        infer_prelu_type,
        evaluate_prelu,
        OpKind.BROADCAST,
        PReluAttrs,
        compute_prelu,
        ("data", "alpha"),
        follow_layout=follow_vector,
    ),
)
