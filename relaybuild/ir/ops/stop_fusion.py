"""annotation.stop_fusion: returns its argument, and keeps what computes it apart from what uses it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.op import Attrs, Op, OpKind, call_op
from relaybuild.ir.ops._shapes import Array, expect_tensor
from relaybuild.ir.types import Type


def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of the argument."""
    return expect_tensor(types[0])


def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
    """A copy."""
    return np.copy(values[0])


def decompose(call: Call) -> Expr:
    """A copy."""
    return call_op("copy", call.args, call.span)


OP = Op("annotation.stop_fusion", 1, infer_type, evaluate, OpKind.OPAQUE, arg_names=("data",), decompose=decompose)
