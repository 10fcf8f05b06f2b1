"""ToANormalForm: every expression that is computed is bound to a variable, in the order in which it is computed.

Operands, conditions and results are variables, constants, globals or constructors. A node is bound in the block of the
innermost scope that encloses all its uses, so it leaves a branch only when both branches need it. Functions that have
been cut out for a kernel or a backend stay as they are, where they stand.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.passes._normal_form import bind_nodes
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class ToANormalForm(FunctionPass):
    """Makes sharing and the order of evaluation explicit; ToGraphNormalForm is its inverse."""

    info: ClassVar[PassInfo] = PassInfo("ToANormalForm", 1)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return bind_nodes(func, lambda blocks: lambda node: node is not func, drop_copies=True)


def to_a_normal_form(expr: Expr) -> Expr:
    """A single expression in A-normal form; a function stays a function."""
    if isinstance(expr, Function):
        return bind_nodes(expr, lambda blocks: lambda node: node is not expr, drop_copies=True)
    wrapped = Function((), expr)
    return bind_nodes(wrapped, lambda blocks: lambda node: node is not wrapped, drop_copies=True).body
