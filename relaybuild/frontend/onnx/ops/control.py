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
    return node.inline_attr(branch)
