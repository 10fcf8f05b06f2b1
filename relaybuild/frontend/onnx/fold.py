"""Builds calls and evaluates those over structure (shapes, axes, scalars) at once; knows nothing of ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.errors import InternalError
from relaybuild.ir.expr import Call, Constant, Expr, Span, Tuple, TupleGetItem
from relaybuild.ir.op import Op, call_op
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.ir.visitor import inline_fields, post_order

_STRUCTURE_LIMIT = 64


class Folder:
    """Remembers which expressions depend on no input, and which constants are structure.

    A constant computed from structure alone is structure too while it is small, whatever its dtype; weights are never
    computed with, unless `evaluate` is asked for a value that an operator needs as a number.
    """

    def __init__(self) -> None:
        self._structure: dict[int, Constant] = {}
        self._closed: dict[int, Expr] = {}

    def is_structure(self, expr: Expr) -> bool:
        """Whether arithmetic over this constant is done at import."""
        return isinstance(expr, Constant) and (not expr.is_weight or id(expr) in self._structure)

    def is_closed(self, expr: Expr) -> bool:
        """Whether the value depends on no input of the model."""
        return isinstance(expr, Constant) or id(expr) in self._closed

    def call(self, name: str, args: Sequence[Expr], span: Span | None, attrs: Mapping[str, object]) -> Expr:
        """A call of an operator; a constant, or a tuple of constants, where all arguments are structure."""
        call = call_op(name, args, span, **attrs)
        leaves = inline_fields(args)
        if not all(self.is_closed(leaf) for leaf in leaves):
            return call
        if all(self.is_structure(leaf) for leaf in leaves) and _is_small(call.checked_type):
            return self._constants(_apply(call, [_value(arg) for arg in args]), span)
        self._closed[id(call)] = call
        return call

    def field(self, expr: Expr, index: int, span: Span | None) -> Expr:
        """One field of a tuple-typed expression."""
        if isinstance(expr, Tuple):
            return expr.fields[index]
        item = TupleGetItem(expr, index, span)
        if self.is_closed(expr):
            self._closed[id(item)] = item
        return item

    def structure(self, value: NDArray[Any], span: Span | None) -> Constant:
        """A constant that takes part in arithmetic at import while it is small."""
        constant = Constant(value, span)
        if value.size <= _STRUCTURE_LIMIT:
            self._structure[id(constant)] = constant
        return constant

    def evaluate(self, expr: Expr) -> NDArray[Any] | None:
        """The value of an expression that depends on no input, else None."""
        if isinstance(expr, Constant):
            return expr.data
        if not self.is_closed(expr):
            return None
        values: dict[int, Any] = {}
        for node in post_order(expr):
            if isinstance(node, Constant):
                values[id(node)] = node.data
            elif isinstance(node, Tuple):
                values[id(node)] = tuple(values[id(item)] for item in node.fields)
            elif isinstance(node, TupleGetItem):
                values[id(node)] = values[id(node.tuple_value)][node.index]
            elif isinstance(node, Call):
                values[id(node)] = _apply(node, [values[id(arg)] for arg in node.args])
        return np.asarray(values[id(expr)])

    def _constants(self, value: Any, span: Span | None) -> Expr:
        if isinstance(value, (tuple, list)):
            return Tuple([self.structure(np.asarray(item), span) for item in value], span)
        return self.structure(np.asarray(value), span)


def _value(arg: Expr) -> Any:
    if isinstance(arg, Tuple):
        return tuple(_value(item) for item in arg.fields)
    if isinstance(arg, Constant):
        return arg.data
    raise InternalError(f"a {type(arg).__name__} is not structure")


def _apply(call: Call, values: Sequence[Any]) -> Any:
    if not isinstance(call.op, Op):
        raise InternalError("only operators are folded at import")
    with np.errstate(all="ignore"):
        return call.op.evaluate(values, call.attrs)


def _is_small(found: Type) -> bool:
    if isinstance(found, TupleType):
        return all(_is_small(item) for item in found.fields)
    return isinstance(found, TensorType) and found.is_static and found.num_elements <= _STRUCTURE_LIMIT
