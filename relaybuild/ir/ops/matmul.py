"""`nn.matmul`: matrix products over the last two axes, the leading ones broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, Precision, TypeMismatch
from relaybuild.ir.ops._shapes import (
    NUMERIC,
    Array,
    accumulator,
    broadcast_shapes,
    expect_dtype,
    expect_extent,
    expect_same_dtype,
    expect_tensors,
)
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class MatmulAttrs(Attrs):
    """Whether the last two axes of either argument are exchanged first."""

    transpose_a: bool = False
    transpose_b: bool = False


def infer_type(types: Sequence[Type], attrs: MatmulAttrs) -> Type:
    """(…, M, K) and (…, K, N) give (…, M, N); both have rank 2 or more."""
    a, b = expect_tensors(types)
    expect_dtype(a, NUMERIC)
    dtype = expect_same_dtype((a, b))
    rows, inner = _matrix(a, attrs.transpose_a)
    b_inner, columns = _matrix(b, attrs.transpose_b)
    expect_extent(b_inner, inner, "the second argument's inner extent")
    return TensorType((*broadcast_shapes((a.shape[:-2], b.shape[:-2])), rows, columns), dtype)


def _matrix(found: TensorType, transpose: bool) -> tuple[Extent, Extent]:
    if found.rank < 2:
        raise TypeMismatch(f"expected tensors of rank 2 or more, found rank {found.rank}")
    rows, columns = found.shape[-2:]
    return (columns, rows) if transpose else (rows, columns)


def evaluate(values: Sequence[Array], attrs: MatmulAttrs) -> Array:
    """a @ b"""
    work = accumulator(values[0].dtype)
    a, b = (value.astype(work, copy=False) for value in values)
    a = a.swapaxes(-1, -2) if attrs.transpose_a else a
    b = b.swapaxes(-1, -2) if attrs.transpose_b else b
    return np.asarray(np.matmul(a, b)).astype(values[0].dtype, copy=False)


OP = Op(
    "nn.matmul",
    2,
    infer_type,
    evaluate,
    OpKind.ANCHOR,
    MatmulAttrs,
    arg_names=("a", "b"),
    precision=Precision.ALWAYS,
)
