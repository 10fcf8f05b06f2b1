"""Gradients of normalizations, by the chain rule over the operators that define them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaybuild.ir.autodiff import pullback, pullback_of, with_distinct_args
from relaybuild.ir.expr import Call, Expr, Tuple
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, field_of, scalar
from relaybuild.ir.norms import NORMS, along
from relaybuild.ir.op import call_op


def _defined_by(definition: Callable[[Call], Expr]) -> GradientRule:
    """The rule of an operator that means the same as an expression over the call's arguments."""

    return lambda call, grad: pullback_of(definition, call, grad)


def _lrn(call: Call) -> Expr:
    data, attrs = call.args[0], attrs_of(call)
    axis = attrs.axis % data.tensor_type.rank
    channels, before = data.tensor_type.static_shape[axis], (attrs.size - 1) // 2
    widths = [(0, 0)] * data.tensor_type.rank
    widths[axis] = (before, attrs.size - 1 - before)
    squares = call_op("nn.pad", [data * data], pad_width=tuple(widths))
    parts = [
        call_op("strided_slice", [squares], begin=(offset,), end=(offset + channels,), axes=(axis,))
        for offset in range(attrs.size)
    ]
    total = call_op("sum", [call_op("stack", [Tuple(parts)], axis=0)], axis=(0,))
    base = total * scalar(attrs.alpha / attrs.size, data) + scalar(attrs.bias, data)
    return data * call_op("power", [base, scalar(-attrs.beta, data)])


def _batch_norm(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """The moving moments are results as well as arguments."""
    to_data, to_mean, to_variance = (field_of(grad, index) for index in range(3))
    apart = with_distinct_args(call)
    data, gamma, beta, mean, variance = pullback(_batch_normalized(apart), to_data, apart.args)
    return [data, gamma, beta, _sum_of(mean, to_mean), _sum_of(variance, to_variance)]


def _batch_normalized(call: Call) -> Expr:
    attrs, rank = attrs_of(call), call.args[0].tensor_type.rank
    gamma, beta, mean, variance = (along(vector, attrs.axis % rank, rank) for vector in call.args[1:])
    scale: Expr = call_op("rsqrt", [variance + scalar(attrs.epsilon, variance)])
    normal = (call.args[0] - mean) * (scale * gamma if attrs.scale else scale)
    return normal + beta if attrs.center else normal


def _sum_of(found: Expr | None, more: Expr) -> Expr:
    return more if found is None else found + more


RULES: dict[str, GradientRule] = {
    **{name: _defined_by(definition) for name, definition in NORMS.items()},
    "nn.lrn": _defined_by(_lrn),
    "nn.batch_norm": _batch_norm,
}
