"""`reverse`: elements in opposite order along axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import Array, as_ints, expect_tensor, normalize_axes, number
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class ReverseAttrs(Attrs):
    """`axis`: the axes that run backwards."""

    axis: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        object.__setattr__(self, "axis", as_ints(self.axis))


def infer_type(types: Sequence[Type], attrs: ReverseAttrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    for axis in normalize_axes(attrs.axis, data.rank):
        number(data.shape[axis], f"the extent of axis {axis}")
    return data


def evaluate(values: Sequence[Array], attrs: ReverseAttrs) -> Array:
    """The array flipped."""
    return np.flip(values[0], attrs.axis)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element counted from the end."""
    source = list(index)
    for axis in call.attrs.axis:
        source[axis] = index[axis] * -1 + (number(call.out_type.shape[axis], f"the extent of axis {axis}") - 1)
    return args[0](source)


OP = Op("reverse", 1, infer_type, evaluate, OpKind.INJECTIVE, ReverseAttrs, compute, ("data",))
