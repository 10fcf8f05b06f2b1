"""Writes a region as a subgraph in the ExampleJSON format, which README.md describes; knows no runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.ops.bias_add import BiasAddAttrs
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import Blob, CodegenOptions, GeneratedCode, flat_types

TYPE_KEY = "examplejson"

_DTYPES = ("float32", "float64", "int32", "int64")
_DEFAULT_DTYPE = _DTYPES[0]

_BIAS_ADD = "nn.bias_add"

_WORDS: Mapping[str, str] = {
    **{name: name for name in ("abs", "add", "ceil", "copy", "floor", "reshape", "round", "sign", "sqrt", "trunc")},
    "divide": "div",
    "expand_dims": "reshape",
    "maximum": "max",
    "minimum": "min",
    "multiply": "mul",
    "negative": "neg",
    "nn.batch_flatten": "reshape",
    "nn.dropout": "copy",
    "nn.relu": "relu",
    "squeeze": "reshape",
    "subtract": "sub",
    # after a reshape of the bias
    _BIAS_ADD: "add",
}
"""The format's word for each operator that it can express."""

_KEYWORDS = frozenset({*_WORDS.values(), "const", "input", "output", "subgraph"})
"""Words that a line begins with: a subgraph named so has a header that says what it is."""


def supports(call: Call) -> bool | str:
    """Whether the format can express a call of an operator, or why not."""
    if call.op_name not in _WORDS:
        return False
    for expr in (*call.args, call):
        kind = expr.checked_type
        if not isinstance(kind, TensorType) or not kind.is_static:
            return f"found {kind}, expected tensors whose shapes are numbers"
        if kind.dtype not in _DTYPES:
            return f"found {kind.dtype}, expected {', '.join(_DTYPES)}"
    return True


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The subgraph of a region, named after its symbol, as a blob."""
    return GeneratedCode(blob=Blob(TYPE_KEY, subgraph_text(function, options.symbol).encode()))


def subgraph_text(function: Function, name: str) -> str:
    """The subgraph `name` that computes a typed function.

    Its inputs are the tensors of the function's parameters, tuples field by field, and its outputs those of the result.
    Raises UnsupportedError for what `supports` declines.
    """
    return _Writer(name).write(function)


class _Writer:
    """Gives every tensor the number of its node, in the order of the lines."""

    def __init__(self, name: str) -> None:
        header = f"subgraph {name}" if name in _KEYWORDS else name
        self._lines = [header]
        self._nodes = 0

    def write(self, function: Function) -> str:
        found: dict[int, tuple[int, ...]] = {}
        for param in function.params:
            found[id(param)] = tuple(self._input(kind) for kind in flat_types(param.checked_type))
        bound = {id(node.var): node.value for node in post_order(function.body) if isinstance(node, Let)}
        for node in post_order(function.body):
            if id(node) not in found:
                found[id(node)] = self._visit(node, found, bound)
        outputs = found[id(function.body)]
        if outputs != (self._nodes - 1,) or not isinstance(_unbound(function.body, bound), Call):
            self._lines.append(f"  output {_numbers(outputs)}".rstrip())
        return "\n".join(self._lines) + "\n"

    def _visit(self, node: Expr, found: Mapping[int, tuple[int, ...]], bound: Mapping[int, Expr]) -> tuple[int, ...]:
        """The nodes of an expression's tensors; those of what it is made of are `found`."""
        if isinstance(node, Var):
            return found[id(_unbound(node, bound))]
        if isinstance(node, Constant):
            return (self._constant(node.data),)
        if isinstance(node, Tuple):
            return tuple(number for field in node.fields for number in found[id(field)])
        if isinstance(node, TupleGetItem):
            return _field(node, found[id(node.tuple_value)])
        if isinstance(node, Let):
            return found[id(node.body)]
        if isinstance(node, Call) and node.op_name in _WORDS:
            arguments = [number for arg in node.args for number in found[id(arg)]]
            return (self._call(node, arguments),)
        what = f"'{node.op_name}'" if isinstance(node, Call) and node.op_name else type(node).__name__
        raise UnsupportedError(
            f"ExampleJSON has nothing for {what}, expected one of {', '.join(_WORDS)}",
            where=str(node.span) if node.span else None,
        )

    def _call(self, call: Call, arguments: Sequence[int]) -> int:
        kind = call.tensor_type
        if call.op_name != _BIAS_ADD:
            return self._operation(_WORDS[call.op_name], arguments, kind)
        # the shape that broadcasts along the axis
        assert isinstance(call.attrs, BiasAddAttrs)
        data, bias = arguments
        axis = call.attrs.axis % kind.rank
        shape = tuple(extent if number == axis else 1 for number, extent in enumerate(kind.shape))
        reshaped = self._operation("reshape", (bias,), TensorType(shape, kind.dtype))
        return self._operation("add", (data, reshaped), kind)

    def _input(self, kind: TensorType) -> int:
        return self._node(f"input {{}} {_numbers(kind.static_shape)}".rstrip() + _dtype_clause(kind.dtype))

    def _constant(self, data: NDArray[Any]) -> int:
        """A line for a constant; one number stands for all where they are the same."""
        flat = np.ascontiguousarray(data).reshape(-1)
        rows = flat.view(np.uint8).reshape(flat.size, -1) if flat.size else flat
        values = flat[:1] if flat.size and bool((rows == rows[0]).all()) else flat
        shape = _numbers(data.shape)
        clause = _dtype_clause(data.dtype.name)
        return self._node(f"const {{}} {shape}".rstrip() + f"{clause} value: {' '.join(map(_number, values))}".rstrip())

    def _operation(self, name: str, arguments: Sequence[int], kind: TensorType) -> int:
        """A line for an operator of the format."""
        shape = f"shape: {_numbers(kind.static_shape)}".rstrip()
        return self._node(f"{name} {{}} inputs: {_numbers(arguments)} {shape}{_dtype_clause(kind.dtype)}")

    def _node(self, line: str) -> int:
        number = self._nodes
        self._lines.append("  " + line.format(number))
        self._nodes += 1
        return number


def _unbound(expr: Expr, bound: Mapping[int, Expr]) -> Expr:
    """What a variable stands for, through lets."""
    while True:
        if isinstance(expr, Let):
            expr = expr.body
        elif id(expr) in bound:
            expr = bound[id(expr)]
        else:
            return expr


def _field(node: TupleGetItem, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The nodes of a tuple's field, of those of the tuple."""
    kinds = [flat_types(kind) for kind in getattr(node.tuple_value.checked_type, "fields", ())]
    start = sum(len(kind) for kind in kinds[: node.index])
    return numbers[start : start + len(kinds[node.index])]


def _numbers(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


def _dtype_clause(dtype: str) -> str:
    return "" if dtype == _DEFAULT_DTYPE else f" dtype: {dtype}"


def _number(value: Any) -> str:
    """The exact text of a number; NaNs are all alike."""
    return float(value).hex() if value.dtype.kind == "f" else str(int(value))
