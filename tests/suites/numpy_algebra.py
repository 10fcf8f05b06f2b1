"""The scalar algebra over numpy arrays: evaluates a `compute` rule at all elements at once; knows no operator.

It is strict where generated code would be undefined: an index outside its argument poisons the element unless a
`select` leaves it out, and `//` and `%` of a negative index fail at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.op import Op
from relaybuild.ir.scalar import BINARY, UNARY, Accessor, ComputeCall
from relaybuild.ir.types import TensorType

Array = NDArray[Any]


class Index:
    """An index expression: integers, one per element of the result."""

    def __init__(self, values: Array) -> None:
        self.values = values

    def __add__(self, other: Index | int) -> Index:
        return Index(self.values + _plain(other))

    def __sub__(self, other: Index | int) -> Index:
        return Index(self.values - _plain(other))

    def __mul__(self, other: Index | int) -> Index:
        return Index(self.values * _plain(other))

    def __radd__(self, other: int) -> Index:
        return Index(other + self.values)

    def __rsub__(self, other: int) -> Index:
        return Index(other - self.values)

    def __rmul__(self, other: int) -> Index:
        return Index(other * self.values)

    def __floordiv__(self, other: Index | int) -> Index:
        return Index(self._non_negative() // _plain(other))

    def __mod__(self, other: Index | int) -> Index:
        return Index(self._non_negative() % _plain(other))

    def _non_negative(self) -> Array:
        assert (self.values >= 0).all(), "// or % of a negative index"
        return self.values


def _plain(index: Index | int) -> Any:
    return index.values if isinstance(index, Index) else index


@dataclass(frozen=True)
class Value:
    """A scalar at every element of the result, and where it is one (rather than read from outside an argument)."""

    value: Array
    valid: Array | bool = True


def _truncated_quotient(a: Array, b: Array) -> Array:
    return a / b if a.dtype.kind == "f" else (a - np.fmod(a, b)) // b


def _floor_quotient(a: Array, b: Array) -> Array:
    return np.floor(a / b) if a.dtype.kind == "f" else a // b


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


_UNARY: Mapping[str, Callable[[Array], Any]] = {
    "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _erf,
    "round": np.rint,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "not": np.logical_not,
}
_BINARY: Mapping[str, Callable[[Array, Array], Any]] = {
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _truncated_quotient,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "mod": np.fmod,
    "floormod": np.mod,
    "floordiv": _floor_quotient,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
}
_LOGICAL = ("and", "or", "xor")
_COMPARISON = ("eq", "ne", "lt", "le", "gt", "ge")


class NumpyAlgebra:
    """`ScalarAlgebra` where a scalar is a Value and an index an Index."""

    def const(self, value: float | int | bool, dtype: str) -> Value:
        return Value(np.asarray(np.dtype(dtype).type(value)))

    def unary(self, name: str, x: Value) -> Value:
        assert name in UNARY
        assert (name == "not") == (x.value.dtype == bool), f"{name} of {x.value.dtype}"
        result = np.asarray(_UNARY.get(name, getattr(np, name, None))(x.value))  # type: ignore[misc]
        return Value(result if name in ("isnan", "isinf") else result.astype(x.value.dtype), x.valid)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        assert name in BINARY
        assert a.value.dtype == b.value.dtype, f"{name} of {a.value.dtype} and {b.value.dtype}"
        assert name not in _LOGICAL or a.value.dtype == bool, f"{name} of {a.value.dtype}"
        result = np.asarray(_BINARY.get(name, np.add)(a.value, b.value))
        dtype = np.dtype(bool) if name in _COMPARISON else a.value.dtype
        return Value(result.astype(dtype), np.logical_and(a.valid, b.valid))

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        assert cond.value.dtype == bool
        assert a.value.dtype == b.value.dtype, f"select of {a.value.dtype} and {b.value.dtype}"
        chosen = np.where(cond.value, a.valid, b.valid)
        return Value(np.where(cond.value, a.value, b.value), np.logical_and(cond.valid, chosen))

    def cast(self, x: Value, dtype: str) -> Value:
        return Value(x.value.astype(dtype), x.valid)

    def in_range(self, index: Index | int, begin: Index | int, end: Index | int) -> Value:
        position = _plain(index)
        return Value(np.asarray((position >= _plain(begin)) & (position < _plain(end))))

    def index_value(self, index: Index | int, dtype: str) -> Value:
        return Value(np.asarray(_plain(index)).astype(dtype))

    def to_index(self, x: Value) -> Index:
        assert x.value.dtype.kind in "iu", f"an index of {x.value.dtype}"
        return Index(x.value.astype(np.int64))


def accessor(data: Array) -> Accessor:
    """Reads an array; elements outside it are poisoned."""

    def read(index: Sequence[Index | int]) -> Value:
        assert len(index) == data.ndim, f"{len(index)} indices into rank {data.ndim}"
        positions = [np.asarray(_plain(position)) for position in index]
        valid = np.asarray(True)
        for position, extent in zip(positions, data.shape):
            valid = np.logical_and(valid, (position >= 0) & (position < extent))
        if data.size == 0:
            return Value(np.zeros((), data.dtype), np.zeros((), bool))
        key = tuple(np.clip(position, 0, extent - 1) for position, extent in zip(positions, data.shape))
        return Value(np.asarray(data[key]), valid)

    return read


def compute_all(op: Op, tensors: Sequence[Array], out_type: TensorType, attrs: object) -> Array:
    """The result of an operator by its `compute` rule; `tensors` are its arguments, fields of tuples one by one."""
    assert op.compute is not None
    shape = out_type.static_shape
    index = [Index(positions) for positions in np.indices(shape, sparse=True)]
    types = tuple(TensorType(tensor.shape, tensor.dtype.name) for tensor in tensors)
    call = ComputeCall(types, out_type, attrs)
    with np.errstate(all="ignore"):
        result: Value = op.compute(NumpyAlgebra(), [accessor(tensor) for tensor in tensors], index, call)
    assert np.broadcast_to(result.valid, shape).all(), f"'{op.name}' reads outside an argument"
    assert result.value.dtype.name == out_type.dtype, f"'{op.name}' computes {result.value.dtype}, not {out_type.dtype}"
    return np.broadcast_to(result.value, shape)
