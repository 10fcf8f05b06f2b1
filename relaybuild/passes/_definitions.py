"""Rewriting that sees through lets: what a variable stands for. Knows no rule.

A variable stands for its value where that is a variable, or an operator's call over variables and expressions of
constants: these are in scope wherever the variable is, and computing the call again reads nothing that may change.
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
        self._bound: dict[int, Expr] = {}

    def bound_to(self, node: Expr) -> Expr:
        """What a variable is bound to, for questions alone: it may not be computed again elsewhere."""
        return self._bound.get(id(node), node)

    def of(self, node: Expr) -> Expr:
        """The value of a variable; any other node, and a variable of which nothing is known, as it is."""
        return self._values.get(id(node), node)

    def learn(self, var: Var, value: Expr) -> None:
        """A let binds `var` to `value`; both must outlive this object."""
        self._bound[id(var)] = value
        if isinstance(value, Var):
            self._values[id(var)] = self.of(value)
        elif isinstance(value, Constant) or (
            isinstance(value, Call)
            and not isinstance(value.op, Expr)
            and all(isinstance(arg, Var) or self.constants.holds(arg) for arg in value.args)
        ):
            self._values[id(var)] = value


def rewrite_definitions(
    ctx: PassContext,
    function: Function,
    rule: Callable[[Expr, Definitions], Expr],
    replaced: Callable[[Expr, Expr], None] = lambda old, new: None,
) -> Function:
    """Rebuild a function bottom-up, as `visitor.rewrite`, with a rule that may ask what variables stand for.

    Where a value's type has changed, a variable of the new type takes the place of the one that was bound to it.
    `replaced` is told which node stands for which old one.
    """
    order = list(post_order(function))
    bound: dict[int, list[Let]] = {}
    for node in order:
        if isinstance(node, Let):
            bound.setdefault(id(node.value), []).append(node)
    definitions = Definitions()
    done: dict[int, Expr] = {}
    for node in order:
        if id(node) not in done:
            done[id(node)] = allowed(ctx, rebuilt := _rebuilt(node, done), rule(rebuilt, definitions))
        replaced(node, done[id(node)])
        for let in bound.get(id(node), ()):
            value = done[id(node)]
            var = _retyped(let.var, value)
            if var is not let.var:
                done[id(let.var)] = var
            definitions.learn(var, value)
    result = done[id(function)]
    assert isinstance(result, Function)
    return result


def _rebuilt(node: Expr, done: dict[int, Expr]) -> Expr:
    children = [done[id(child)] for child in node.children()]
    if isinstance(node, Let):
        var = done.get(id(node.var), node.var)
        if var is not node.var and isinstance(var, Var):
            return Let(var, children[0], children[1], node.span)
    return node.with_children(children) if children else node


def _retyped(var: Var, value: Expr) -> Var:
    if var.type_annotation is not None or not value.has_type or not var.has_type:
        return var
    if value.checked_type == var.checked_type:
        return var
    fresh = Var(var.name_hint, None, var.span)
    fresh.set_checked_type(value.checked_type)
    return fresh
