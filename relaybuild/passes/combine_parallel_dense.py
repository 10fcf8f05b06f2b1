"""CombineParallelDense: products of one value with several weights become one product with more units.

Weights may have different numbers of rows; what follows is joined as far as it agrees (`relaybuild.passes._combine`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.passes._combine import ParallelOp, attrs_key, combine_parallel, joined_along
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class CombineParallelDense(FunctionPass):
    """Joins groups of at least `min_num_branches`."""

    info: ClassVar[PassInfo] = PassInfo("CombineParallelDense", 4)
    min_num_branches: int = 3

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return combine_parallel(ctx, func, ParallelOp(_key, _axis, _joined), self.min_num_branches)


def _key(call: Call) -> Hashable:
    if call.op_name != "nn.dense":
        return None
    return (attrs_key(call, "units"), call.args[1].tensor_type.dtype)


def _axis(call: Call) -> int:
    return call.tensor_type.rank - 1


def _joined(data: Expr, calls: Sequence[Call]) -> Call:
    weight = joined_along([call.args[1] for call in calls], 0)
    attrs: Any = calls[0].attrs
    return Call(calls[0].op, [data, weight], replace(attrs, units=None), calls[0].span)
