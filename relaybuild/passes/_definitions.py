"""Rewriting that sees through lets: what a variable stands for. Knows no rule.

A variable stands for its value where that is an operator's call over variables and expressions of constants: these are
in scope wherever the variable is, and computing the call again reads nothing that may have changed.
"""

from __future__ import annotations

from collections.abc import Callable

from relaybuild.ir.expr import Call, Constant, Expr, Function, Let, Var
from relaybuild.ir.visitor import post_order
from relaybuild.passes._exprs import ConstantExprs
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import PassContext


class Definitions:
    """What variables of lets stand for, as far as a walk has come."""

    def __init__(self) -> None:
        self.constants = ConstantExprs()
        self._values: dict[int, Expr] = {}

    def of(self, node: Expr) -> Expr:
        """The value of a variable; any other node, and a variable of which nothing is known, as it is."""
        return self._values.get(id(node), node)

    def learn(self, var: Var, value: Expr) -> None:
        """A let binds `var` to `value`; both must outlive this object."""
        if isinstance(value, Constant) or (
            isinstance(value, Call)
            and not isinstance(value.op, Expr)
            and all(isinstance(arg, Var) or self.constants.holds(arg) for arg in value.args)
        ):
            self._values[id(var)] = value


def rewrite_definitions(ctx: PassContext, function: Function, rule: Callable[[Expr, Definitions], Expr]) -> Function:
    """Rebuild a function bottom-up, as `visitor.rewrite`, with a rule that may ask what variables stand for."""
    order = list(post_order(function))
    bound: dict[int, list[Let]] = {}
    for node in order:
        if isinstance(node, Let):
            bound.setdefault(id(node.value), []).append(node)
    definitions = Definitions()
    done: dict[int, Expr] = {}
    for node in order:
        children = node.children()
        rebuilt = node.with_children([done[id(child)] for child in children]) if children else node
        done[id(node)] = allowed(ctx, rebuilt, rule(rebuilt, definitions))
        for let in bound.get(id(node), ()):
            definitions.learn(let.var, done[id(node)])
    result = done[id(function)]
    assert isinstance(result, Function)
    return result
