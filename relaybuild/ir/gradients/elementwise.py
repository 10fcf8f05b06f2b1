"""Gradients of operators that apply one function to each element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, masked, reshaped, scalar, sum_to
from relaybuild.ir.op import call_op

Derivative = Callable[[Expr, Expr], Expr]


def _elementwise(derivative: Derivative) -> GradientRule:
    """grad * derivative(x, f(x))."""

    def rule(call: Call, grad: Expr) -> Sequence[Expr | None]:
        return [grad * derivative(call.args[0], call)]

    return rule


def _one(like: Expr) -> Expr:
    return scalar(1, like)


def _fn(name: str, value: Expr) -> Expr:
    return call_op(name, [value])


def _erf(x: Expr, y: Expr) -> Expr:
    return scalar(2 / math.sqrt(math.pi), x) * _fn("exp", -(x * x))


def _unchanged(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [grad]


def _negative(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [-grad]


def _relu(call: Call, grad: Expr) -> Sequence[Expr | None]:
    x = call.args[0]
    return [masked(call_op("greater", [x, scalar(0, x)]), grad)]


def _leaky_relu(call: Call, grad: Expr) -> Sequence[Expr | None]:
    x = call.args[0]
    below = call_op("less", [x, scalar(0, x)])
    alpha: float = attrs_of(call).alpha
    return [call_op("where", [below, grad * scalar(alpha, x), grad])]


def _prelu(call: Call, grad: Expr) -> Sequence[Expr | None]:
    x, alpha = call.args
    rank = x.tensor_type.rank
    axis: int = attrs_of(call).axis % rank
    shape = [extent if position == axis else 1 for position, extent in enumerate(x.tensor_type.static_shape)]
    below = call_op("less", [x, scalar(0, x)])
    slopes = reshaped(alpha, shape)
    to_alpha = sum_to(masked(below, grad * x), slopes.tensor_type)
    return [call_op("where", [below, grad * slopes, grad]), reshaped(to_alpha, alpha.tensor_type.static_shape)]


def _clip(call: Call, grad: Expr) -> Sequence[Expr | None]:
    x = call.args[0]
    limits = (("greater_equal", attrs_of(call).a_min), ("less_equal", attrs_of(call).a_max))
    for comparison, limit in limits:
        if limit is not None:
            grad = masked(call_op(comparison, [x, scalar(limit, x)]), grad)
    return [grad]


def _cast(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [call_op("cast", [grad], dtype=call.args[0].tensor_type.dtype)]


def _where(call: Call, grad: Expr) -> Sequence[Expr | None]:
    condition, then, otherwise = call.args
    rest = call_op("where", [condition, scalar(0, grad), grad])
    return [None, sum_to(masked(condition, grad), then.tensor_type), sum_to(rest, otherwise.tensor_type)]


_DERIVATIVES: dict[str, Derivative] = {
    "exp": lambda x, y: y,
    "fast_exp": lambda x, y: y,
    "fast_erf": _erf,
    "fast_tanh": lambda x, y: _one(x) - y * y,
    "log": lambda x, y: _one(x) / x,
    "sqrt": lambda x, y: scalar(0.5, x) / y,
    "rsqrt": lambda x, y: scalar(-0.5, x) * y / x,
    "sigmoid": lambda x, y: y * (_one(x) - y),
    "erf": _erf,
    "sin": lambda x, y: _fn("cos", x),
    "cos": lambda x, y: -_fn("sin", x),
    "tan": lambda x, y: _one(x) + y * y,
    "asin": lambda x, y: _fn("rsqrt", _one(x) - x * x),
    "acos": lambda x, y: -_fn("rsqrt", _one(x) - x * x),
    "atan": lambda x, y: _one(x) / (_one(x) + x * x),
    "sinh": lambda x, y: _fn("cosh", x),
    "cosh": lambda x, y: _fn("sinh", x),
    "tanh": lambda x, y: _one(x) - y * y,
    "asinh": lambda x, y: _fn("rsqrt", x * x + _one(x)),
    "acosh": lambda x, y: _fn("rsqrt", x * x - _one(x)),
    "atanh": lambda x, y: _one(x) / (_one(x) - x * x),
    "abs": lambda x, y: _fn("sign", x),
}

RULES: dict[str, GradientRule] = {
    **{name: _elementwise(derivative) for name, derivative in _DERIVATIVES.items()},
    "negative": _negative,
    "annotation.stop_fusion": _unchanged,
    "copy": _unchanged,
    "nn.dropout": _unchanged,
    "nn.relu": _relu,
    "nn.leaky_relu": _leaky_relu,
    "nn.prelu": _prelu,
    "clip": _clip,
    "cast": _cast,
    "where": _where,
}
CONSTANT = (
    *("sign", "floor", "ceil", "round", "trunc", "zeros_like", "ones_like", "full", "arange"),
    *("isnan", "isinf", "bitwise_not", "logical_not", "shape_of", "one_hot"),
)
