"""CombineParallelConv2D: convolutions of one value become one convolution with more output channels.

They must agree in everything but their output channels, and have no groups; element-wise calls behind them are joined
as far as they agree (`relaybuild.passes._combine`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.layout import is_plain
from relaybuild.ir.module import IRModule
from relaybuild.passes._combine import ParallelOp, attrs_key, combine_parallel, joined_along
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class CombineParallelConv2D(FunctionPass):
    """Joins groups of at least `min_num_branches`."""

    info: ClassVar[PassInfo] = PassInfo("CombineParallelConv2D", 4)
    min_num_branches: int = 3

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return combine_parallel(ctx, func, ParallelOp(_key, _axis, _joined), self.min_num_branches)


def _key(call: Call) -> Hashable:
    attrs: Any = call.attrs
    if call.op_name != "nn.conv2d" or attrs.groups != 1 or attrs.out_layout:
        return None
    if not is_plain(attrs.data_layout) or not is_plain(attrs.kernel_layout):
        return None
    weight = call.args[1].tensor_type
    outs = attrs.kernel_layout.index("O")
    return (attrs_key(call, "channels"), weight.dtype, weight.shape[:outs], weight.shape[outs + 1 :])


def _axis(call: Call) -> int:
    attrs: Any = call.attrs
    return int(attrs.data_layout.index("C"))


def _joined(data: Expr, calls: Sequence[Call]) -> Call:
    attrs: Any = calls[0].attrs
    weight = joined_along([call.args[1] for call in calls], attrs.kernel_layout.index("O"))
    return Call(calls[0].op, [data, weight], replace(attrs, channels=None), calls[0].span)
