"""DefuseOps: calls of functions marked `Primitive=1` are replaced by what they compute; the inverse of FuseOps.

Functions that another compiler is to see, or that make up one operator of a backend, stay.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order
from relaybuild.passes._inlining import Introduced, fresh_copy
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class DefuseOps(FunctionPass):
    """Gives the dataflow graph from which FuseOps made functions."""

    info: ClassVar[PassInfo] = PassInfo("DefuseOps", 3, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        done: dict[int, Expr] = {}
        for node in post_order(func):
            rebuilt = node.with_children([done[id(child)] for child in node.children()])
            done[id(node)] = _defused(rebuilt)
        result = done[id(func)]
        assert isinstance(result, Function)
        return result


def _defused(node: Expr) -> Expr:
    if not isinstance(node, Call) or not isinstance(node.op, Function) or not _is_fused(node.op):
        return node
    args = {id(param): arg for param, arg in zip(node.op.params, node.args)}
    body = node.op.body
    return args[id(body)] if id(body) in args else fresh_copy(body, Introduced(), args)


def _is_fused(function: Function) -> bool:
    kept = any(function.attrs.get(name) for name in ("Compiler", "Composite"))
    return bool(function.attrs.get("Primitive")) and not kept
