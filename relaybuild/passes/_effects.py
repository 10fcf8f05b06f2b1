"""Which expressions read, write or make references when they are computed; knows no pass.

A call has an effect where what it calls may have one. In a module that uses references, a function that is not known
where it is called (a parameter, a result, a field) is taken to have one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.ir.adt import Constructor, Match
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, RefCreate, RefRead, RefWrite, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.visitor import post_order


@dataclass
class Effects:
    """Ids of nodes of one function that have effects."""

    own: set[int] = field(default_factory=set)
    """Nodes that have an effect beyond those of the operands computed before them."""
    any: set[int] = field(default_factory=set)
    """Nodes of which the computation has an effect somewhere."""


def find_effects(mod: IRModule) -> dict[str, Effects]:
    """The effects of every function of a module, by name. A module without references has none."""
    orders = {name: list(post_order(function)) for name, function in mod.functions.items()}
    if not any(isinstance(node, (RefCreate, RefRead, RefWrite)) for order in orders.values() for node in order):
        return {name: Effects() for name in mod}
    return _Fixpoint(mod, orders).run()


class _Fixpoint:
    """Functions are looked at again when one that they name turns out to have an effect."""

    def __init__(self, mod: IRModule, orders: dict[str, list[Expr]]) -> None:
        self.mod = mod
        self.orders = orders
        self.impure: set[str] = set()
        self.found: dict[str, Effects] = {}

    def run(self) -> dict[str, Effects]:
        callers = self._callers()
        waiting = list(self.orders)
        while waiting:
            name = waiting.pop()
            self.found[name] = _function_effects(self.orders[name], self.impure)
            if name not in self.impure and id(self.mod[name].body) in self.found[name].any:
                self.impure.add(name)
                waiting += callers.get(name, ())
        return self.found

    def _callers(self) -> dict[str, list[str]]:
        callers: dict[str, list[str]] = {}
        for name, order in self.orders.items():
            for callee in dict.fromkeys(node.name_hint for node in order if isinstance(node, GlobalVar)):
                callers.setdefault(callee, []).append(name)
        return callers


def _function_effects(order: Sequence[Expr], impure: set[str]) -> Effects:
    values = {id(node.var): node.value for node in order if isinstance(node, Let)}
    latent: dict[int, bool] = {}
    while True:
        known = dict(latent)
        effects = Effects()
        for node in order:
            _note(node, effects, latent, values, impure)
        # a recursive function is called before its body is known
        if latent == known:
            return effects


def _note(node: Expr, effects: Effects, latent: dict[int, bool], values: dict[int, Expr], impure: set[str]) -> None:
    if isinstance(node, Function):
        latent[id(node)] = latent.get(id(node), False) or id(node.body) in effects.any
        return
    if _has_own(node, effects, latent, values, impure):
        effects.own.add(id(node))
        effects.any.add(id(node))
    elif any(id(child) in effects.any for child in node.children()):
        effects.any.add(id(node))


def _has_own(node: Expr, effects: Effects, latent: dict[int, bool], values: dict[int, Expr], impure: set[str]) -> bool:
    if isinstance(node, (RefCreate, RefRead, RefWrite)):
        return True
    if isinstance(node, (If, Match)):
        return any(id(branch) in effects.any for branch in node.children()[1:])
    if not isinstance(node, Call) or isinstance(node.op, Op):
        return False
    callee: Expr = node.op
    while isinstance(callee, Var) and id(callee) in values:
        callee = values[id(callee)]
    if isinstance(callee, Function):
        return latent.get(id(callee), False)
    if isinstance(callee, GlobalVar):
        return callee.name_hint in impure
    return not isinstance(callee, Constructor)
