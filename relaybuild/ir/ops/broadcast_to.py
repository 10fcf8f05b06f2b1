"""`broadcast_to`: a tensor repeated to a larger shape by numpy's rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, as_ints, broadcast_shapes, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra, broadcast_index
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class BroadcastToAttrs(Attrs):
    """`shape`: of the result."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", as_ints(self.shape))


def infer_type(types: Sequence[Type], attrs: BroadcastToAttrs) -> Type:
    """The wanted shape, which the data's must broadcast to."""
    data = expect_tensor(types[0])
    if broadcast_shapes((data.shape, attrs.shape)) != attrs.shape:
        raise TypeMismatch(f"expected a shape that {data} broadcasts to, found {attrs.shape}")
    return TensorType(attrs.shape, data.dtype)


def evaluate(values: Sequence[Array], attrs: BroadcastToAttrs) -> Array:
    """A view of the array."""
    return np.broadcast_to(values[0], attrs.shape)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the index, 0 along axes of extent 1."""
    return args[0](broadcast_index(index, call.arg_types[0]))


OP = Op("broadcast_to", 1, infer_type, evaluate, OpKind.INJECTIVE, BroadcastToAttrs, compute, ("data",))
