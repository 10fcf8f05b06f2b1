"""SimplifyInference: normalisation with given statistics becomes a multiplication and an addition.

    nn.batch_norm(x, gamma, beta, mean, var)  ->  (x * scale + shift, mean, var)
        scale = gamma * rsqrt(var + epsilon), shift = beta - mean * scale
    nn.dropout(x)                             ->  x
    nn.layer_norm, nn.instance_norm, nn.group_norm(x, gamma, beta)
                                              ->  (x - mean(x)) * rsqrt(variance(x) + epsilon) * gamma + beta
    nn.l2_normalize(x)                        ->  x / sqrt(max(sum(x * x), eps))

Scale and shift are vectors over the parameters alone: where these are constants, no arithmetic on the data is added.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from relaybuild.ir.expr import Call, Expr, Function, Tuple, const
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.passes._exprs import observes_effects, projected, tensor_type
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class SimplifyInference(FunctionPass):
    """Replaces operators that differ between training and inference by what they are at inference.

    `norms` says whether normalisation by the data's own moments is written out as well.
    """

    info: ClassVar[PassInfo] = PassInfo("SimplifyInference", 0)
    norms: bool = True

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        effects = observes_effects(func)
        rules = {**_RULES, **(_NORMS if self.norms else {})}

        def simplified(node: Expr) -> Expr:
            if isinstance(node, Call) and node.op_name in rules:
                return node if tensor_type(node.args[0]) is None else rules[node.op_name](node)
            return projected(node, effects=effects)

        result = rewrite_under(ctx, func, simplified)
        assert isinstance(result, Function)
        return result


def _dropout(call: Call) -> Expr:
    return call.args[0]


def _batch_norm(call: Call) -> Expr:
    data, gamma, beta, mean, var = call.args
    kind, attrs, span = data.tensor_type, _attrs(call), call.span
    scale: Expr = call_op("rsqrt", [call_op("add", [var, const(attrs.epsilon, kind.dtype)], span)], span)
    if attrs.scale:
        scale = call_op("multiply", [gamma, scale], span)
    moved = call_op("multiply", [mean, scale], span)
    shift = call_op("subtract", [beta, moved], span) if attrs.center else call_op("negative", [moved], span)
    axis = attrs.axis % kind.rank
    scaled = call_op("multiply", [data, _along(scale, axis, kind.rank)], span)
    return Tuple([call_op("add", [scaled, _along(shift, axis, kind.rank)], span), mean, var], span)


def _layer_norm(call: Call) -> Expr:
    return _affine(call, _standard(call, call.args[0], (_axis(call),)))


def _instance_norm(call: Call) -> Expr:
    rank = call.args[0].tensor_type.rank
    axes = tuple(axis for axis in range(1, rank) if axis != _axis(call))
    return _affine(call, _standard(call, call.args[0], axes))


def _group_norm(call: Call) -> Expr:
    data, axis, groups = call.args[0], _axis(call), _attrs(call).num_groups
    shape = data.tensor_type.shape
    channels = shape[axis]
    if not isinstance(channels, int) or axis != 1 or not data.tensor_type.is_static:
        return call
    split = call_op("reshape", [data], call.span, newshape=(0, groups, channels // groups, *shape[2:]))
    normal = _standard(call, split, tuple(range(2, len(shape) + 1)))
    return _affine(call, call_op("reshape", [normal], call.span, newshape=data.tensor_type.static_shape))


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
        normal = call_op("multiply", [normal, _along(call.args[1], axis, rank)], call.span)
    if attrs.center:
        normal = call_op("add", [normal, _along(call.args[2], axis, rank)], call.span)
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


def _along(vector: Expr, axis: int, rank: int) -> Expr:
    """A vector that broadcasts along one axis."""
    trailing = rank - axis - 1
    return call_op("reshape", [vector], vector.span, newshape=(-1, *(1,) * trailing)) if trailing else vector


_RULES: dict[str, Callable[[Call], Expr]] = {"nn.batch_norm": _batch_norm, "nn.dropout": _dropout}
_NORMS: dict[str, Callable[[Call], Expr]] = {
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.l2_normalize": _l2_normalize,
}
