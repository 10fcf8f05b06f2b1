"""One ONNX node as its converter sees it: typed inputs, attributes, and calls to build; knows no operator by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, TensorProto

from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError, UserError
from relaybuild.frontend.onnx.fold import Folder
from relaybuild.frontend.onnx.reader import numpy_dtype
from relaybuild.ir.expr import Constant, Expr, Span, Tuple
from relaybuild.ir.types import TensorType


@dataclass(frozen=True)
class Node:
    """An operator, its inputs (None where one is left out) and what its converter may ask for.

    `outputs` are names, "" where nothing uses one. `array` turns a tensor attribute into an array, `inline` a subgraph
    attribute into the expressions of its outputs, over values of its inputs by name; `outer` gives the values of the
    graphs around it that a subgraph reads.
    """

    op_type: str
    domain: str
    opset: int
    span: Span
    inputs: tuple[Expr | None, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any]
    folder: Folder
    array: Callable[[TensorProto], NDArray[Any]]
    inline: Callable[[GraphProto, Mapping[str, Expr]], Sequence[Expr]]
    outer: Callable[[GraphProto], Mapping[str, Expr]]

    def fail(self, message: str) -> UserError:
        """An error about this node, to be raised; the importer adds its name."""
        return UserError(message)

    def unsupported(self, what: str) -> UnsupportedError:
        """An error about a form of this operator that relaybuild lacks, to be raised."""
        return UnsupportedError(f"{what} is not supported")

    # inputs

    def find(self, index: int) -> Expr | None:
        """An optional input, None where it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def get(self, index: int) -> Expr:
        """A required input."""
        found = self.find(index)
        if found is None:
            raise self.fail(f"input {index} is missing")
        return found

    def all_inputs(self) -> list[Expr]:
        """The inputs of a variadic operator; at least one."""
        return [self.get(index) for index in range(max(len(self.inputs), 1))]

    def type_of(self, expr: Expr) -> TensorType:
        """The type of a tensor."""
        return expr.tensor_type

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an input, as numbers."""
        return self.get(index).tensor_type.static_shape

    def rank(self, index: int) -> int:
        """The rank of an input."""
        return self.get(index).tensor_type.rank

    def dtype(self, index: int) -> str:
        """The dtype of an input."""
        return self.get(index).tensor_type.dtype

    def numbers(self, index: int, what: str) -> NDArray[Any]:
        """The value of an input that must not depend on the model's inputs."""
        value = self.folder.evaluate(self.get(index))
        if value is None:
            raise self.fail(
                f"'{what}' (input {index}) is computed from the model's inputs, expected a constant: sizes and"
                " axes must be known when the model is compiled"
            )
        return value

    def ints(self, index: int, what: str) -> tuple[int, ...]:
        """`numbers` as a flat tuple of integers."""
        return tuple(int(item) for item in self.numbers(index, what).reshape(-1))

    def find_ints(self, index: int, what: str) -> tuple[int, ...] | None:
        """`ints`, or None where the input is left out."""
        return None if self.find(index) is None else self.ints(index, what)

    def scalar(self, index: int, what: str) -> int | float | bool:
        """`numbers` as one Python number."""
        value = self.numbers(index, what)
        if value.size != 1:
            raise self.fail(f"'{what}' (input {index}) has shape {value.shape}, expected a scalar")
        number: int | float | bool = value.reshape(()).item()
        return number

    # attributes

    def int_attr(self, name: str, default: int | None = None) -> int:
        """An integer attribute."""
        value = self._attr(name, default)
        if not isinstance(value, int):
            raise self._mistyped(name, "an integer")
        return value

    def float_attr(self, name: str, default: float | None = None) -> float:
        """A float attribute: the shortest decimal whose float32 is the one stored, 1e-05 and not 9.9999997e-06."""
        value = self._attr(name, default)
        if not isinstance(value, float):
            raise self._mistyped(name, "a float")
        return float(str(np.float32(value))) if name in self.attrs else value

    def str_attr(self, name: str, default: str | None = None) -> str:
        """A string attribute."""
        value = self._attr(name, default)
        if not isinstance(value, (str, bytes)):
            raise self._mistyped(name, "a string")
        return value if isinstance(value, str) else value.decode("utf-8", "replace")

    def ints_attr(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """An attribute that is a list of integers."""
        value = self._attr(name, default)
        if not isinstance(value, Sequence) or not all(isinstance(item, int) for item in value):
            raise self._mistyped(name, "a list of integers")
        return tuple(value)

    def floats_attr(self, name: str, default: Sequence[float] | None = None) -> tuple[float, ...]:
        """An attribute that is a list of floats."""
        value = self._attr(name, default)
        if not isinstance(value, Sequence) or not all(isinstance(item, float) for item in value):
            raise self._mistyped(name, "a list of floats")
        return tuple(value)

    def strs_attr(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """An attribute that is a list of strings."""
        value = self._attr(name, default)
        if not isinstance(value, Sequence) or not all(isinstance(item, (str, bytes)) for item in value):
            raise self._mistyped(name, "a list of strings")
        return tuple(item if isinstance(item, str) else item.decode("utf-8", "replace") for item in value)

    def find_ints_attr(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, or None where it is left out."""
        return self.ints_attr(name) if name in self.attrs else None

    def tensor_attr(self, name: str) -> NDArray[Any]:
        """A tensor attribute as an array."""
        value = self._attr(name, None)
        if not isinstance(value, TensorProto):
            raise self._mistyped(name, "a tensor")
        return self.array(value)

    def graph_attr(self, name: str) -> GraphProto:
        """A subgraph attribute."""
        value = self._attr(name, None)
        if not isinstance(value, GraphProto):
            raise self._mistyped(name, "a graph")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer attribute that is a truth value."""
        return bool(self.int_attr(name, int(default)))

    def _attr(self, name: str, default: object) -> object:
        value = self.attrs.get(name, default)
        if value is None:
            raise self.fail(f"attribute '{name}' is missing")
        return value

    def _mistyped(self, name: str, expected: str) -> UserError:
        return self.fail(f"attribute '{name}' is {self.attrs[name]!r}, expected {expected}")

    def dtype_attr(self, name: str, default: str | None = None) -> str:
        """An element-type attribute as a dtype of relaybuild."""
        if name not in self.attrs and default is not None:
            return default
        return str(numpy_dtype(self.int_attr(name), f"attribute '{name}'").name)

    # building

    def call(self, name: str, *args: Expr, **attrs: object) -> Expr:
        """A call of a Relay operator; folded where all arguments are structure."""
        return self.folder.call(name, args, self.span, attrs)

    def call_tuple(self, name: str, fields: Sequence[Expr], **attrs: object) -> Expr:
        """A call of a Relay operator that takes one tuple."""
        return self.folder.call(name, [Tuple(fields, self.span)], self.span, attrs)

    def fields(self, expr: Expr, count: int) -> list[Expr]:
        """The fields of a tuple-typed expression."""
        return [self.folder.field(expr, index, self.span) for index in range(count)]

    def const(self, value: object, dtype: str) -> Constant:
        """A constant that is structure."""
        return self.folder.structure(np.asarray(value, dtype=np.dtype(dtype)), self.span)

    def like(self, value: object, expr: Expr) -> Constant:
        """A scalar of the dtype of `expr`."""
        return self.const(value, expr.tensor_type.dtype)

    def reshape(self, expr: Expr, shape: Sequence[int]) -> Expr:
        """`expr` in another shape; itself where it has that shape.

        An extent of 0 in `newshape` would copy the input's, so what has no elements is made anew.
        """
        if expr.tensor_type.shape == tuple(shape):
            return expr
        if 0 in shape:
            return self.call("full", shape=tuple(shape), fill_value=0, dtype=expr.tensor_type.dtype)
        return self.call("reshape", expr, newshape=tuple(shape))

    def cast(self, expr: Expr, dtype: str) -> Expr:
        """`expr` in another dtype; itself where it has that dtype."""
        return expr if expr.tensor_type.dtype == dtype else self.call("cast", expr, dtype=dtype)

    def transpose(self, expr: Expr, axes: Sequence[int]) -> Expr:
        """`expr` with permuted axes; itself where the order stays."""
        if tuple(axes) == tuple(range(len(axes))):
            return expr
        return self.call("transpose", expr, axes=tuple(axes))

    def expand_dims(self, expr: Expr, axis: int) -> Expr:
        """`expr` with an axis of extent 1 put in."""
        return self.call("expand_dims", expr, axis=axis)

    def squeeze(self, expr: Expr, *axes: int) -> Expr:
        """`expr` without these axes of extent 1."""
        return self.call("squeeze", expr, axis=tuple(axes))

    def stack(self, parts: Sequence[Expr], axis: int) -> Expr:
        """Tensors of one type side by side along a new axis."""
        return self.call_tuple("stack", parts, axis=axis)

    def parts(self, expr: Expr, sizes: Sequence[int], axis: int) -> list[Expr]:
        """`expr` in parts of these sizes along an axis; itself where it is one."""
        if len(sizes) == 1:
            return [expr]
        ends = tuple(sum(sizes[:count]) for count in range(1, len(sizes)))
        return self.fields(self.call("split", expr, indices_or_sections=ends, axis=axis), len(sizes))

    def axis(self, value: int, rank: int) -> int:
        """A possibly negative axis as one from 0 to rank - 1."""
        if not -rank <= value < rank:
            raise self.fail(f"axis {value} is out of range for rank {rank}")
        return value + rank if value < 0 else value
