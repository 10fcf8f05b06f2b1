"""`nn.dense`: data times a transposed weight matrix, over any leading axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.ir.op import Attrs, Op, OpKind, Precision, TypeMismatch
from relaybuild.ir.ops._shapes import (
    NUMERIC,
    Array,
    accumulator,
    expect_dtype,
    expect_extent,
    expect_rank,
    expect_same_dtype,
    expect_tensors,
)
from relaybuild.ir.types import TensorType, Type


def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """data (…, K) and weight (N, K) give (…, N)."""
    data, weight = expect_tensors(types)
    expect_dtype(data, NUMERIC, "data")
    dtype = expect_same_dtype((data, weight))
    expect_rank(weight, 2, "weight")
    if data.rank < 1:
        raise TypeMismatch("expected data of rank 1 or more, found a scalar")
    expect_extent(weight.shape[1], data.shape[-1], "weight's input units")
    return TensorType((*data.shape[:-1], weight.shape[0]), dtype)


def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
    """data @ weight.T"""
    work = accumulator(values[0].dtype)
    data, weight = (value.astype(work, copy=False) for value in values)
    return np.asarray(np.matmul(data, weight.T)).astype(values[0].dtype, copy=False)


OP = Op(
    "nn.dense",
    2,
    infer_type,
    evaluate,
    OpKind.ANCHOR,
    arg_names=("data", "weight"),
    precision=Precision.ALWAYS,
)
