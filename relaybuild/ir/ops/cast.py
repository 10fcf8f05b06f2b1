"""`cast`: conversion of elements to another dtype, as in C."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.layout import keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import DTYPES, TensorType, Type


@dataclass(frozen=True)
class CastAttrs(Attrs):
    """`dtype`: the result's element type."""

    dtype: str


def infer_type(types: Sequence[Type], attrs: CastAttrs) -> Type:
    """The argument's shape with the wanted dtype."""
    if attrs.dtype not in DTYPES:
        raise TypeMismatch(f"expected 'dtype' to be one of {', '.join(DTYPES)}, found '{attrs.dtype}'")
    return TensorType(expect_tensor(types[0]).shape, attrs.dtype)


def evaluate(values: Sequence[Array], attrs: CastAttrs) -> Array:
    """Floating point to integer truncates; to bool is `!= 0`."""
    with np.errstate(all="ignore"):
        return values[0].astype(numpy_dtype(attrs.dtype))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element converted."""
    return s.cast(args[0](index), call.attrs.dtype)


OP = Op("cast", 1, infer_type, evaluate, OpKind.ELEMWISE, CastAttrs, compute, ("data",), follow_layout=keep_layout)
