"""Tensors of one value: `full`, `zeros_like`, `ones_like`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, as_ints, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import DTYPES, TensorType, Type


@dataclass(frozen=True)
class FullAttrs(Attrs):
    """The shape, the value of every element, and the dtype."""

    shape: tuple[int, ...]
    fill_value: float
    dtype: str = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_ints(self.shape))


def infer_full_type(types: Sequence[Type], attrs: FullAttrs) -> Type:
    """The wanted type."""
    if attrs.dtype not in DTYPES:
        raise TypeMismatch(f"expected 'dtype' to be one of {', '.join(DTYPES)}, found '{attrs.dtype}'")
    if any(extent < 0 for extent in attrs.shape):
        raise TypeMismatch(f"expected extents of 0 or more in 'shape', found {attrs.shape}")
    return TensorType(attrs.shape, attrs.dtype)


def evaluate_full(values: Sequence[Array], attrs: FullAttrs) -> Array:
    """An array of the value."""
    return np.full(attrs.shape, attrs.fill_value, attrs.dtype)


def compute_full(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The value."""
    return s.const(call.attrs.fill_value, call.attrs.dtype)


def fill_like_op(name: str, value: int) -> Op:
    """An operator that replaces every element by a value."""

    def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
        return expect_tensor(types[0])

    def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
        return np.full(values[0].shape, value, values[0].dtype)

    def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
        return s.const(value, call.out_type.dtype)

    return Op(
        name, 1, infer_type, evaluate, OpKind.ELEMWISE, compute=compute, arg_names=("data",), follow_layout=keep_layout
    )


OPS = (
    Op("full", 0, infer_full_type, evaluate_full, OpKind.ELEMWISE, FullAttrs, compute_full),
    fill_like_op("zeros_like", 0),
    fill_like_op("ones_like", 1),
)
