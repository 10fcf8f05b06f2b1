"""SimplifyInference: normalisation with given statistics becomes a multiplication and an addition.

    nn.batch_norm(x, gamma, beta, mean, var)  ->  (x * scale + shift, mean, var)
        scale = gamma * rsqrt(var + epsilon), shift = beta - mean * scale
    nn.dropout(x)                             ->  x

Scale and shift are vectors over the parameters alone: where these are constants, no arithmetic on the data is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from relaybuild.ir.expr import Call, Expr, Function, Tuple, TupleGetItem, const
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.passes._exprs import is_call, tensor_type
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class SimplifyInference(FunctionPass):
    """Replaces operators that differ between training and inference by what they are at inference."""

    info: ClassVar[PassInfo] = PassInfo("SimplifyInference", 0)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = rewrite_under(ctx, func, _simplified)
        assert isinstance(result, Function)
        return result


def _simplified(node: Expr) -> Expr:
    if is_call(node, "nn.batch_norm"):
        return _batch_norm(node)
    if is_call(node, "nn.dropout"):
        return node.args[0]
    if isinstance(node, TupleGetItem) and isinstance(node.tuple_value, Tuple):
        return node.tuple_value.fields[node.index]
    return node


def _batch_norm(call: Call) -> Expr:
    data, gamma, beta, mean, var = call.args
    kind = tensor_type(data)
    if kind is None:
        return call
    attrs: Any = call.attrs
    span = call.span
    scale: Expr = call_op("rsqrt", [call_op("add", [var, const(attrs.epsilon, kind.dtype)], span)], span)
    if attrs.scale:
        scale = call_op("multiply", [gamma, scale], span)
    moved = call_op("multiply", [mean, scale], span)
    shift = call_op("subtract", [beta, moved], span) if attrs.center else call_op("negative", [moved], span)
    axis = attrs.axis % kind.rank
    scaled = call_op("multiply", [data, _along(scale, axis, kind.rank)], span)
    return Tuple([call_op("add", [scaled, _along(shift, axis, kind.rank)], span), mean, var], span)


def _along(vector: Expr, axis: int, rank: int) -> Expr:
    """A vector that broadcasts along one axis."""
    trailing = rank - axis - 1
    return call_op("reshape", [vector], vector.span, newshape=(-1, *(1,) * trailing)) if trailing else vector
