"""Bottom-up rewriting in which every change is asked of the context; knows no rule."""

from __future__ import annotations

from collections.abc import Callable

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.visitor import rewrite
from relaybuild.passes._context import PassContext


def rewrite_under(ctx: PassContext, root: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """`visitor.rewrite` whose rule's results are used only as far as the context allows rewrites.

    `rule` gives the node itself where it changes nothing, which is no rewrite.
    """
    return rewrite(root, lambda node: allowed(ctx, node, rule(node)))


def allowed(ctx: PassContext, node: Expr, replacement: Expr) -> Expr:
    """The replacement, or the node itself where the context allows no further rewrite."""
    if replacement is node or not ctx.allow_rewrite(f"{_kind(node)} becomes {_kind(replacement)}", node):
        return node
    return replacement


def _kind(node: Expr) -> str:
    return node.op_name if isinstance(node, Call) and node.op_name else type(node).__name__
