"""FoldExplicitPadding: a border put around images becomes the padding of the operator that reads them.

    nn.conv2d(nn.pad(x))                           ->  nn.conv2d(x, padding)    where the border is 0
    nn.max_pool2d(nn.pad(x))                       ->  nn.max_pool2d(x, padding)    where the border never wins
    nn.avg_pool2d(nn.pad(x))                       ->  nn.avg_pool2d(x, padding)    where the border is 0 and counted

Only rows and columns may have been padded. The pad stays where something else uses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.layout import Layout, plain_letters
from relaybuild.ir.module import IRModule
from relaybuild.passes._definitions import Definitions, rewrite_definitions
from relaybuild.passes._exprs import attrs_of, is_call, tensor_type
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo

_READERS = {"nn.conv2d": "data_layout", "nn.max_pool2d": "layout", "nn.avg_pool2d": "layout"}
"""Operators that pad, and their attribute that names the axes of the images."""


@dataclass(frozen=True, repr=False)
class FoldExplicitPadding(FunctionPass):
    """Moves borders into the attribute `padding`."""

    info: ClassVar[PassInfo] = PassInfo("FoldExplicitPadding", 0, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return rewrite_definitions(ctx, func, _folded)


def _folded(node: Expr, definitions: Definitions) -> Expr:
    if not isinstance(node, Call) or node.op_name not in _READERS or not node.has_type:
        return node
    pad = definitions.of(node.args[0])
    if not is_call(pad, "nn.pad") or tensor_type(pad) is None:
        return node
    attrs, pad_attrs = attrs_of(node), attrs_of(pad)
    widths = _spatial_widths(pad_attrs.pad_width, getattr(attrs, _READERS[node.op_name]))
    if widths is None or pad_attrs.pad_mode != "constant" or not _is_neutral(node, pad_attrs.pad_value):
        return node
    (top, bottom), (left, right) = widths
    before = attrs.padding
    padding = (before[0] + top, before[1] + left, before[2] + bottom, before[3] + right)
    counted = {"count_include_pad": True} if node.op_name == "nn.avg_pool2d" else {}
    folded = Call(node.op, [pad.args[0], *node.args[1:]], replace(attrs, padding=padding, **counted), node.span)
    # a last, incomplete window may depend on which of the rows are padding
    return folded if folded.has_type and folded.checked_type == node.checked_type else node


def _spatial_widths(widths: tuple[tuple[int, int], ...], layout: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """What was put around rows and around columns; None where something else was done."""
    found = Layout.between(plain_letters(layout), layout)
    letters = plain_letters(layout)
    rows, columns = (found.places(letters.index(letter)) for letter in "HW")
    if len(rows) != 1 or len(columns) != 1:
        return None
    for axis, pair in enumerate(widths):
        if min(pair) < 0 or (max(pair) > 0 and axis not in (*rows, *columns)):
            return None
    return widths[rows[0]], widths[columns[0]]


def _is_neutral(node: Call, value: float) -> bool:
    """Whether padding of that value is what the operator's own padding is."""
    attrs = attrs_of(node)
    if node.op_name == "nn.max_pool2d":
        dtype = node.args[0].tensor_type.dtype
        return value == (-np.inf if "float" in dtype else np.iinfo(dtype).min)
    if node.op_name == "nn.avg_pool2d":
        return value == 0 and (attrs.count_include_pad or not any(attrs.padding))
    return value == 0
