"""What must hold of every module between passes; knows nothing of the passes that should have kept it.

Levels: "relay" asks for well-formed programs (variables bound once and used in scope; globals, types and constructors
defined; fields and patterns that fit), "typed" also for the type of every node.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from relaybuild.errors import InternalError
from relaybuild.ir.adt import Constructor, Match, PatternConstructor, TypeData, pattern_vars, subpatterns
from relaybuild.ir.expr import Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, scope_tree
from relaybuild.ir.types import Type, TypeCall, type_children

Level: TypeAlias = Literal["relay", "typed"]


def verify_module(mod: IRModule, level: Level = "relay") -> None:
    """Raise InternalError listing everything that does not hold."""
    faults = [
        f"type '{name}': {fault}" for name, data in mod.type_definitions.items() for fault in _data_faults(data, mod)
    ]
    faults += [
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
                scope = common_scope(scope, binders[id(var)])
            binders[id(var)] = scope
    for node in tree.order:
        yield from _node_faults(node, tree, binders, mod, level)


def _data_faults(data: TypeData, mod: IRModule) -> Iterator[str]:
    for constructor in data.constructors:
        for kind in constructor.inputs:
            yield from _type_faults(kind, mod)


def _bindings(node: Expr, tree: ScopeTree) -> Iterator[tuple[Var, Scope]]:
    if isinstance(node, Function):
        yield from ((param, tree.inner[id(node)][0]) for param in node.params)
    elif isinstance(node, Let):
        block, body = tree.inner[id(node)]
        yield node.var, block if isinstance(node.value, Function) else body
    elif isinstance(node, Match):
        for clause, scope in zip(node.clauses, tree.inner[id(node)]):
            yield from ((var, scope) for var in pattern_vars(clause.pattern))


def _node_faults(node: Expr, tree: ScopeTree, binders: dict[int, Scope], mod: IRModule, level: Level) -> Iterator[str]:
    if isinstance(node, Var):
        scope = binders.get(id(node))
        if scope is None:
            yield f"'%{node.name_hint}' is not bound"
        elif common_scope(scope, tree.placed[id(node)]) is not scope:
            yield f"'%{node.name_hint}' is used out of its scope"
    elif isinstance(node, GlobalVar):
        if node not in mod:
            yield f"'@{node.name_hint}' is not defined"
    elif isinstance(node, Constructor):
        yield from _constructor_faults(node, mod)
    elif isinstance(node, Match):
        yield from _pattern_faults(node, mod)
    elif isinstance(node, TupleGetItem):
        yield from _field_faults(node)
    if level == "typed" and not node.has_type:
        yield f"a {type(node).__name__} has no type"
    for kind in _written_types(node):
        yield from _type_faults(kind, mod)


def _constructor_faults(constructor: Constructor, mod: IRModule) -> Iterator[str]:
    data = mod.type_definitions.get(constructor.belongs_to.name)
    found = data.find_constructor(constructor.name) if data is not None else None
    if found is None:
        yield f"constructor '{constructor.name}' of type '{constructor.belongs_to}' is not defined"
    elif found.inputs != constructor.inputs:
        yield f"constructor '{constructor.name}' has other fields than its definition"


def _pattern_faults(match: Match, mod: IRModule) -> Iterator[str]:
    for clause in match.clauses:
        for pattern in subpatterns(clause.pattern):
            if isinstance(pattern, PatternConstructor):
                constructor = pattern.constructor
                yield from _constructor_faults(constructor, mod)
                if len(pattern.patterns) != len(constructor.inputs):
                    yield (
                        f"the pattern '{constructor.name}' has {len(pattern.patterns)} fields, "
                        f"expected {len(constructor.inputs)}"
                    )


def _field_faults(node: TupleGetItem) -> Iterator[str]:
    count = len(node.tuple_value.fields) if isinstance(node.tuple_value, Tuple) else None
    if node.index < 0 or (count is not None and node.index >= count):
        yield f"field {node.index} of a tuple of {'unknown length' if count is None else f'{count} fields'}"


def _written_types(node: Expr) -> Iterator[Type]:
    """The types written at a node: annotations of its binders, a function's result."""
    for var in node.binders():
        if var.type_annotation is not None:
            yield var.type_annotation
    if isinstance(node, Function) and node.ret_type is not None:
        yield node.ret_type


def _type_faults(kind: Type, mod: IRModule) -> Iterator[str]:
    stack = [kind]
    while stack:
        top = stack.pop()
        if isinstance(top, TypeCall):
            data = mod.type_definitions.get(top.head.name)
            if data is None:
                yield f"type '{top.head}' is not defined"
            elif len(data.type_vars) != len(top.args):
                yield f"type {top} has {len(top.args)} arguments, expected {len(data.type_vars)}"
        stack.extend(type_children(top))
