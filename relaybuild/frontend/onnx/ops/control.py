"""Control flow that is decided at import."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


@converter("If")
def if_(node: Node) -> Sequence[Expr]:
    """The branch that a constant condition takes."""
    branch = "then_branch" if node.scalar(0, "cond") else "else_branch"
    if branch not in node.attrs:
        raise node.fail(f"attribute '{branch}' is missing")
    return node.inline(node.attrs[branch])
