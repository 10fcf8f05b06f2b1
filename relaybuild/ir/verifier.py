"""What must hold of every module between passes; knows nothing of the passes that should have kept it.

Levels: "relay" asks for well-formed programs (variables bound once and used in scope, globals defined), "typed" also
for the type of every node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from relaybuild.errors import InternalError
from relaybuild.ir.expr import Expr, Function, GlobalVar, Let, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, scope_tree

Level: TypeAlias = Literal["relay", "typed"]


def verify_module(mod: IRModule, level: Level = "relay") -> None:
    """Raise InternalError listing everything that does not hold."""
    faults = [
        f"'@{name}': {fault}" for name, function in mod.functions.items() for fault in _faults(function, mod, level)
    ]
    if faults:
        raise InternalError("the module is malformed:\n" + "\n".join(f"  {fault}" for fault in faults))


def _faults(function: Function, mod: IRModule, level: Level) -> Iterator[str]:
    tree = scope_tree(function)
    binders: dict[int, Scope] = {}
    for node in tree.order:
        for var, scope in _bindings(node, tree):
            if id(var) in binders:
                yield f"'%{var.name_hint}' is bound twice"
            binders[id(var)] = scope
    for node in tree.order:
        yield from _node_faults(node, tree, binders, mod, level)


def _bindings(node: Expr, tree: ScopeTree) -> Iterator[tuple[Var, Scope]]:
    if isinstance(node, Function):
        yield from ((param, tree.inner[id(node)][0]) for param in node.params)
    elif isinstance(node, Let):
        block, body = tree.inner[id(node)]
        yield node.var, block if isinstance(node.value, Function) else body


def _node_faults(node: Expr, tree: ScopeTree, binders: dict[int, Scope], mod: IRModule, level: Level) -> Iterator[str]:
    if isinstance(node, Var):
        scope = binders.get(id(node))
        if scope is None:
            yield f"'%{node.name_hint}' is not bound"
        elif common_scope(scope, tree.placed[id(node)]) is not scope:
            yield f"'%{node.name_hint}' is used out of its scope"
    if isinstance(node, GlobalVar) and node not in mod:
        yield f"'@{node.name_hint}' is not defined"
    if level == "typed" and not node.has_type:
        yield f"a {type(node).__name__} has no type"
