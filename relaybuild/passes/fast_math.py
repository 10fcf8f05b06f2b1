"""FastMath: operators are replaced by what approximates them with fewer instructions.

exp(x)  ->  fast_exp(x)        and so on for every operator that names its approximation
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import get_op
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class FastMath(FunctionPass):
    """Gives up accuracy for speed; the approximations' files say how much."""

    info: ClassVar[PassInfo] = PassInfo("FastMath", 4)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = rewrite_under(ctx, func, _fast)
        assert isinstance(result, Function)
        return result


def _fast(node: Expr) -> Expr:
    if not isinstance(node, Call) or isinstance(node.op, Expr) or node.op.fast is None:
        return node
    return Call(get_op(node.op.fast), node.args, node.attrs, node.span)
