"""ToGraphNormalForm: variables of lets are replaced by what they are bound to, as far as the program allows.

A let stays where its value reads, writes or makes a reference, where it is a recursive function, and where a function
within its body needs a value that would then be computed at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaybuild.ir.expr import Expr, Function, Let, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import ScopeTree, is_atom, scope_tree
from relaybuild.passes._blocks import recursive_lets
from relaybuild.passes._effects import Effects, find_effects
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class ToGraphNormalForm(ModulePass):
    """Gives a dataflow graph, the inverse of ToANormalForm: one node per variable, shared by its uses."""

    info: ClassVar[PassInfo] = PassInfo("ToGraphNormalForm", 1)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        effects = find_effects(mod)
        return mod.with_functions(
            {
                name: function if is_left_alone(function) else _as_graph(function, effects[name])
                for name, function in mod.functions.items()
            }
        )


def _as_graph(function: Function, effects: Effects) -> Function:
    tree = scope_tree(function)
    recursive = recursive_lets(tree)
    lets = {id(node.var): node for node in tree.order if isinstance(node, Let)}
    done: dict[int, Expr] = {}
    for node in tree.order:
        if isinstance(node, Var):
            let = lets.get(id(node))
            gone = let is not None and _may_go(let, tree, effects, recursive)
            done[id(node)] = done[id(let.value)] if let is not None and gone else node
        elif isinstance(node, Let) and _may_go(node, tree, effects, recursive):
            done[id(node)] = done[id(node.body)]
        else:
            done[id(node)] = node.with_children([done[id(child)] for child in node.children()])
    result = done[id(function)]
    assert isinstance(result, Function)
    return result


def _may_go(let: Let, tree: ScopeTree, effects: Effects, recursive: set[int]) -> bool:
    if id(let.value) in effects.any or id(let) in recursive:
        return False
    if is_atom(let.value) or isinstance(let.value, Function) or id(let.var) not in tree.placed:
        return True
    return tree.placed[id(let.var)].function is tree.inner[id(let)][0].function
