"""Scales per channel: what FoldScaleAxis knows of them, and of operators that absorb them or let them pass.

A scale multiplies a tensor by one number for all, or by one for each position along one axis. Anchors (convolutions and
matrix products with constant weights) absorb it into their weights; others commute with it, some only where it is
positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr
from relaybuild.ir.layout import is_plain
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.passes._exprs import attrs_of, tensor_type


@dataclass(frozen=True)
class Scale:
    """`values` has `count` elements: one for all (`axis` is None, count 1), or one per position along `axis`."""

    values: Expr
    axis: int | None
    count: int

    def at(self, axis: int | None) -> Scale:
        """The same numbers along another axis."""
        return self if axis == self.axis else replace(self, axis=axis)

    def shaped(self, shape: tuple[int, ...]) -> Expr:
        """The numbers in a shape of as many elements; those that broadcast as they are stay so."""
        kind = self.values.tensor_type
        if kind.rank == 0 or kind.shape == shape:
            return self.values
        return call_op("reshape", [self.values], self.values.span, newshape=shape)

    def behind(self, rank: int) -> Expr:
        """The numbers in a shape that broadcasts along the axis of a tensor of that rank."""
        return self.shaped((self.count, *(1,) * (rank - 1 - self.axis)) if self.axis is not None else (1,))

    def along(self, rank: int, axis: int) -> Expr:
        """The numbers along one axis of a weight of that rank."""
        return self.shaped(tuple(self.count if place == axis else 1 for place in range(rank)))


def scale_of(data: TensorType, values: Expr) -> Scale | None:
    """What multiplying data by `values` does, if it is a scale."""
    kind = tensor_type(values)
    if kind is None or not kind.is_static or kind.rank > data.rank or kind.dtype != data.dtype:
        return None
    wide = [axis for axis, extent in enumerate(kind.shape, data.rank - kind.rank) if extent != 1]
    if not wide:
        return Scale(values, None, 1)
    if len(wide) > 1 or data.shape[wide[0]] != kind.num_elements:
        return None
    return Scale(values, wide[0], kind.num_elements)


def is_along(kind: TensorType, rank: int, axis: int | None) -> bool:
    """Whether a scale along that axis can be multiplied into an operand beside a tensor of that rank.

    The operand then has one value, or one per position along the axis; any where the scale is one number.
    """
    return kind.rank <= rank and all(
        axis is None or extent == 1 or place == axis for place, extent in enumerate(kind.shape, rank - kind.rank)
    )


# Anchors


@dataclass(frozen=True)
class Anchor:
    """The axis of the channels of an operator's result and of its data, and its weight with either scaled.

    A function gives None where a weight cannot be scaled.
    """

    out_axis: Callable[[Call], int]
    in_axis: Callable[[Call], int]
    scaled_out: Callable[[Call, Scale], Expr | None]
    scaled_in: Callable[[Call, Scale], Expr | None]


def _times(weight: Expr, factor: Expr) -> Expr:
    return call_op("multiply", [weight, factor], factor.span)


def _conv_axis(call: Call) -> int:
    return int(attrs_of(call).data_layout.index("C"))


def _conv_out(call: Call, scale: Scale) -> Expr | None:
    attrs = attrs_of(call)
    if not is_plain(attrs.data_layout + attrs.kernel_layout) or attrs.out_layout:
        return None
    return _times(call.args[1], scale.along(4, attrs.kernel_layout.index("O")))


def _conv_in(call: Call, scale: Scale) -> Expr | None:
    attrs, weight = attrs_of(call), call.args[1]
    if not is_plain(attrs.data_layout + attrs.kernel_layout):
        return None
    if scale.axis is None or attrs.groups == 1:
        return _times(weight, scale.along(4, attrs.kernel_layout.index("I")))
    shape, outs = weight.tensor_type.static_shape, attrs.kernel_layout.index("O")
    if scale.count == attrs.groups == shape[outs]:
        return _times(weight, scale.along(4, outs))
    if attrs.kernel_layout != "OIHW":
        return None
    grouped = call_op("reshape", [weight], call.span, newshape=(attrs.groups, shape[0] // attrs.groups, *shape[1:]))
    scaled = _times(grouped, scale.shaped((attrs.groups, 1, shape[1], 1, 1)))
    return call_op("reshape", [scaled], call.span, newshape=shape)


def _transposed_out(call: Call, scale: Scale) -> Expr | None:
    weight, groups = call.args[1], attrs_of(call).groups
    if groups == 1 or scale.axis is None:
        return _times(weight, scale.along(4, 1))
    shape = weight.tensor_type.static_shape
    grouped = call_op("reshape", [weight], call.span, newshape=(groups, shape[0] // groups, *shape[1:]))
    scaled = _times(grouped, scale.shaped((groups, 1, shape[1], 1, 1)))
    return call_op("reshape", [scaled], call.span, newshape=shape)


def _matmul_out(call: Call, scale: Scale) -> Expr | None:
    rank = call.args[1].tensor_type.rank
    return _times(call.args[1], scale.along(rank, rank - 2 if attrs_of(call).transpose_b else rank - 1))


def _matmul_in(call: Call, scale: Scale) -> Expr | None:
    if attrs_of(call).transpose_a and scale.axis is not None:
        return None
    rank = call.args[1].tensor_type.rank
    return _times(call.args[1], scale.along(rank, rank - 1 if attrs_of(call).transpose_b else rank - 2))


def _last_axis(call: Call) -> int:
    return call.tensor_type.rank - 1


def _last_data_axis(call: Call) -> int:
    return call.args[0].tensor_type.rank - 1


ANCHORS = {
    "nn.conv2d": Anchor(_conv_axis, _conv_axis, _conv_out, _conv_in),
    "nn.conv2d_transpose": Anchor(
        lambda call: 1, lambda call: 1, _transposed_out, lambda call, scale: _times(call.args[1], scale.along(4, 0))
    ),
    "nn.dense": Anchor(
        _last_axis,
        _last_data_axis,
        lambda call, scale: _times(call.args[1], scale.along(2, 0)),
        lambda call, scale: _times(call.args[1], scale.along(2, 1)),
    ),
    "nn.matmul": Anchor(_last_axis, _last_data_axis, _matmul_out, _matmul_in),
}


def can_absorb(call: Call, anchor_axis: int, axis: int | None) -> bool:
    """Whether an anchor of static weight and one dtype has its channels where the scale is.

    Integers wrap, and products of narrow floats leave their range, where what is scaled later does not.
    """
    weight, result = tensor_type(call.args[1]), tensor_type(call)
    if weight is None or result is None or not weight.is_static or weight.dtype != result.dtype:
        return False
    if weight.dtype not in ("float32", "float64"):
        return False
    return axis is None or axis == anchor_axis


# Operators that commute with scales


@dataclass(frozen=True)
class Passing:
    """How a scale passes an operator of one argument: only a positive one, or any; and where its axis goes.

    `axis(call, axis, backward)` is the axis on the other side, None where it does not pass.
    """

    positive: bool
    axis: Callable[[Call, int, bool], int | None]


def _same_axis(call: Call, axis: int, backward: bool) -> int | None:
    return axis


def _pooled_axis(call: Call, axis: int, backward: bool) -> int | None:
    layout = attrs_of(call).layout
    return axis if is_plain(layout) and layout[axis] in "NC" else None


def _padded_axis(call: Call, axis: int, backward: bool) -> int | None:
    return axis if not any(attrs_of(call).pad_width[axis]) else None


def _transposed_axis(call: Call, axis: int, backward: bool) -> int | None:
    rank, axes = call.tensor_type.rank, attrs_of(call).axes
    order = [each % rank for each in axes] if axes else list(reversed(range(rank)))
    return order[axis] if backward else order.index(axis)


def _reshaped_axis(call: Call, axis: int, backward: bool) -> int | None:
    kinds = [call.args[0].tensor_type, call.tensor_type]
    if not all(kind.is_static for kind in kinds):
        return None
    here, there = (kind.static_shape for kind in (reversed(kinds) if backward else kinds))
    before = prod(here[:axis])
    for place, extent in enumerate(there):
        if extent == here[axis] and prod(there[:place]) == before:
            return place
    return None


PASSING = {
    "nn.relu": Passing(True, _same_axis),
    "nn.leaky_relu": Passing(True, _same_axis),
    "negative": Passing(False, _same_axis),
    "copy": Passing(False, _same_axis),
    "nn.dropout": Passing(False, _same_axis),
    "nn.max_pool2d": Passing(True, _pooled_axis),
    "nn.avg_pool2d": Passing(False, _pooled_axis),
    "nn.global_max_pool2d": Passing(True, _pooled_axis),
    "nn.global_avg_pool2d": Passing(False, _pooled_axis),
    "nn.adaptive_avg_pool2d": Passing(False, _pooled_axis),
    "nn.pad": Passing(False, _padded_axis),
    "transpose": Passing(False, _transposed_axis),
    "reshape": Passing(False, _reshaped_axis),
}


def passes(call: Call, scale: Scale, *, backward: bool, positive: bool) -> Scale | None:
    """The scale on the other side of an operator, None where it does not pass."""
    rule = PASSING.get(call.op_name)
    if rule is None or (rule.positive and not positive):
        return None
    if call.op_name == "nn.pad" and attrs_of(call).pad_mode == "constant" and attrs_of(call).pad_value != 0:
        return None
    if scale.axis is None:
        return scale
    axis = rule.axis(call, scale.axis, backward)
    return None if axis is None else scale.at(axis)


# Signs

_POSITIVE = ("exp", "sigmoid", "rsqrt")
_KEEPING = ("multiply", "divide", "add", "maximum", "sqrt", "reshape", "transpose", "expand_dims", "squeeze", "cast")
_KEEPING_LAYOUT = ("concatenate", "broadcast_to", "strided_slice", "layout_transform", "copy", "repeat", "tile")


_LEAST_DIVISOR = 1e-6


class Signs:
    """Which expressions over constants are positive throughout, or zero by underflow alone; weights are looked at only
    where that is allowed."""

    def __init__(self, *, read_weights: bool) -> None:
        self._read_weights = read_weights
        self._known: dict[int, tuple[Expr, bool]] = {}

    def are_positive(self, root: Expr) -> bool:
        stack = [root]
        while stack:
            node = stack[-1]
            pending = [child for child in node.children() if id(child) not in self._known]
            if pending and id(node) not in self._known:
                stack.extend(pending)
                continue
            stack.pop()
            if id(node) not in self._known:
                self._known[id(node)] = (node, self._decide(node))
        return self._known[id(root)][1]

    def can_divide(self, node: Expr) -> bool:
        """Whether dividing by an expression is safe: it holds numbers that can be looked at, none of them near zero."""
        while isinstance(node, Call) and node.op_name in ("reshape", "transpose", "expand_dims", "squeeze"):
            node = node.args[0]
        if not isinstance(node, Constant) or (node.is_weight and not self._read_weights):
            return False
        return bool((np.abs(np.asarray(node.data, "float64")) >= _LEAST_DIVISOR).all())

    def _decide(self, node: Expr) -> bool:
        if isinstance(node, Constant):
            return (self._read_weights or not node.is_weight) and bool((np.asarray(node.data) > 0).all())
        if isinstance(node, Call) and node.op_name in _POSITIVE:
            return True
        keeps = not isinstance(node, Call) or node.op_name in (*_KEEPING, *_KEEPING_LAYOUT)
        children = node.children()
        return keeps and bool(children) and all(self._known[id(child)][1] for child in children)
