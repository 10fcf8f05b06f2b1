"""CanonicalizeOps: operators that are others in disguise are written with those.

split(x)            ->  (strided_slice(x), …), of which only the fields in use remain
nn.bias_add(x, b)   ->  x + reshape(b)
nn.batch_flatten(x) ->  reshape(x)
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, Tuple, TupleGetItem
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.ops.split import split_bounds
from relaybuild.passes._exprs import attrs_of, is_call, observes_effects, projected, tensor_type
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class CanonicalizeOps(FunctionPass):
    """Leaves fewer operators to those who come after."""

    info: ClassVar[PassInfo] = PassInfo("CanonicalizeOps", 0)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        effects = observes_effects(func)
        result = rewrite_under(ctx, func, lambda node: _canonical(node, effects=effects))
        assert isinstance(result, Function)
        return result


def _canonical(node: Expr, *, effects: bool) -> Expr:
    if isinstance(node, TupleGetItem):
        return projected(node, effects=effects)
    if not isinstance(node, Call) or not node.args or tensor_type(node.args[0]) is None:
        return node
    if is_call(node, "split"):
        return _split(node)
    if is_call(node, "nn.bias_add"):
        return _bias_add(node)
    if is_call(node, "nn.batch_flatten"):
        return call_op("reshape", [node.args[0]], node.span, newshape=(0, -1))
    return node


def _split(call: Call) -> Expr:
    data, attrs = call.args[0], attrs_of(call)
    kind = data.tensor_type
    axis = attrs.axis % kind.rank
    extent = kind.shape[axis]
    if not isinstance(extent, int):
        return call
    parts = [
        call_op("strided_slice", [data], call.span, begin=(begin,), end=(end,), axes=(axis,))
        for begin, end in split_bounds(extent, attrs)
    ]
    return Tuple(parts, call.span)


def _bias_add(call: Call) -> Expr:
    data, bias = call.args
    rank = data.tensor_type.rank
    trailing = rank - attrs_of(call).axis % rank - 1
    if trailing:
        bias = call_op("reshape", [bias], call.span, newshape=(-1, *(1,) * trailing))
    return call_op("add", [data, bias], call.span)
