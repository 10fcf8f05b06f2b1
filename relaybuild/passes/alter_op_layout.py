"""AlterOpLayout: calls are replaced by what registered rules say, and packed layouts are carried on to their users.

    @register_op_rewrite("alter_op_layout", "nn.conv2d")
    def pack_channels(call):
        return with_layouts(call, ["NCHW16c", "OIHW16i16o"])

A rule takes a typed call and returns an expression of the same type, the call itself, or None
(`relaybuild.passes.op_rewrites`); `with_layouts` writes a call in other layouts. Operators say themselves how they
follow a layout. Without rules nothing changes: the host chooses layouts of its own accord.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.passes._layouts import LayoutPropagation, with_layouts
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo
from relaybuild.passes.op_rewrites import rewrite_call

__all__ = ["AlterOpLayout", "with_layouts"]


@dataclass(frozen=True, repr=False)
class AlterOpLayout(FunctionPass):
    """Asks the rules of kind `alter_op_layout`."""

    info: ClassVar[PassInfo] = PassInfo("AlterOpLayout", 3, ("InferType",))

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return LayoutPropagation(ctx, _replacement).run(func)


def _replacement(call: Call) -> Expr:
    return rewrite_call("alter_op_layout", call)
