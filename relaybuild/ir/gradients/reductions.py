"""Gradients of reductions, softmax, running sums and orderings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from relaybuild.ir.expr import Call, Expr, TupleGetItem
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, field_of, masked, reshaped, scalar, shares, spread, summed, zeros
from relaybuild.ir.op import call_op, get_op
from relaybuild.ir.ops.reduce import ReduceAttrs, reduced_axes


def _axes(call: Call) -> tuple[int, ...]:
    attrs = call.attrs
    assert isinstance(attrs, ReduceAttrs)
    return reduced_axes(attrs, call.args[0].tensor_type.rank)


def _spread(call: Call, value: Expr) -> Expr:
    return spread(value, _axes(call), call.args[0].tensor_type.static_shape)


def _count(call: Call) -> int:
    shape = call.args[0].tensor_type.static_shape
    return prod(shape[axis] for axis in _axes(call))


def _sum(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [_spread(call, grad)]


def _mean(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [_spread(call, grad * scalar(1 / max(_count(call), 1), grad))]


def _extreme(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """Divided among the elements that are the extreme."""
    return [_spread(call, grad) * shares(call.args[0], _spread(call, call), _axes(call))]


def _prod(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """The product of all other elements, without dividing by an element that is zero."""
    x, axes = call.args[0], _axes(call)
    zero = call_op("equal", [x, scalar(0, x)])
    nonzero = call_op("where", [zero, scalar(1, x), x])
    product = call_op("prod", [nonzero], axis=axes, keepdims=True)
    number = summed(call_op("cast", [zero], dtype=x.tensor_type.dtype), axes, keepdims=True)
    alone = masked(call_op("equal", [number, scalar(1, x)]), product)
    beside = masked(call_op("equal", [number, scalar(0, x)]), product)
    return [_spread(call, grad) * call_op("where", [zero, alone, beside / nonzero])]


def _variance(call: Call, grad: Expr) -> Sequence[Expr | None]:
    x, axes = call.args[0], _axes(call)
    divisor = _count(call) - bool(getattr(call.attrs, "unbiased", False))
    centered = x - call_op("mean", [x], axis=axes, keepdims=True)
    return [_spread(call, grad) * centered * scalar(2 / max(divisor, 1), x)]


def _softmax(call: Call, grad: Expr) -> Sequence[Expr | None]:
    axis: int = attrs_of(call).axis
    weighted = grad * call
    return [weighted - call * summed(weighted, [axis], keepdims=True)]


def _log_softmax(call: Call, grad: Expr) -> Sequence[Expr | None]:
    axis: int = attrs_of(call).axis
    return [grad - call_op("exp", [call]) * summed(grad, [axis], keepdims=True)]


def _cumsum(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    backwards = replace(attrs, reverse=not attrs.reverse)
    return [reshaped(Call(get_op("cumsum"), [grad], backwards), call.args[0].tensor_type.static_shape)]


def _sort(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    order = call_op("argsort", list(call.args), axis=attrs.axis, is_ascend=attrs.is_ascend)
    return [_put_back(call.args[0], order, grad, attrs.axis)]


def _topk(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    if attrs.ret_type == "indices":
        return [None]
    if attrs.ret_type == "both":
        to_values = field_of(grad, 0)
        return [_put_back(call.args[0], TupleGetItem(call, 1), to_values, attrs.axis)]
    order = Call(call.op, call.args, replace(attrs, ret_type="indices"))
    return [_put_back(call.args[0], order, grad, attrs.axis)]


def _put_back(data: Expr, order: Expr, grad: Expr, axis: int) -> Expr:
    return call_op("scatter_elements", [zeros(data.tensor_type), order, grad], axis=axis)


RULES: dict[str, GradientRule] = {
    "sum": _sum,
    "mean": _mean,
    "max": _extreme,
    "min": _extreme,
    "prod": _prod,
    "variance": _variance,
    "nn.softmax": _softmax,
    "nn.fast_softmax": _softmax,
    "nn.log_softmax": _log_softmax,
    "cumsum": _cumsum,
    "sort": _sort,
    "topk": _topk,
}
CONSTANT = ("argmax", "argmin", "all", "any", "argsort")
