"""`where`: elements of one tensor or another, by a condition; all three are broadcast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.ir.layout import broadcast_layout
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import BOOL, Array, broadcast_shapes, expect_dtype, expect_same_dtype, expect_tensors
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra, broadcast_index
from relaybuild.ir.types import TensorType, Type


def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The broadcast shape, with the dtype that `x` and `y` share."""
    condition, x, y = expect_tensors(types)
    expect_dtype(condition, BOOL, "condition")
    dtype = expect_same_dtype((x, y))
    return TensorType(broadcast_shapes((condition.shape, x.shape, y.shape)), dtype)


def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
    """x where the condition holds, else y."""
    return np.where(values[0], values[1], values[2])


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """x where the condition holds, else y."""
    condition, x, y = (arg(broadcast_index(index, found)) for arg, found in zip(args, call.arg_types))
    return s.select(condition, x, y)


OP = Op(
    "where",
    3,
    infer_type,
    evaluate,
    OpKind.BROADCAST,
    compute=compute,
    arg_names=("condition", "x", "y"),
    follow_layout=broadcast_layout,
)
