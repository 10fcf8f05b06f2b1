"""Blocks: the parts of a function that run as a whole once they are entered; knows nothing of what a pass does there.

A block is a function's body, a branch or a clause, together with what follows its lets and the lets within its
expressions. The scopes of `relaybuild.ir.scopes` are finer: each let begins one.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Function, Let
from relaybuild.ir.scopes import Scope, ScopeTree, common_scope, scope_tree

_SEALED = ("Primitive", "Composite", "Compiler")


def is_sealed(node: Expr) -> bool:
    """Whether a node is a function that has been cut out for a kernel or a backend, whose body is left as it is."""
    return isinstance(node, Function) and any(node.attrs.get(name) for name in _SEALED)


@dataclass(frozen=True)
class Blocks:
    """The blocks of one expression, each known by its outermost scope."""

    tree: ScopeTree
    first: dict[int, Scope | None]
    """By the id of a scope: the outermost scope of its block; None inside sealed functions."""

    def at(self, scope: Scope) -> Scope | None:
        """The block of a scope; None inside sealed functions."""
        return self.first[id(scope)]

    def of(self, node: Expr) -> Scope | None:
        """The block in which a node is computed; None inside sealed functions."""
        return self.first[id(self.tree.placed[id(node)])]

    def uses(self, node: Expr) -> Iterator[tuple[Expr, Scope]]:
        """`uses_in` the tree of these blocks."""
        return uses_in(self.tree, node)


def uses_in(tree: ScopeTree, node: Expr) -> Iterator[tuple[Expr, Scope]]:
    """(child, the scope in which the node needs it), child by child."""
    inner = tree.inner.get(id(node), ())
    children = node.children()
    plain = 0 if isinstance(node, Let) else len(children) - len(inner)
    own = tree.placed[id(node)]
    yield from ((child, own) for child in children[:plain])
    yield from zip(children[plain:], inner)


def find_blocks(root: Expr) -> Blocks:
    """The blocks of an expression."""
    tree = scope_tree(root)
    first: dict[int, Scope | None] = {id(tree.root): tree.root}
    for node in reversed(tree.order):
        inner = tree.inner.get(id(node), ())
        own = first[id(tree.placed[id(node)])] if inner else None
        for scope in inner:
            begins = not isinstance(node, Let)
            first[id(scope)] = own if own is None or not begins else None if is_sealed(node) else scope
    return Blocks(tree, first)


def recursive_lets(tree: ScopeTree) -> set[int]:
    """Ids of the lets whose values use their own variables."""
    found: set[int] = set()
    for node in tree.order:
        if isinstance(node, Let) and id(node.var) in tree.placed:
            body = tree.inner[id(node)][1]
            # uses in the body alone are placed within the body
            if common_scope(tree.placed[id(node.var)], body) is not body:
                found.add(id(node))
    return found
