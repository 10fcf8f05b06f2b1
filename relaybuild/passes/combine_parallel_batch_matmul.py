"""CombineParallelBatchMatmul: matrix products of one left side become one product with more columns.

The right sides must agree in their batch axes; what follows is joined as far as it agrees
(`relaybuild.passes._combine`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.passes._combine import ParallelOp, attrs_key, combine_parallel, joined_along
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class CombineParallelBatchMatmul(FunctionPass):
    """Joins groups of at least `min_num_branches`."""

    info: ClassVar[PassInfo] = PassInfo("CombineParallelBatchMatmul", 4)
    min_num_branches: int = 3

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return combine_parallel(ctx, func, ParallelOp(_key, _axis, _joined), self.min_num_branches)


def _key(call: Call) -> Hashable:
    if call.op_name not in ("nn.matmul", "nn.batch_matmul"):
        return None
    right = call.args[1].tensor_type
    axis = _column_axis(call)
    return (call.op_name, attrs_key(call), right.dtype, right.shape[:axis], right.shape[axis + 1 :])


def _column_axis(call: Call) -> int:
    """The axis of the right side along which the columns of the product lie."""
    attrs: Any = call.attrs
    return call.args[1].tensor_type.rank - (2 if attrs.transpose_b else 1)


def _axis(call: Call) -> int:
    return call.tensor_type.rank - 1


def _joined(data: Expr, calls: Sequence[Call]) -> Call:
    right = joined_along([call.args[1] for call in calls], _column_axis(calls[0]))
    return Call(calls[0].op, [data, right], calls[0].attrs, calls[0].span)
