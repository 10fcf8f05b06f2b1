"""`trilu`: the upper or lower triangle of matrices, zeros elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class TriluAttrs(Attrs):
    """`upper` or lower; `k`: the diagonal that bounds the triangle and belongs to it, positive ones above the main."""

    upper: bool = True
    k: int = 0


def infer_type(types: Sequence[Type], attrs: TriluAttrs) -> Type:
    """The type of the argument, which has rank 2 or more."""
    data = expect_tensor(types[0])
    if data.rank < 2:
        raise TypeMismatch(f"expected a tensor of rank 2 or more, found rank {data.rank}")
    return data


def evaluate(values: Sequence[Array], attrs: TriluAttrs) -> Array:
    """The triangle of the last two axes."""
    return np.triu(values[0], attrs.k) if attrs.upper else np.tril(values[0], attrs.k)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element, or zero on the other side of the diagonal."""
    diagonal = s.index_value(index[-1] - index[-2], "int64")
    kept = s.binary("ge" if call.attrs.upper else "le", diagonal, s.const(call.attrs.k, "int64"))
    return s.select(kept, args[0](index), s.const(0, call.out_type.dtype))


OP = Op("trilu", 1, infer_type, evaluate, OpKind.INJECTIVE, TriluAttrs, compute, ("data",))
