"""`nn.l2_normalize`: vectors along axes scaled to length one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import FLOAT, Array, as_ints, expect_dtype, expect_tensor, normalize_axes, wide
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class L2NormalizeAttrs(Attrs):
    """`eps`: the least squared length divided by; `axis` None takes the whole tensor as one vector."""

    eps: float = 1e-12
    axis: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", as_ints(self.axis))


def infer_type(types: Sequence[Type], attrs: L2NormalizeAttrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, FLOAT)
    normalize_axes(attrs.axis, data.rank)
    return data


def evaluate(values: Sequence[Array], attrs: L2NormalizeAttrs) -> Array:
    """x / sqrt(max(sum of squares, eps))."""
    data = values[0].astype(wide(values[0].dtype), copy=False)
    squares = np.sum(data * data, normalize_axes(attrs.axis, data.ndim), keepdims=True)
    return np.asarray(data / np.sqrt(np.maximum(squares, attrs.eps))).astype(values[0].dtype, copy=False)


OP = Op("nn.l2_normalize", 1, infer_type, evaluate, OpKind.REDUCE, L2NormalizeAttrs, arg_names=("data",))
