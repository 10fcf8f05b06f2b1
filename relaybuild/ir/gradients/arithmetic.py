"""Gradients of operators of two broadcast arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, masked, pair_of, reshaped, scalar, sum_to, summed
from relaybuild.ir.op import call_op

Partials = Callable[[Call, Expr, Expr, Expr], tuple[Expr, Expr]]


def _broadcast(partials: Partials) -> GradientRule:
    """partials(call, a, b, grad), each summed to what its argument was broadcast from."""

    def rule(call: Call, grad: Expr) -> Sequence[Expr | None]:
        a, b = pair_of(call)
        to_a, to_b = partials(call, a, b, grad)
        return [sum_to(to_a, a.tensor_type), sum_to(to_b, b.tensor_type)]

    return rule


def _divide(call: Call, a: Expr, b: Expr, grad: Expr) -> tuple[Expr, Expr]:
    to_a = grad / b
    return to_a, -(to_a * call)


def _power(call: Call, a: Expr, b: Expr, grad: Expr) -> tuple[Expr, Expr]:
    positive = call_op("greater", [a, scalar(0, a)])
    logarithm = call_op("log", [call_op("where", [positive, a, scalar(1, a)])])
    return grad * b * call_op("power", [a, b - scalar(1, b)]), grad * call * logarithm


def _larger(wins: str) -> Partials:
    """All of `grad` to the argument that is chosen, the first one where they are equal."""

    def partials(call: Call, a: Expr, b: Expr, grad: Expr) -> tuple[Expr, Expr]:
        first = call_op(wins, [a, b])
        return masked(first, grad), call_op("where", [first, scalar(0, grad), grad])

    return partials


def _remainder(rounding: str) -> Partials:
    """a - b * rounding(a / b)."""

    def partials(call: Call, a: Expr, b: Expr, grad: Expr) -> tuple[Expr, Expr]:
        return grad, -(grad * call_op(rounding, [a / b]))

    return partials


def _bias_add(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data, bias = pair_of(call)
    rank = data.tensor_type.rank
    axis: int = attrs_of(call).axis % rank
    others = [position for position in range(rank) if position != axis]
    return [grad, reshaped(summed(grad, others), bias.tensor_type.static_shape)]


RULES: dict[str, GradientRule] = {
    "add": _broadcast(lambda call, a, b, grad: (grad, grad)),
    "subtract": _broadcast(lambda call, a, b, grad: (grad, -grad)),
    "multiply": _broadcast(lambda call, a, b, grad: (grad * b, grad * a)),
    "divide": _broadcast(_divide),
    "power": _broadcast(_power),
    "maximum": _broadcast(_larger("greater_equal")),
    "minimum": _broadcast(_larger("less_equal")),
    "mod": _broadcast(_remainder("trunc")),
    "floor_mod": _broadcast(_remainder("floor")),
    "nn.bias_add": _bias_add,
}
CONSTANT = (
    *("floor_divide", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor"),
    *("left_shift", "right_shift"),
)
