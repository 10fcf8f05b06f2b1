"""Gradients of normalizations, by the chain rule over the operators that define them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaybuild.ir.autodiff import pullback
from relaybuild.ir.expr import Call, Expr, Tuple
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, field_of, reshaped, scalar
from relaybuild.ir.op import call_op
from relaybuild.ir.ops._shapes import normalize_axes


def _defined_by(definition: Callable[[Call], Expr]) -> GradientRule:
    """The rule of an operator that means the same as an expression over the call's arguments."""

    def rule(call: Call, grad: Expr) -> Sequence[Expr | None]:
        apart = _with_distinct_args(call)
        return pullback(definition(apart), grad, apart.args)

    return rule


def _with_distinct_args(call: Call) -> Call:
    """The call with a copy of each argument that came before, so that each has a gradient of its own."""
    seen: set[int] = set()
    args: list[Expr] = []
    for arg in call.args:
        args.append(call_op("copy", [arg]) if id(arg) in seen else arg)
        seen.add(id(arg))
    return Call(call.op, args, call.attrs, call.span)


def _rank(call: Call) -> int:
    return call.args[0].tensor_type.rank


def _axis(call: Call) -> int:
    axis: int = attrs_of(call).axis
    return axis % _rank(call)


def _standardized(data: Expr, axes: Sequence[int], epsilon: float) -> Expr:
    centered = data - call_op("mean", [data], axis=tuple(axes), keepdims=True)
    spread = call_op("mean", [centered * centered], axis=tuple(axes), keepdims=True)
    return centered * call_op("rsqrt", [spread + scalar(epsilon, data)])


def _affine(call: Call, normal: Expr) -> Expr:
    """normal * gamma + beta along the axis, as the attributes ask for."""
    attrs, (_, gamma, beta) = attrs_of(call), call.args
    if attrs.scale:
        normal = normal * _along(call, gamma)
    return normal + _along(call, beta) if attrs.center else normal


def _along(call: Call, vector: Expr) -> Expr:
    shape = [1] * _rank(call)
    shape[_axis(call)] = vector.tensor_type.static_shape[0]
    return reshaped(vector, shape)


def _layer_norm(call: Call) -> Expr:
    return _affine(call, _standardized(call.args[0], [_axis(call)], attrs_of(call).epsilon))


def _instance_norm(call: Call) -> Expr:
    axes = [axis for axis in range(_rank(call)) if axis not in (0, _axis(call))]
    return _affine(call, _standardized(call.args[0], axes, attrs_of(call).epsilon))


def _group_norm(call: Call) -> Expr:
    data, axis, attrs = call.args[0], _axis(call), attrs_of(call)
    shape = data.tensor_type.static_shape
    groups = attrs.num_groups
    grouped = reshaped(data, (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))
    axes = [position for position in range(1, len(shape) + 1) if position != axis]
    return _affine(call, reshaped(_standardized(grouped, axes, attrs.epsilon), shape))


def _l2_normalize(call: Call) -> Expr:
    data, attrs = call.args[0], attrs_of(call)
    axes = normalize_axes(attrs.axis, _rank(call))
    squares = call_op("sum", [data * data], axis=axes, keepdims=True)
    return data * call_op("rsqrt", [call_op("maximum", [squares, scalar(attrs.eps, data)])])


def _lrn(call: Call) -> Expr:
    data, axis, attrs = call.args[0], _axis(call), attrs_of(call)
    channels, before = data.tensor_type.static_shape[axis], (attrs.size - 1) // 2
    widths = [(0, 0)] * _rank(call)
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
    apart = _with_distinct_args(call)
    data, gamma, beta, mean, variance = pullback(_batch_normalized(apart), to_data, apart.args)
    return [data, gamma, beta, _sum_of(mean, to_mean), _sum_of(variance, to_variance)]


def _batch_normalized(call: Call) -> Expr:
    data, gamma, beta, mean, variance = call.args
    attrs = attrs_of(call)
    scale: Expr = call_op("rsqrt", [_along(call, variance) + scalar(attrs.epsilon, data)])
    if attrs.scale:
        scale = scale * _along(call, gamma)
    normal = (data - _along(call, mean)) * scale
    return normal + _along(call, beta) if attrs.center else normal


def _sum_of(found: Expr | None, more: Expr) -> Expr:
    return more if found is None else found + more


RULES: dict[str, GradientRule] = {
    "nn.layer_norm": _defined_by(_layer_norm),
    "nn.instance_norm": _defined_by(_instance_norm),
    "nn.group_norm": _defined_by(_group_norm),
    "nn.l2_normalize": _defined_by(_l2_normalize),
    "nn.lrn": _defined_by(_lrn),
    "nn.batch_norm": _batch_norm,
}
