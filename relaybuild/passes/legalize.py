"""Legalize: calls are replaced by what rules registered for their operators make of them; knows no rule.

Rules are registered with `relaybuild.passes.op_rewrites.register_legalize`. What a rule returns is not handed to
another rule, so a rule may return a call of its own operator.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo, rewrite_under
from relaybuild.passes.op_rewrites import rewrite_call


@dataclass(frozen=True, repr=False)
class Legalize(FunctionPass):
    """A replacement of another type than the call's is an error that names the operator."""

    info: ClassVar[PassInfo] = PassInfo("Legalize", 1, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        result = rewrite_under(ctx, func, _legal)
        assert isinstance(result, Function)
        return result


def _legal(node: Expr) -> Expr:
    if not isinstance(node, Call) or not isinstance(node.op, Op):
        return node
    found = rewrite_call("legalize", node)
    if found.has_type and node.has_type and found.checked_type != node.checked_type:
        raise UserError(
            f"the legalize rule of '{node.op_name}' returned {found.checked_type}, expected {node.checked_type}",
            where=str(node.span) if node.span else None,
        )
    return found
