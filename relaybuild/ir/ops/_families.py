"""Constructors for the operators that apply one scalar function to each element; knows which dtypes they take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relaybuild.ir.layout import broadcast_layout, keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind, Precision
from relaybuild.ir.ops._shapes import (
    FLOAT,
    NUMERIC,
    Array,
    broadcast_shapes,
    expect_dtype,
    expect_same_dtype,
    expect_tensor,
    expect_tensors,
)
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra, broadcast_index
from relaybuild.ir.types import TensorType, Type


def elemwise_op(
    name: str,
    scalar: str,
    function: Callable[[Array], Any],
    dtypes: frozenset[str] = FLOAT,
    result: str | None = None,
    precision: Precision | None = None,
    fast: str | None = None,
) -> Op:
    """An operator of one argument: `scalar` in the algebra, `function` in numpy; `result` is its dtype if another."""

    def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
        data = expect_tensor(types[0])
        expect_dtype(data, dtypes)
        return TensorType(data.shape, result or data.dtype)

    def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(values[0])).astype(result or values[0].dtype, copy=False)

    def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
        return s.unary(scalar, args[0](index))

    return Op(
        name,
        1,
        infer_type,
        evaluate,
        OpKind.ELEMWISE,
        compute=compute,
        arg_names=("data",),
        follow_layout=keep_layout,
        precision=precision,
        fast=fast,
    )


def broadcast_op(
    name: str,
    scalar: str,
    function: Callable[[Array, Array], Any],
    dtypes: frozenset[str] = NUMERIC,
    result: str | None = None,
    commutative: bool = False,
    precision: Precision | None = None,
) -> Op:
    """An operator of two broadcast arguments of one dtype, which the result has unless `result` says otherwise."""

    def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
        left, right = expect_tensors(types)
        expect_dtype(left, dtypes)
        dtype = expect_same_dtype((left, right))
        return TensorType(broadcast_shapes((left.shape, right.shape)), result or dtype)

    def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(function(values[0], values[1])).astype(result or values[0].dtype, copy=False)

    def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
        left, right = (arg(broadcast_index(index, found)) for arg, found in zip(args, call.arg_types))
        return s.binary(scalar, left, right)

    return Op(
        name,
        2,
        infer_type,
        evaluate,
        OpKind.BROADCAST,
        compute=compute,
        arg_names=("lhs", "rhs"),
        commutative=commutative,
        follow_layout=broadcast_layout,
        precision=precision,
    )
