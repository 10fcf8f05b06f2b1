"""The algebra in which operators write one element of their result; knows neither numpy nor C.

A `compute` rule receives an algebra `s`, one accessor per tensor argument (the fields of a tuple argument are given one
by one), the index of one element of the result, and the call's types and attributes. It returns that element as a
scalar expression:

    def compute(s, args, index, call):            # tanh
        return s.unary("tanh", args[0](index))

    def compute(s, args, index, call):            # transpose
        source = [None] * len(index)
        for position, axis in enumerate(call.attrs.axes):
            source[axis] = index[position]
        return args[0](source)

Indices are integers, or objects that support `+ - * // %` with integers and each other (`//` and `%` of non-negative
values only). Scalars are opaque: they are combined through the algebra alone. In `select(cond, a, b)` only the chosen
side is evaluated, so a padded load may index outside its argument on the side that is not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.types import TensorType

Index: TypeAlias = Any
"""An int, or an index expression of the algebra."""
Scalar: TypeAlias = Any
"""A scalar expression of the algebra."""
Accessor: TypeAlias = Callable[[Sequence[Index]], Scalar]

UNARY = [
    "neg",
    "abs",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "tanh",
    "sigmoid",
    "erf",
    "floor",
    "ceil",
    "round",
    "trunc",
    "sign",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "acosh",
    "atanh",
    "not",
    "isnan",
    "isinf",
]
"""`round` is half to even; `not` is logical."""
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "pow",
    "mod",
    "floormod",
    "floordiv",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "and",
    "or",
    "xor",
    "bitand",
    "bitor",
    "bitxor",
    "shl",
    "shr",
]
"""`div` of integers truncates and `mod` has the sign of the dividend, as in C; `eq` to `ge` give bool; `and`, `or`,
`xor` are logical; `max` and `min` return NaN where either argument is one."""


class ScalarAlgebra(Protocol):
    """What a `compute` rule may use."""

    def const(self, value: float | int | bool, dtype: str) -> Scalar:
        """A literal."""

    def unary(self, name: str, x: Scalar) -> Scalar:
        """One of `UNARY`."""

    def binary(self, name: str, a: Scalar, b: Scalar) -> Scalar:
        """One of `BINARY`, over two scalars of one dtype."""

    def select(self, cond: Scalar, a: Scalar, b: Scalar) -> Scalar:
        """`a` where `cond`, a bool scalar, holds, else `b`."""

    def cast(self, x: Scalar, dtype: str) -> Scalar:
        """Conversion as in C: floating point to integer truncates; to bool is `!= 0`."""

    def in_range(self, index: Index, begin: Index, end: Index) -> Scalar:
        """The bool scalar `begin <= index < end`."""

    def index_value(self, index: Index, dtype: str) -> Scalar:
        """An index as a scalar, for `arange` and its like."""

    def to_index(self, x: Scalar) -> Index:
        """An integer scalar as an index, for `take` and its like; the value must be in range."""


@dataclass(frozen=True)
class ComputeCall:
    """The call whose element is computed: types of the tensor arguments, of the result, and the attributes."""

    arg_types: tuple[TensorType, ...]
    out_type: TensorType
    attrs: Any


ComputeRule: TypeAlias = Callable[[Any, Sequence[Accessor], Sequence[Index], ComputeCall], Scalar]


def broadcast_index(index: Sequence[Index], arg_type: TensorType) -> list[Index]:
    """The element of an argument that numpy broadcasting reads for `index` of the result."""
    tail = index[len(index) - arg_type.rank :]
    return [0 if extent == 1 else position for position, extent in zip(tail, arg_type.shape)]
