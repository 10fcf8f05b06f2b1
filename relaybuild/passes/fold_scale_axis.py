"""FoldScaleAxis: a multiplication per output channel moves into the weights.

    conv(x, w) * s        ->  conv(x, w * s)
    (conv(x, w) + b) * s  ->  conv(x, w * s) + b * s

for conv2d, conv2d_transpose, dense and matmul, where w, b and s depend on constants alone and nothing else uses what
stands between. The products over weights stay expressions: they are evaluated with the weights, not here. Where the
context says `relaybuild.precise`, scales stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.visitor import post_order, use_counts
from relaybuild.passes._exprs import ConstantExprs, is_call, tensor_type
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import PRECISE, FunctionPass, PassContext, PassInfo, Sequential


@dataclass(frozen=True)
class _Anchor:
    """How an operator's output channels lie: their axis in the result, and how a weight is scaled by a vector of them.

    `scaled_weight` takes the call, the scale, and the number of channels in the scale (1: the same for all).
    """

    channel_axis: Callable[[Call], int]
    scaled_weight: Callable[[Call, Expr, int], Expr]


def _conv2d_axis(call: Call) -> int:
    attrs: Any = call.attrs
    return attrs.data_layout.index("C") if attrs is not None else 1


def _conv2d_weight(call: Call, scale: Expr, channels: int) -> Expr:
    attrs: Any = call.attrs
    axis = attrs.kernel_layout.index("O") if attrs is not None else 0
    return _times(call.args[1], scale, _vector_shape(4, axis, channels))


def _conv2d_transpose_weight(call: Call, scale: Expr, channels: int) -> Expr:
    attrs: Any = call.attrs
    weight = call.args[1]
    groups = attrs.groups if attrs is not None else 1
    if groups == 1 or channels == 1:
        return _times(weight, scale, _vector_shape(4, 1, channels))
    shape = weight.tensor_type.static_shape
    grouped = call_op("reshape", [weight], call.span, newshape=(groups, shape[0] // groups, *shape[1:]))
    scaled = _times(grouped, scale, (groups, 1, shape[1], 1, 1))
    return call_op("reshape", [scaled], call.span, newshape=shape)


def _dense_weight(call: Call, scale: Expr, channels: int) -> Expr:
    return _times(call.args[1], scale, (channels, 1))


def _matmul_weight(call: Call, scale: Expr, channels: int) -> Expr:
    attrs: Any = call.attrs
    rank = call.args[1].tensor_type.rank
    transposed = attrs is not None and attrs.transpose_b
    return _times(call.args[1], scale, _vector_shape(rank, rank - 2 if transposed else rank - 1, channels))


def _last_axis(call: Call) -> int:
    return call.tensor_type.rank - 1


_ANCHORS = {
    "nn.conv2d": _Anchor(_conv2d_axis, _conv2d_weight),
    "nn.conv2d_transpose": _Anchor(lambda call: 1, _conv2d_transpose_weight),
    "nn.dense": _Anchor(_last_axis, _dense_weight),
    "nn.matmul": _Anchor(_last_axis, _matmul_weight),
}

_Chain: TypeAlias = "tuple[Call, list[Expr]]"
"""An anchor's call, and what is added to its result, the innermost last."""


@dataclass(frozen=True, repr=False)
class BackwardFoldScaleAxis(FunctionPass):
    """Moves a scale against the flow of data, into the weights of the operator that made what is scaled."""

    info: ClassVar[PassInfo] = PassInfo("BackwardFoldScaleAxis", 3)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if ctx.get_config(PRECISE.name):
            return func
        folding = _Folding(use_counts(func), ConstantExprs())
        done: dict[int, Expr] = {}
        for node in post_order(func):
            rebuilt = node.with_children([done[id(child)] for child in node.children()])
            result = allowed(ctx, rebuilt, folding.fold(rebuilt)) if is_call(rebuilt, "multiply") else rebuilt
            folding.uses[id(result)] = folding.uses[id(node)]
            done[id(node)] = result
        result = done[id(func)]
        assert isinstance(result, Function)
        return result


class FoldScaleAxis(Sequential):
    """The passes that move scales into weights."""

    def __init__(self) -> None:
        super().__init__((BackwardFoldScaleAxis(),), opt_level=3, name="FoldScaleAxis")


@dataclass
class _Folding:
    """`uses` counts the edges to a node, by id, of the old program or the new."""

    uses: dict[int, int]
    constants: ConstantExprs

    def fold(self, node: Call) -> Expr:
        for data, scale in (node.args, node.args[::-1]):
            if self.constants.holds(scale) and not self.constants.holds(data):
                chain = self._chain(data, scale)
                if chain is not None and node.has_type and node.checked_type == chain[0].checked_type:
                    return self._scaled(chain, scale)
        return node

    def _chain(self, data: Expr, scale: Expr) -> _Chain | None:
        added: list[Expr] = []
        while is_call(data, "add") and self._is_private(data):
            left, right = data.args
            data, side = (left, right) if self.constants.holds(right) else (right, left)
            if not self.constants.holds(side):
                return None
            added.append(side)
        if not (isinstance(data, Call) and data.op_name in _ANCHORS and self._is_private(data)):
            return None
        if not self.constants.holds(data.args[1]) or not _is_per_channel(data, (scale, *added)):
            return None
        return data, added

    def _is_private(self, node: Expr) -> bool:
        return self.uses.get(id(node), 1) == 1

    def _scaled(self, chain: _Chain, scale: Expr) -> Expr:
        call, added = chain
        weight = _ANCHORS[call.op_name].scaled_weight(call, scale, _num_elements(scale))
        result: Expr = Call(call.op, (call.args[0], weight), call.attrs, call.span)
        for side in reversed(added):
            result = call_op("add", [result, call_op("multiply", [side, scale], scale.span)], side.span or call.span)
        return result


def _is_per_channel(call: Call, sides: tuple[Expr, ...]) -> bool:
    """Whether every expression is one number per output channel, or one for all, of the weight's dtype."""
    kinds = [tensor_type(side) for side in sides]
    result, weight = tensor_type(call), tensor_type(call.args[1])
    if result is None or weight is None or not weight.is_static:
        return False
    axis = _ANCHORS[call.op_name].channel_axis(call)
    return all(
        kind is not None
        and kind.dtype == weight.dtype == result.dtype
        and kind.rank <= result.rank
        and all(
            extent == 1 or (place == axis and extent == result.shape[axis])
            for place, extent in enumerate(kind.shape, result.rank - kind.rank)
        )
        for kind in kinds
    )


def _num_elements(node: Expr) -> int:
    return node.tensor_type.num_elements


def _vector_shape(rank: int, axis: int, channels: int) -> tuple[int, ...]:
    return tuple(channels if place == axis else 1 for place in range(rank))


def _times(weight: Expr, scale: Expr, shape: tuple[int, ...]) -> Expr:
    """The weight times the scale, the latter reshaped unless it broadcasts as it is."""
    if scale.tensor_type.rank > 0 and scale.tensor_type.shape != shape:
        scale = call_op("reshape", [scale], scale.span, newshape=shape)
    return call_op("multiply", [weight, scale], scale.span)
