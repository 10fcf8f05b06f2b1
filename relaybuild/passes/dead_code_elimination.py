"""DeadCodeElimination: drops lets whose variable is never needed, and functions that no entry reaches.

Expressions of a dataflow graph that nothing uses are in no program, and need no pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaybuild.ir.expr import Expr, Function, Let, Var
from relaybuild.ir.infer import calls_of
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class DeadCodeElimination(ModulePass):
    """`entry_functions` are those that can be called from outside; a module that has none of them keeps them all."""

    info: ClassVar[PassInfo] = PassInfo("DeadCodeElimination", 1)
    entry_functions: tuple[str, ...] = ("main",)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        reached = _reachable(mod, [name for name in self.entry_functions if name in mod] or list(mod))
        return mod.with_functions({name: _without_dead_lets(mod[name], ctx) for name in mod if name in reached})


def _reachable(mod: IRModule, entries: list[str]) -> set[str]:
    reached = set(entries)
    stack = list(entries)
    while stack:
        for callee in calls_of(mod[stack.pop()]):
            if callee in mod and callee not in reached:
                reached.add(callee)
                stack.append(callee)
    return reached


def _without_dead_lets(function: Function, ctx: PassContext) -> Function:
    if is_left_alone(function):
        return function
    lets = [node for node in post_order(function) if isinstance(node, Let)]
    if not lets:
        return function
    needed = _needed_variables(function, {id(node.var): node.value for node in lets})
    result = rewrite_under(
        ctx, function, lambda node: node.body if isinstance(node, Let) and id(node.var) not in needed else node
    )
    assert isinstance(result, Function)
    return result


def _needed_variables(root: Expr, values: dict[int, Expr]) -> set[int]:
    """Ids of the variables on which the result depends: a let's value counts once its variable is reached."""
    needed: set[int] = set()
    seen: set[int] = set()
    stack: list[Expr] = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            needed.add(id(node))
            stack.extend([values[id(node)]] if id(node) in values else [])
        else:
            stack.extend([node.body] if isinstance(node, Let) else node.children())
    return needed
