"""DeadCodeElimination: drops lets whose variable is never needed, and functions that no entry reaches.

What reads, writes or makes a reference, and a call of what may do so, is needed. Expressions of a dataflow graph that
nothing uses are in no program, and need no pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import ClassVar, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Function, Let, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import scope_tree
from relaybuild.ir.visitor import post_order
from relaybuild.passes._blocks import recursive_lets
from relaybuild.passes._effects import find_effects
from relaybuild.passes._inlining import replace_bound
from relaybuild.passes._rewrite import allowed, rewrite_under
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone
from relaybuild.passes.remove_unused_functions import without_unused

_Transform: TypeAlias = Callable[[Function, Sequence[Let], Set[int], PassContext], Function]


@dataclass(frozen=True, repr=False)
class DeadCodeElimination(ModulePass):
    """`entry_functions` are those that can be called from outside; a module that has none of them keeps them all.

    With `inline_once`, a let whose variable is used once, within the same function, and whose value has no effect,
    is replaced by the value. With `ignore_impurity`, effects do not keep a let, and do not keep one from being
    replaced: the caller answers for it that none of them matters.
    """

    info: ClassVar[PassInfo] = PassInfo("DeadCodeElimination", 1, ("InferType",))
    inline_once: bool = False
    ignore_impurity: bool = False
    entry_functions: tuple[str, ...] = ("main",)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = self._each(self._without_unused(mod, ctx), _without_dead_lets, ctx)
        # what only dead lets called
        mod = self._without_unused(mod, ctx)
        return self._each(mod, _inlined_once, ctx) if self.inline_once else mod

    def _without_unused(self, mod: IRModule, ctx: PassContext) -> IRModule:
        fewer = without_unused(mod, self.entry_functions)
        return fewer if fewer is not mod and ctx.allow_rewrite("functions that nothing reaches go") else mod

    def _each(self, mod: IRModule, transform: _Transform, ctx: PassContext) -> IRModule:
        lets = {name: _lets(function) for name, function in mod.functions.items() if not is_left_alone(function)}
        if not any(lets.values()):
            return mod
        effects = {} if self.ignore_impurity else find_effects(mod)
        impure = {name: found.any for name, found in effects.items()}
        done = {
            name: transform(mod[name], found, impure.get(name, frozenset()), ctx)
            for name, found in lets.items()
            if found
        }
        return mod.with_functions({**mod.functions, **done})


def _lets(function: Function) -> list[Let]:
    return [node for node in post_order(function) if isinstance(node, Let)]


def _without_dead_lets(function: Function, lets: Sequence[Let], impure: Set[int], ctx: PassContext) -> Function:
    dead = _dead_variables(function, lets, impure)
    result = rewrite_under(
        ctx, function, lambda node: node.body if isinstance(node, Let) and id(node.var) in dead else node
    )
    assert isinstance(result, Function)
    return result


def _dead_variables(root: Expr, lets: Sequence[Let], impure: Set[int]) -> set[int]:
    """Ids of the variables of lets on which neither the result nor an effect depends.

    A let's value counts once its variable is reached, or at once where it has an effect; then its variable stays.
    Those of lets within a value that does not count are none of them, since they go with it.
    """
    values = {id(let.var): let.value for let in lets}
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
        elif isinstance(node, Let):
            stack.append(node.body)
            if id(node.value) in impure:
                needed.add(id(node.var))
                stack.append(node.value)
        else:
            stack.extend(node.children())
    return {id(let.var) for let in lets if id(let) in seen and id(let.var) not in needed}


def _inlined_once(function: Function, lets: Sequence[Let], impure: Set[int], ctx: PassContext) -> Function:
    tree = scope_tree(function)
    recursive = recursive_lets(tree)
    replaced: dict[int, Expr] = {}
    for let in lets:
        used_once = tree.uses.get(id(let.var)) == 1 and id(let) not in recursive
        same_function = used_once and tree.placed[id(let.var)].function is tree.inner[id(let)][0].function
        if same_function and id(let.value) not in impure and allowed(ctx, let, let.body) is not let:
            replaced[id(let.var)] = let.value
    return replace_bound(function, tree.order, replaced)
