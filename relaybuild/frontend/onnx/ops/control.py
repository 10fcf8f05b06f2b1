"""Control flow: a branch that is known at import is the only one there is; else both are compiled."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr, If, Tuple


@converter("If")
def if_(node: Node) -> Sequence[Expr]:
    """The branch that a constant condition takes, or both, whose outputs must be of the same types."""
    cond = node.get(0)
    if node.folder.is_closed(cond):
        return node.inline(node.graph_attr("then_branch" if node.scalar(0, "cond") else "else_branch"), {})
    if cond.tensor_type.num_elements != 1:
        raise node.fail(f"'cond' (input 0) has shape {node.shape(0)}, expected a scalar")
    then, other = (Tuple(node.inline(node.graph_attr(name), {}), node.span) for name in ("then_branch", "else_branch"))
    for number, (left, right) in enumerate(zip(then.fields, other.fields)):
        if left.checked_type != right.checked_type:
            raise node.fail(
                f"output {number} is a {left.checked_type} of one branch and a {right.checked_type} of the other; as"
                " 'cond' (input 0) is computed from the model's inputs, they must be the same"
            )
    return node.fields(If(node.reshape(cond, ()), then, other, node.span), len(node.outputs))
