"""EliminateCommonSubexpr: equal expressions over equal operands become one node.

Operands are equal when they are one node, one variable, structure constants of one value, or variables of lets bound to
equal expressions; weights are compared by identity, since their values are not part of the program. What has an effect,
or contains what has one, is equal to nothing else.

Nodes are merged within one function, and only where that computes nothing in vain: where the block of one encloses
that of the other, or where the two stand in the two branches of one `If`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import field
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import Scope, is_atom
from relaybuild.ir.structural import attr_value, constant_digest
from relaybuild.ir.types import Type
from relaybuild.passes._blocks import Blocks, find_blocks, recursive_lets
from relaybuild.passes._effects import find_effects
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class EliminateCommonSubexpr(ModulePass):
    """`fskip` says of which expressions all copies are kept."""

    info: ClassVar[PassInfo] = PassInfo("EliminateCommonSubexpr", 3)
    fskip: Callable[[Expr], bool] | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        effects = find_effects(mod)
        done = {
            name: self._merged(function, effects[name].any, ctx)
            for name, function in mod.functions.items()
            if not is_left_alone(function)
        }
        return mod.with_functions({**mod.functions, **done})

    def _merged(self, function: Function, impure: Set[int], ctx: PassContext) -> Function:
        blocks = find_blocks(function)
        numbers = _Numbers(blocks, impure, self.fskip)
        classes = _classes(blocks, numbers)
        # a value that others use stands for its variable as well, since nodes over either are equal
        gone = {
            key: let.value
            for key, let in numbers.bound.items()
            if id(let.value) in classes or blocks.tree.uses[id(let.value)] > 1
        }
        return _rebuilt(function, blocks.tree.order, classes, gone, ctx) if classes else function


@dataclass
class _Numbers:
    """Value numbers: equal for nodes that compute the same in one function."""

    blocks: Blocks
    impure: Set[int]
    fskip: Callable[[Expr], bool] | None
    of: dict[int, int] = field(default_factory=dict)
    members: dict[int, list[Expr]] = field(default_factory=dict)
    """By number: the nodes that may be merged, in order of evaluation."""
    bound: dict[int, Let] = field(default_factory=dict)
    """By variable: the let whose value may stand in the variable's place."""
    known: dict[object, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        tree = self.blocks.tree
        recursive = recursive_lets(tree)
        for node in tree.order:
            if isinstance(node, Let) and id(node) not in recursive and self._may_stand_for(node):
                self.bound[id(node.var)] = node
        for node in tree.order:
            self.of[id(node)] = self._number(node)

    def _may_stand_for(self, let: Let) -> bool:
        """Whether using the value in place of the variable computes it no more often."""
        tree = self.blocks.tree
        if id(let.value) in self.impure or is_atom(let.value) or id(let.var) not in tree.placed:
            return False
        return tree.placed[id(let.var)].function is tree.inner[id(let)][0].function

    def _number(self, node: Expr) -> int:
        if isinstance(node, Var):
            let = self.bound.get(id(node))
            return self._known(("var", id(node))) if let is None else self.of[id(let.value)]
        key = None if id(node) in self.impure or (self.fskip and self.fskip(node)) else self._key(node)
        if key is None:
            return self._known(("node", id(node)))
        if not is_atom(node):
            key = (id(self.blocks.tree.placed[id(node)].function), key)
        number = self._known(key)
        self.members.setdefault(number, []).append(node)
        return number

    def _known(self, key: object) -> int:
        return self.known.setdefault(key, len(self.known))

    def _key(self, node: Expr) -> object:
        """Equal for nodes of which one is enough; None where each is wanted."""
        if isinstance(node, Constant):
            return None if node.is_weight else ("constant", constant_digest(node))
        if isinstance(node, GlobalVar):
            return ("global", node.name_hint, _known_type(node))
        children = tuple(self.of[id(child)] for child in node.children())
        if isinstance(node, Tuple):
            return ("tuple", children)
        if isinstance(node, TupleGetItem):
            return ("field", node.index, children)
        if isinstance(node, Call):
            return _call_key(node, children)
        return None


def _known_type(node: Expr) -> Type | None:
    """What tells uses of one polymorphic function or constructor apart whose operands do not."""
    return node.checked_type if node.has_type else None


def _call_key(node: Call, children: Sequence[int]) -> object:
    attrs = tuple((name, repr(attr_value(value))) for name, value in node.attrs.items()) if node.attrs else ()
    if isinstance(node.op, Expr):
        return ("call", tuple(children), attrs, _known_type(node))
    return (node.op.name, tuple(sorted(children)) if node.op.commutative else tuple(children), attrs)


def _classes(blocks: Blocks, numbers: _Numbers) -> dict[int, int]:
    """By node: the class of nodes that become one; nodes that stay alone are in none."""
    found: dict[int, int] = {}
    places: _Places | None = None
    for number, members in numbers.members.items():
        if len(members) < 2:
            continue
        if is_atom(members[0]):
            found.update((id(node), number) for node in members)
            continue
        places = places or _Places(blocks)
        for group in places.groups(members):
            found.update((id(node), id(group[0])) for node in group)
    return found


class _Places:
    """Where blocks lie in each other."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.branches: dict[int, tuple[Scope, Scope, Scope]] = {}
        self.enter: dict[int, int] = {}
        self.leave: dict[int, int] = {}
        inside: dict[int, list[Scope]] = {}
        tree = blocks.tree
        for node in tree.order:
            scopes = tree.inner.get(id(node), ())
            outer = blocks.of(node) if scopes else None
            if outer is None or isinstance(node, Let):
                continue
            inside.setdefault(id(outer), []).extend(scopes)
            if isinstance(node, If):
                self.branches.update((id(scope), (outer, scopes[0], scopes[1])) for scope in scopes)
        self._number(tree.root, inside)

    def _number(self, root: Scope, inside: dict[int, list[Scope]]) -> None:
        stack: list[tuple[Scope, bool]] = [(root, False)]
        clock = 0
        while stack:
            scope, left = stack.pop()
            (self.leave if left else self.enter)[id(scope)] = clock
            clock += 1
            if not left:
                stack.append((scope, True))
                stack.extend((child, False) for child in inside.get(id(scope), ()))

    def groups(self, members: Sequence[Expr]) -> list[list[Expr]]:
        """Members that may become one node, each group in order of evaluation, with at least two members."""
        by_block: dict[int, tuple[Scope, list[Expr]]] = {}
        for node in members:
            block = self.blocks.of(node)
            if block is not None:
                by_block.setdefault(id(block), (block, []))[1].append(node)
        if len(by_block) > 1:
            by_block = self._with_enclosing(self._with_siblings(by_block))
        position = {id(node): index for index, node in enumerate(members)}
        groups = [sorted(group, key=lambda node: position[id(node)]) for _, group in by_block.values()]
        return [group for group in groups if len(group) > 1]

    def _with_siblings(self, groups: dict[int, tuple[Scope, list[Expr]]]) -> dict[int, tuple[Scope, list[Expr]]]:
        """What stands in both branches moves to the block of the `If`."""
        waiting = sorted((scope for scope, _ in groups.values()), key=lambda scope: self.enter[id(scope)])
        while waiting:
            scope = waiting.pop()
            if id(scope) not in groups or id(scope) not in self.branches:
                continue
            outer, one, other = self.branches[id(scope)]
            if id(one) in groups and id(other) in groups:
                moved = groups.pop(id(one))[1] + groups.pop(id(other))[1]
                if id(outer) in groups:
                    groups[id(outer)][1].extend(moved)
                else:
                    groups[id(outer)] = (outer, moved)
                    waiting.append(outer)
        return groups

    def _with_enclosing(self, groups: dict[int, tuple[Scope, list[Expr]]]) -> dict[int, tuple[Scope, list[Expr]]]:
        """What an enclosing block computes as well moves there."""
        found: dict[int, tuple[Scope, list[Expr]]] = {}
        outermost: Scope | None = None
        for scope, group in sorted(groups.values(), key=lambda item: self.enter[id(item[0])]):
            if outermost is not None and self.enter[id(scope)] < self.leave[id(outermost)]:
                found[id(outermost)][1].extend(group)
            else:
                outermost = scope
                found[id(scope)] = (scope, list(group))
        return found


def _rebuilt(
    function: Function, order: Sequence[Expr], classes: dict[int, int], gone: dict[int, Expr], ctx: PassContext
) -> Function:
    done: dict[int, Expr] = {}
    first: dict[int, Expr] = {}
    is_merged = False
    for node in order:
        if isinstance(node, Var):
            done[id(node)] = done[id(gone[id(node)])] if id(node) in gone else node
        elif isinstance(node, Let) and id(node.var) in gone:
            done[id(node)] = done[id(node.body)]
        else:
            rebuilt = node.with_children([done[id(child)] for child in node.children()])
            group = classes.get(id(node))
            done[id(node)] = rebuilt if group is None else allowed(ctx, rebuilt, first.setdefault(group, rebuilt))
            is_merged = is_merged or done[id(node)] is not rebuilt
    result = done[id(function)] if is_merged else function
    assert isinstance(result, Function)
    return result
