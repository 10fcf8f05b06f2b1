"""Bit arithmetic over integers (and, apart from the shifts, bool)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._families import broadcast_op
from relaybuild.ir.ops._shapes import BOOL, INTEGER, Array, expect_dtype, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type

BITS = INTEGER | BOOL


def infer_not_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of the argument, which must be of integers or bool."""
    data = expect_tensor(types[0])
    expect_dtype(data, BITS)
    return data


def evaluate_not(values: Sequence[Array], attrs: Attrs) -> Array:
    """Every bit inverted."""
    return np.asarray(np.invert(values[0]))


def compute_not(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """`x ^ ~0`."""
    dtype = call.out_type.dtype
    if dtype == "bool":
        return s.unary("not", args[0](index))
    ones = int(np.iinfo(dtype).max) if dtype.startswith("u") else -1
    return s.binary("bitxor", args[0](index), s.const(ones, dtype))


OPS = (
    broadcast_op("bitwise_and", "bitand", np.bitwise_and, BITS, commutative=True),
    broadcast_op("bitwise_or", "bitor", np.bitwise_or, BITS, commutative=True),
    broadcast_op("bitwise_xor", "bitxor", np.bitwise_xor, BITS, commutative=True),
    broadcast_op("left_shift", "shl", np.left_shift, INTEGER),
    broadcast_op("right_shift", "shr", np.right_shift, INTEGER),
    Op(
        "bitwise_not",
        1,
        infer_not_type,
        evaluate_not,
        OpKind.ELEMWISE,
        compute=compute_not,
        arg_names=("data",),
    ),
)
