"""FlattenAtrousConv: a convolution between changes of space to batch and back becomes one with dilation.

    batch_to_space_nd(conv2d(space_to_batch_nd(x), w))  ->  conv2d(x, w, dilation, padding)

where blocks lie along rows and columns, strides are 1, padding is 0 and what is cut off was padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.layout import is_plain
from relaybuild.ir.module import IRModule
from relaybuild.passes._definitions import Definitions, rewrite_definitions
from relaybuild.passes._exprs import attrs_of, is_call
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class FlattenAtrousConv(FunctionPass):
    """Undoes how frameworks without dilated convolutions write them."""

    info: ClassVar[PassInfo] = PassInfo("FlattenAtrousConv", 0, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return rewrite_definitions(ctx, func, _flattened)


def _flattened(node: Expr, definitions: Definitions) -> Expr:
    if not is_call(node, "nn.batch_to_space_nd"):
        return node
    conv = definitions.of(node.args[0])
    if not is_call(conv, "nn.conv2d"):
        return node
    space = definitions.of(conv.args[0])
    if not is_call(space, "nn.space_to_batch_nd"):
        return node
    attrs = _atrous_attrs(attrs_of(node), attrs_of(conv), attrs_of(space))
    if attrs is None:
        return node
    flat = Call(conv.op, [space.args[0], conv.args[1]], attrs, conv.span)
    return flat if flat.has_type and flat.checked_type == node.checked_type else node


def _atrous_attrs(back: Any, conv: Any, space: Any) -> Any:
    """The attributes of the dilated convolution; None where it would be another."""
    if back.block_shape != space.block_shape or space.pad_value != 0 or conv.strides != (1, 1):
        return None
    if not is_plain(conv.data_layout) or conv.out_layout:
        return None
    blocks = _spatial(space.block_shape, conv.data_layout, 1)
    paddings = _spatial(space.paddings, conv.data_layout, (0, 0))
    crops = _spatial(back.crops, conv.data_layout, (0, 0))
    if blocks is None or paddings is None or crops is None:
        return None
    before = [conv.padding[axis] * blocks[axis] + paddings[axis][0] - crops[axis][0] for axis in (0, 1)]
    after = [conv.padding[axis + 2] * blocks[axis] + paddings[axis][1] - crops[axis][1] for axis in (0, 1)]
    if min(*before, *after) < 0:
        return None
    dilation = tuple(conv.dilation[axis] * blocks[axis] for axis in (0, 1))
    return replace(conv, padding=(*before, *after), dilation=dilation)


def _spatial(values: Sequence[Any], layout: str, neutral: Any) -> list[Any] | None:
    """The values of rows and columns, of values for the axes behind the batch; None where others are not neutral."""
    if layout[0] != "N":
        return None
    found = dict(zip(layout[1:], values))
    if any(value != neutral for letter, value in found.items() if letter not in "HW"):
        return None
    return [found.get("H", neutral), found.get("W", neutral)]
