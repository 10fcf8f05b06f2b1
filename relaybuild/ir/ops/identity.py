"""Operators that return their argument: `copy`, and `nn.dropout`, which does nothing at inference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import Array, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class DropoutAttrs(Attrs):
    """`rate`: the share of elements that training sets to zero."""

    rate: float = 0.5


def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of the argument."""
    return expect_tensor(types[0])


def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
    """A copy."""
    return np.copy(values[0])


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element itself."""
    return args[0](index)


OPS = (
    Op(
        "copy",
        1,
        infer_type,
        evaluate,
        OpKind.ELEMWISE,
        compute=compute,
        arg_names=("data",),
        follow_layout=keep_layout,
    ),
    Op(
        "nn.dropout",
        1,
        infer_type,
        evaluate,
        OpKind.ELEMWISE,
        DropoutAttrs,
        compute,
        ("data",),
        follow_layout=keep_layout,
    ),
)
