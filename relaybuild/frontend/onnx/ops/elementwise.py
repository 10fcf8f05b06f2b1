"""Operators that are one Relay call per element: unary and binary arithmetic, comparison, logic."""

from __future__ import annotations

from functools import reduce

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitwise_not",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "negative",
    "Not": "logical_not",
    "Relu": "nn.relu",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Div": "divide",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
_VARIADIC = {"Max": "maximum", "Min": "minimum", "Sum": "add"}


@converter(*_UNARY)
def unary(node: Node) -> Expr:
    return node.call(_UNARY[node.op_type], node.get(0))


@converter(*_BINARY)
def binary(node: Node) -> Expr:
    return node.call(_BINARY[node.op_type], node.get(0), _aligned(node))


def _aligned(node: Node) -> Expr:
    """Input 1 with as many dimensions behind it as opset 6 asks for by the axis at which it begins."""
    data, axis = node.get(1), node.int_attr("axis", -1)
    behind = node.rank(0) - data.tensor_type.rank - axis
    return data if axis < 0 or behind <= 0 else node.reshape(data, (*data.tensor_type.static_shape, *(1,) * behind))


@converter(*_VARIADIC)
def variadic(node: Node) -> Expr:
    name = _VARIADIC[node.op_type]
    return reduce(lambda left, right: node.call(name, left, right), node.all_inputs())


@converter("Mean")
def mean(node: Node) -> Expr:
    inputs = node.all_inputs()
    total = reduce(lambda left, right: node.call("add", left, right), inputs)
    return node.call("divide", total, node.like(len(inputs), total))


@converter("Reciprocal")
def reciprocal(node: Node) -> Expr:
    return node.call("divide", node.like(1, node.get(0)), node.get(0))


@converter("Mod")
def modulo(node: Node) -> Expr:
    return node.call("mod" if node.flag("fmod") else "floor_mod", node.get(0), node.get(1))


@converter("BitShift")
def bit_shift(node: Node) -> Expr:
    direction = node.str_attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.fail(f"direction is '{direction}', expected 'LEFT' or 'RIGHT'")
    return node.call("left_shift" if direction == "LEFT" else "right_shift", node.get(0), node.get(1))


@converter("Pow")
def power(node: Node) -> Expr:
    """The exponent may have another dtype; the result has the base's."""
    base, exponent = node.get(0), _aligned(node)
    dtype = base.tensor_type.dtype
    is_float = [np.dtype(item.tensor_type.dtype).kind == "f" for item in (base, exponent)]
    if is_float[1] and not is_float[0]:
        wide = node.call("power", node.cast(base, "float64"), node.cast(exponent, "float64"))
        return node.cast(wide, dtype)
    return node.call("power", base, node.cast(exponent, dtype))


@converter("IsInf")
def is_inf(node: Node) -> Expr:
    data = node.get(0)
    infinite = node.call("isinf", data)
    positive, negative = node.flag("detect_positive", True), node.flag("detect_negative", True)
    if positive and negative:
        return infinite
    if not positive and not negative:
        return node.call("logical_and", infinite, node.const(False, "bool"))
    sign = node.call("greater" if positive else "less", data, node.like(0, data))
    return node.call("logical_and", infinite, sign)


@converter("Where")
def where(node: Node) -> Expr:
    return node.call("where", node.get(0), node.get(1), node.get(2))


@converter("Identity")
def identity(node: Node) -> Expr:
    return node.get(0)


@converter("Dropout")
def dropout(node: Node) -> list[Expr]:
    """The identity at inference, with a mask of ones where one is asked for."""
    if node.find(2) is not None and node.scalar(2, "training_mode"):
        raise node.unsupported("training mode")
    if node.opset < 7 and not node.flag("is_test"):
        raise node.unsupported("training mode (attribute 'is_test' is 0)")
    data = node.get(0)
    if len(node.outputs) > 1 and node.outputs[1]:
        return [data, node.call("full", shape=data.tensor_type.static_shape, fill_value=1.0, dtype="bool")]
    return [data]


@converter("Cast")
def cast(node: Node) -> Expr:
    return node.cast(node.get(0), node.dtype_attr("to"))


@converter("CastLike")
def cast_like(node: Node) -> Expr:
    return node.cast(node.get(0), node.dtype(1))


@converter("Clip", since=11)
def clip(node: Node) -> Expr:
    """Constant bounds become attributes; computed ones a maximum and a minimum."""
    data = node.get(0)
    bounds = [node.find(1), node.find(2)]
    if all(bound is None or node.folder.is_structure(bound) for bound in bounds):
        low, high = (None if bound is None else node.scalar(i, "bound") for i, bound in enumerate(bounds, 1))
        return data if low is None and high is None else node.call("clip", data, a_min=low, a_max=high)
    if bounds[0] is not None:
        data = node.call("maximum", data, bounds[0])
    if bounds[1] is not None:
        data = node.call("minimum", data, bounds[1])
    return data
