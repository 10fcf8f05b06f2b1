"""`nn.bias_add`: a vector added along one axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._layouts import follow_vector
from relaybuild.ir.ops._shapes import (
    NUMERIC,
    Array,
    along_axis,
    expect_dtype,
    expect_extent,
    expect_rank,
    expect_same_dtype,
    expect_tensors,
    normalize_axis,
)
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class BiasAddAttrs(Attrs):
    """`axis`: the data's axis that the bias runs along."""

    axis: int = 1


def infer_type(types: Sequence[Type], attrs: BiasAddAttrs) -> Type:
    """The type of the data; the bias is a vector of the axis' extent."""
    data, bias = expect_tensors(types)
    expect_dtype(data, NUMERIC, "data")
    expect_same_dtype((data, bias))
    expect_rank(bias, 1, "bias")
    axis = normalize_axis(attrs.axis, data.rank)
    expect_extent(bias.shape[0], data.shape[axis], "bias' extent")
    return data


def evaluate(values: Sequence[Array], attrs: BiasAddAttrs) -> Array:
    """data + bias along the axis."""
    data, bias = values
    return np.asarray(data + along_axis(bias, attrs.axis % data.ndim, data.ndim))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """data[…] + bias[index along the axis]."""
    return s.binary("add", args[0](index), args[1]([index[call.attrs.axis]]))


OP = Op(
    "nn.bias_add",
    2,
    infer_type,
    evaluate,
    OpKind.BROADCAST,
    BiasAddAttrs,
    compute,
    ("data", "bias"),
    follow_layout=follow_vector,
)
