"""Normalisations by the data's own moments, written with simpler operators; knows neither passes nor gradients.

nn.layer_norm, nn.instance_norm, nn.group_norm(x, gamma, beta)
    (x - mean(x)) * rsqrt(variance(x) + epsilon) * gamma + beta
nn.l2_normalize(x)
    x / sqrt(max(sum(x * x), eps))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relaybuild.ir.expr import Call, Expr, const
from relaybuild.ir.op import call_op


def _layer_norm(call: Call) -> Expr:
    return _affine(call, _standard(call, call.args[0], (_axis(call),)))


def _instance_norm(call: Call) -> Expr:
    rank = call.args[0].tensor_type.rank
    axes = tuple(axis for axis in range(1, rank) if axis != _axis(call))
    return _affine(call, _standard(call, call.args[0], axes))


def _group_norm(call: Call) -> Expr:
    data, axis, groups = call.args[0], _axis(call), _attrs(call).num_groups
    if not data.tensor_type.is_static:
        return call
    shape = data.tensor_type.static_shape
    grouped = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    split = call_op("reshape", [data], call.span, newshape=grouped)
    normal = _standard(call, split, tuple(position for position in range(1, len(grouped)) if position != axis))
    return _affine(call, call_op("reshape", [normal], call.span, newshape=shape))


def _standard(call: Call, data: Expr, axes: tuple[int, ...]) -> Expr:
    """(data - mean) * rsqrt(variance + epsilon)."""
    span, dtype = call.span, data.tensor_type.dtype
    mean = call_op("mean", [data], span, axis=axes, keepdims=True)
    variance = call_op("variance", [data], span, axis=axes, keepdims=True)
    deviation = call_op("rsqrt", [call_op("add", [variance, const(_attrs(call).epsilon, dtype)], span)], span)
    return call_op("multiply", [call_op("subtract", [data, mean], span), deviation], span)


def _affine(call: Call, normal: Expr) -> Expr:
    """Times gamma, plus beta, where the attributes ask for them."""
    axis, rank, attrs = _axis(call), normal.tensor_type.rank, _attrs(call)
    if attrs.scale:
        normal = call_op("multiply", [normal, along(call.args[1], axis, rank)], call.span)
    if attrs.center:
        normal = call_op("add", [normal, along(call.args[2], axis, rank)], call.span)
    return normal


def _l2_normalize(call: Call) -> Expr:
    data, attrs, span = call.args[0], _attrs(call), call.span
    dtype = data.tensor_type.dtype
    squares = call_op("sum", [call_op("multiply", [data, data], span)], span, axis=attrs.axis, keepdims=True)
    length = call_op("sqrt", [call_op("maximum", [squares, const(attrs.eps, dtype)], span)], span)
    return call_op("divide", [data, length], span)


def _axis(call: Call) -> int:
    axis: int = _attrs(call).axis
    return axis % call.args[0].tensor_type.rank


def _attrs(call: Call) -> Any:
    return call.attrs


def along(vector: Expr, axis: int, rank: int) -> Expr:
    """A vector that broadcasts along one axis of a tensor of that rank."""
    trailing = rank - axis - 1
    return call_op("reshape", [vector], vector.span, newshape=(-1, *(1,) * trailing)) if trailing else vector


NORMS: Mapping[str, Callable[[Call], Expr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}
"""By operator, what its calls over typed arguments are written as; the call itself where its shape must be known."""
