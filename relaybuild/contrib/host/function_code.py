"""Where a function's nodes are computed, what functions in it capture, which are called once; knows no target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.ir.adt import Constructor
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, Let, Var
from relaybuild.ir.scopes import Scope, ScopeTree, scope_tree


class FunctionCode:
    """A global function's nodes by the scope that computes them, and what the functions in it capture."""

    def __init__(self, function: Function) -> None:
        self.tree: ScopeTree = scope_tree(function)
        self.by_scope: dict[int, list[Expr]] = {}
        for node in self.tree.order:
            if not isinstance(node, (Var, Constant, GlobalVar, Constructor)):
                self.by_scope.setdefault(id(self.tree.placed[id(node)]), []).append(node)
        self.captures: dict[int, dict[int, Expr]] = {}
        self._find_captures()

    def nodes_of(self, scope: Scope) -> Sequence[Expr]:
        """What is computed in a scope, children before parents."""
        return self.by_scope.get(id(scope), ())

    def body_of(self, function: Function) -> Scope:
        return self.tree.inner[id(function)][-1]

    def captured(self, function: Function) -> Sequence[Expr]:
        """Nodes and variables that a function uses and does not compute, in order of use."""
        return tuple(self.captures.get(id(function), {}).values())

    def _find_captures(self) -> None:
        homes = {id(node): self.tree.placed[id(node)].function for node in self.tree.order if not isinstance(node, Var)}
        owners: dict[int, Function] = {}
        for node in self.tree.order:
            if isinstance(node, Function):
                body = self.body_of(node)
                owners[id(body)] = node
                homes.update((id(param), body) for param in node.params)
            elif isinstance(node, Let):
                homes[id(node.var)] = self.tree.inner[id(node)][-1].function
        for node in self.tree.order:
            scope = self.body_of(node) if isinstance(node, Function) else homes.get(id(node))
            for child in node.children():
                home = homes.get(id(child))
                if not isinstance(child, (Constant, GlobalVar)) and home is not None and scope is not None:
                    self._capture(child, scope, home, owners)

    def _capture(self, child: Expr, scope: Scope, home: Scope, owners: Mapping[int, Function]) -> None:
        while scope is not home and id(scope) in owners:
            self.captures.setdefault(id(owners[id(scope)]), {}).setdefault(id(child), child)
            if scope.parent is None:
                return
            scope = scope.parent.function


def called_once(codes: Mapping[str, FunctionCode], entry: str | None) -> set[int]:
    """The ids of functions whose only use is that one call calls them; of globals, the names' functions."""
    mentions: dict[str, int] = {}
    calls: list[tuple[FunctionCode, Call]] = []
    for code in codes.values():
        for node in code.tree.order:
            for child in node.children():
                if isinstance(child, GlobalVar):
                    mentions[child.name_hint] = mentions.get(child.name_hint, 0) + 1
            if isinstance(node, Call) and isinstance(node.op, Expr):
                calls.append((code, node))
    bound = {
        id(node.var): node.value
        for code in codes.values()
        for node in code.tree.order
        if isinstance(node, Let) and isinstance(node.value, Function)
    }
    once: set[int] = set()
    for code, call in calls:
        callee = call.op
        if isinstance(callee, GlobalVar):
            if mentions[callee.name_hint] == 1 and callee.name_hint != entry and callee.name_hint in codes:
                once.add(id(codes[callee.name_hint].tree.root.root))
        elif isinstance(callee, Function) and code.tree.uses[id(callee)] == 1:
            once.add(id(callee))
        elif isinstance(callee, Var) and id(callee) in bound:
            value = bound[id(callee)]
            if code.tree.uses[id(callee)] == code.tree.uses[id(value)] == 1:
                once.add(id(value))
    return once
