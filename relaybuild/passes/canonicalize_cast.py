"""CanonicalizeCast: a widening cast that several element-wise calls read is repeated for each of them.

    %0 = cast(%x, dtype="int32"); (f(%0), g(%0))  ->  (f(cast(%x)), g(cast(%x)))

so that each can take the cast into its kernel, and what lies in memory between them is the narrow value.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import OpKind
from relaybuild.ir.types import dtype_itemsize
from relaybuild.ir.visitor import post_order, use_counts
from relaybuild.passes._exprs import is_call, tensor_type
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo

_POINTWISE = (OpKind.ELEMWISE, OpKind.BROADCAST)


@dataclass(frozen=True, repr=False)
class CanonicalizeCast(FunctionPass):
    """Repeats casts; CSE, run later, would join them again."""

    info: ClassVar[PassInfo] = PassInfo("CanonicalizeCast", 3, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        uses = use_counts(func)
        done: dict[int, Expr] = {}
        shared: set[int] = set()
        for node in post_order(func):
            children = [done[id(child)] for child in node.children()]
            rebuilt = node.with_children(children)
            if isinstance(node, Call) and not isinstance(node.op, Expr) and node.op.kind in _POINTWISE:
                copies = [_copied(child) if id(child) in shared else child for child in children]
                rebuilt = allowed(ctx, rebuilt, rebuilt.with_children(copies))
            if uses[id(node)] > 1 and _widens(rebuilt):
                shared.add(id(rebuilt))
            done[id(node)] = rebuilt
        result = done[id(func)]
        assert isinstance(result, Function)
        return result


def _copied(cast: Expr) -> Expr:
    assert isinstance(cast, Call)
    return Call(cast.op, cast.args, cast.attrs, cast.span)


def _widens(node: Expr) -> bool:
    if not is_call(node, "cast"):
        return False
    before, after = tensor_type(node.args[0]), tensor_type(node)
    return before is not None and after is not None and dtype_itemsize(after.dtype) > dtype_itemsize(before.dtype)
