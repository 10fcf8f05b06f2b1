"""`nn.dense`: data times a transposed weight matrix, over any leading axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
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
from relaybuild.ir.types import DTYPES, TensorType, Type


@dataclass(frozen=True)
class DenseAttrs(Attrs):
    """`units` repeats the weight's rows and is checked against them; `out_dtype` is accumulated, "" for the data's."""

    units: int | None = None
    out_dtype: str = ""


def infer_type(types: Sequence[Type], attrs: DenseAttrs) -> Type:
    """data (…, K) and weight (N, K) give (…, N)."""
    data, weight = expect_tensors(types)
    expect_dtype(data, NUMERIC, "data")
    dtype = expect_same_dtype((data, weight))
    expect_rank(weight, 2, "weight")
    if data.rank < 1:
        raise TypeMismatch("expected data of rank 1 or more, found a scalar")
    expect_extent(weight.shape[1], data.shape[-1], "weight's input units")
    if attrs.units is not None:
        expect_extent(weight.shape[0], attrs.units, "weight's output units ('units')")
    if attrs.out_dtype and attrs.out_dtype not in DTYPES:
        raise TypeMismatch(f"expected 'out_dtype' to be one of {', '.join(DTYPES)}, found '{attrs.out_dtype}'")
    return TensorType((*data.shape[:-1], weight.shape[0]), attrs.out_dtype or dtype)


def evaluate(values: Sequence[Array], attrs: DenseAttrs) -> Array:
    """data @ weight.T"""
    out_dtype = np.dtype(attrs.out_dtype or values[0].dtype)
    work = accumulator(out_dtype)
    data, weight = (value.astype(work, copy=False) for value in values)
    return np.asarray(np.matmul(data, weight.T)).astype(out_dtype, copy=False)


OP = Op(
    "nn.dense",
    2,
    infer_type,
    evaluate,
    OpKind.ANCHOR,
    DenseAttrs,
    arg_names=("data", "weight"),
    precision=Precision.ALWAYS,
)
