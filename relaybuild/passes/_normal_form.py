"""Binds chosen nodes of a function to variables of lets at the begin of their blocks; does not know which to choose.

What is bound, and the lets there were, stand in the order in which evaluation by demand comes upon them, so effects
keep their order as long as every node that has one is bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Function, Let, Var
from relaybuild.ir.scopes import Scope, is_atom
from relaybuild.passes._blocks import Blocks, find_blocks, is_sealed


@dataclass(frozen=True)
class _Binding:
    """`let var = value`; `let` is the one that did so before, if there was one."""

    var: Var
    value: Expr
    let: Let | None

    def before(self, body: Expr) -> Let:
        if self.let is None:
            bound = Let(self.var, self.value, body, self.value.span)
        else:
            bound = self.let.with_children((self.value, body))
        return bound


def bind_nodes(
    function: Function, choose: Callable[[Blocks], Callable[[Expr], bool]], drop_copies: bool = False
) -> Function:
    """The function with lets for the nodes that `choose(blocks)` says, each in the block in which it is computed.

    Variables, constants, globals, constructors and sealed functions are never bound. Lets within expressions move to
    the begin of their block. With `drop_copies`, a let of what needs none goes, and its variable with it. A sealed
    function is returned as it is.
    """
    if is_sealed(function):
        return function
    blocks = find_blocks(function)
    result = _Binder(blocks, choose(blocks), drop_copies).run(function)
    assert isinstance(result, Function)
    return result


@dataclass
class _Binder:
    blocks: Blocks
    chosen: Callable[[Expr], bool]
    drop_copies: bool
    done: dict[int, Expr] = field(default_factory=dict)
    bindings: dict[int, list[_Binding]] = field(default_factory=dict)
    own_let: dict[int, Let] = field(default_factory=dict)

    def run(self, root: Function) -> Expr:
        for node in self.blocks.tree.order:
            if isinstance(node, Let):
                value = result_of(node.value)
                if self._block_of_value(node) is self.blocks.of(value):
                    self.own_let.setdefault(id(value), node)
        seen: set[int] = set()
        stack: list[tuple[Expr, Callable[[Expr], None] | None]] = [(root, None)]
        while stack:
            node, action = stack.pop()
            if action is not None:
                action(node)
            elif id(node) not in seen:
                seen.add(id(node))
                stack.extend(reversed(self._steps(node)))
        return self.done[id(root)]

    def _steps(self, node: Expr) -> Sequence[tuple[Expr, Callable[[Expr], None] | None]]:
        if is_atom(node) or (is_sealed(node) and node is not self.blocks.tree.root.root):
            return [(node, self._keep)]
        if isinstance(node, Let):
            return [(node.value, None), (node, self._bind_let), (node.body, None), (node, self._skip_let)]
        return [*((child, None) for child in node.children()), (node, self._rebuild)]

    def _keep(self, node: Expr) -> None:
        self.done.setdefault(id(node), node)

    def _skip_let(self, node: Expr) -> None:
        assert isinstance(node, Let)
        self.done[id(node)] = self.done[id(node.body)]

    def _bind_let(self, node: Expr) -> None:
        assert isinstance(node, Let)
        value = self.done[id(node.value)]
        if value is node.var:
            return
        if self.drop_copies and (is_atom(value) or is_sealed(value)):
            self.done[id(node.var)] = value
        else:
            self._append(self._block_of_value(node), _Binding(node.var, value, node))

    def _rebuild(self, node: Expr) -> None:
        inner = self.blocks.tree.inner.get(id(node), ())
        children = [self.done[id(child)] for child in node.children()]
        plain = len(children) - len(inner)
        bodies = [self._closed(scope, body) for scope, body in zip(inner, children[plain:])]
        rebuilt = node.with_children([*children[:plain], *bodies])
        self.done[id(node)] = self._bound(node, rebuilt) if self.chosen(node) else rebuilt

    def _bound(self, node: Expr, rebuilt: Expr) -> Var:
        let = self.own_let.get(id(node))
        var = let.var if let is not None else Var("x", span=node.span)
        if not var.has_type and rebuilt.has_type:
            var.set_checked_type(rebuilt.checked_type)
        self._append(self.blocks.of(node), _Binding(var, rebuilt, let))
        return var

    def _append(self, block: Scope | None, binding: _Binding) -> None:
        self.bindings.setdefault(id(block), []).append(binding)

    def _closed(self, scope: Scope, body: Expr) -> Expr:
        """What stands in a block: its bindings, and what it comes to."""
        for binding in reversed(self.bindings.pop(id(scope), ())):
            body = binding.before(body)
        return body

    def _block_of_value(self, let: Let) -> Scope | None:
        return self.blocks.at(self.blocks.tree.inner[id(let)][0])


def result_of(value: Expr) -> Expr:
    """What a value comes to behind its lets."""
    while isinstance(value, Let):
        value = value.body
    return value
