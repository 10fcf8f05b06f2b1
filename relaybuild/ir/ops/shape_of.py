"""`shape_of`: the shape of a tensor as a tensor; reads no element."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import INTEGER, Array, expect_tensor
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class ShapeOfAttrs(Attrs):
    """`dtype`: of the result."""

    dtype: str = "int64"


def infer_type(types: Sequence[Type], attrs: ShapeOfAttrs) -> Type:
    """A vector of as many numbers as the data has axes."""
    if attrs.dtype not in INTEGER:
        raise TypeMismatch(f"expected 'dtype' to be one of integers, found '{attrs.dtype}'")
    return TensorType((expect_tensor(types[0]).rank,), attrs.dtype)


def evaluate(values: Sequence[Array], attrs: ShapeOfAttrs) -> Array:
    """The shape."""
    return np.asarray(values[0].shape, attrs.dtype)


OP = Op("shape_of", 1, infer_type, evaluate, OpKind.OPAQUE, ShapeOfAttrs, arg_names=("data",))
