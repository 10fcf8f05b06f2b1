"""Inline: calls of functions marked `Inline=1` are replaced by what they call.

Functions that reach themselves are not inlined. A function that another compiler is to see, or that has been cut out
for a kernel, stays whole: it comes to stand where its name stood. A function that was named before and is no longer
is dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Let, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, is_atom, scope_tree
from relaybuild.ir.visitor import post_order
from relaybuild.passes._blocks import is_sealed, recursive_lets
from relaybuild.passes._call_graph import CallGraph, call_graph
from relaybuild.passes._effects import find_effects
from relaybuild.passes._inlining import Introduced, applied, fresh_copy, without_lets
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class Inline(ModulePass):
    """With `once`, also what is called in one place and named nowhere else is inlined: functions of the module other
    than `entry_functions`, closures, and functions that are applied where they are written.
    """

    info: ClassVar[PassInfo] = PassInfo("Inline", 1, ("InferType",))
    once: bool = False
    entry_functions: tuple[str, ...] = ("main",)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        graph = call_graph(mod)
        names = {name for name in mod if name not in graph.recursive and self._is_wanted(name, mod[name], graph)}
        moved = {name for name in names - set(self.entry_functions) if graph.mentions.get(name) == 1}
        result = _with_inlined(mod, names, moved, graph)
        result = _without_unnamed(result, graph, names - set(self.entry_functions))
        result = _with_reduced(result) if self.once else result
        return infer_types(result) if result is not mod else mod

    def _is_wanted(self, name: str, function: Function, graph: CallGraph) -> bool:
        if function.attrs.get("Inline"):
            return True
        named_once = graph.mentions.get(name) == 1 and graph.calls.get(name) == 1
        whole = is_sealed(function) or is_left_alone(function)
        return self.once and named_once and name not in self.entry_functions and not whole


def _with_inlined(mod: IRModule, names: Set[str], moved: Set[str], graph: CallGraph) -> IRModule:
    """The module with calls of `names` inlined; those of `moved`, which stand nowhere else then, need no copies.

    A moved function is no longer in the module unless one that is left alone names it.
    """
    done = dict(mod.functions)
    introduced = Introduced()
    for name in graph.order:
        if not is_left_alone(mod[name]) and not names.isdisjoint(graph.callees[name]):
            callees = {callee: done[callee] for callee in graph.callees[name] if callee in names}
            done[name] = _inlined(mod[name], callees, moved, introduced)
    untouched = {callee for name in mod if is_left_alone(mod[name]) for callee in graph.callees[name]}
    kept = {name: function for name, function in done.items() if name not in moved or name in untouched}
    return _cleaned(mod.with_functions(kept), introduced)


def _inlined(function: Function, callees: Mapping[str, Function], moved: Set[str], introduced: Introduced) -> Function:
    """The function with calls of `callees` replaced."""
    done: dict[int, Expr] = {}
    for node in post_order(function):
        children = [
            fresh_copy(callees[child.name_hint], introduced)
            if isinstance(child, GlobalVar) and child.name_hint in callees and child is not _callee(node)
            else done[id(child)]
            for child in node.children()
        ]
        done[id(node)] = _replaced(node.with_children(children), callees, moved, introduced)
    result = done[id(function)]
    assert isinstance(result, Function)
    return result


def _callee(node: Expr) -> Expr | None:
    return node.op if isinstance(node, Call) and isinstance(node.op, Expr) else None


def _replaced(node: Expr, callees: Mapping[str, Function], moved: Set[str], introduced: Introduced) -> Expr:
    callee = _callee(node)
    if not isinstance(node, Call) or not isinstance(callee, GlobalVar) or callee.name_hint not in callees:
        return node
    function = callees[callee.name_hint]
    if is_sealed(function) or is_left_alone(function):
        return Call(fresh_copy(function, introduced), node.args, node.attrs, node.span)
    return applied(function, node.args, introduced, copy=callee.name_hint not in moved)


def _cleaned(mod: IRModule, introduced: Introduced) -> IRModule:
    if not introduced:
        return mod
    effects = find_effects(mod)
    return mod.with_functions(
        {
            name: function
            if is_left_alone(function)
            else without_lets(function, effects[name], lambda let: let.var in introduced)
            for name, function in mod.functions.items()
        }
    )


def _without_unnamed(mod: IRModule, before: CallGraph, candidates: Set[str]) -> IRModule:
    named = {name for name in candidates if before.mentions.get(name)}
    if not named:
        return mod
    after = call_graph(mod)
    return mod.with_functions({name: mod[name] for name in mod if name not in named or after.mentions.get(name)})


def _with_reduced(mod: IRModule) -> IRModule:
    """The module with closures inlined that are called once, until there is none."""
    while True:
        introduced = Introduced()
        reduced = {
            name: function if is_left_alone(function) else _reduced(function, introduced)
            for name, function in mod.functions.items()
        }
        result = mod.with_functions(reduced)
        if result is mod:
            return mod
        mod = _cleaned(result, introduced)


def _reduced(function: Function, introduced: Introduced) -> Function:
    """The function with every closure inlined that is called once.

    A closure's body is used as it is, since it stands nowhere else afterwards.
    """
    tree = scope_tree(function)
    closures = _called_once(tree)
    if not closures:
        return function
    done: dict[int, Expr] = {}
    for node in tree.order:
        callee = _callee(node)
        if isinstance(node, Let) and id(node.var) in closures:
            done[id(node)] = done[id(node.body)]
        elif isinstance(node, Call) and callee is not None and id(callee) in closures:
            done[id(node)] = _applied_closure(node, closures[id(callee)], tree, done, introduced)
        else:
            done[id(node)] = node.with_children([done[id(child)] for child in node.children()])
    result = done[id(function)]
    assert isinstance(result, Function)
    return result


def _called_once(tree: ScopeTree) -> dict[int, Function]:
    """Closures by the id of what is called: the variable that they are bound to, or they themselves."""
    recursive = recursive_lets(tree)
    lets = {
        id(node.var): node.value
        for node in tree.order
        if isinstance(node, Let) and id(node) not in recursive and tree.uses[id(node.value)] == 1
    }
    found: dict[int, Function] = {}
    for node in tree.order:
        callee = _callee(node)
        if callee is None or tree.uses[id(callee)] != 1:
            continue
        value = lets.get(id(callee)) if isinstance(callee, Var) else callee
        if isinstance(value, Function) and not (value.type_params or is_sealed(value) or is_left_alone(value)):
            found[id(callee)] = value
    return found


def _applied_closure(
    call: Call, closure: Function, tree: ScopeTree, done: Mapping[int, Expr], introduced: Introduced
) -> Expr:
    rebuilt = done[id(closure)]
    assert isinstance(rebuilt, Function)
    args = [done[id(arg)] for arg in call.args]

    def from_outside() -> dict[int, Expr]:
        body = tree.inner[id(closure)][0]
        outer = [node for node in post_order(closure.body) if not _is_within(tree.placed[id(node)], body)]
        return {id(done[id(node)]): done[id(node)] for node in outer if not is_atom(node)}

    return applied(rebuilt, args, introduced, from_outside, copy=False)


def _is_within(scope: Scope, outer: Scope) -> bool:
    return common_scope(scope, outer) is outer
