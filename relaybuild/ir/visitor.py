"""Walkers over expressions, none of which recurses; knows nothing of what is done at a node."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import methodcaller

from relaybuild.ir.expr import Expr, Var

_CHILDREN: Callable[[Expr], Sequence[Expr]] = methodcaller("children")


def post_order(*roots: Expr) -> Iterator[Expr]:
    """Every reachable node once, children before parents, in evaluation order; binders are not visited."""
    return post_order_over(roots, _CHILDREN)


def post_order_over(roots: Sequence[Expr], inputs: Callable[[Expr], Sequence[Expr]]) -> Iterator[Expr]:
    """Every node that `inputs` lead to from the roots, once, a node's inputs before it, in their order."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        before = inputs(node)
        if not before:
            yield node
            continue
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(before) if id(child) not in seen)


def rewrite(root: Expr, rule: Callable[[Expr], Expr], memo: dict[int, Expr] | None = None) -> Expr:
    """Rebuild `root` bottom-up: each node is given its new children, then handed to `rule`.

    Sharing is kept, and a node over which nothing changed stays the same object. `memo`, by id of the old node, may be
    handed in to rewrite several roots consistently; the caller keeps the old nodes alive meanwhile.
    """
    done = {} if memo is None else memo
    for node in post_order(root):
        if id(node) not in done:
            children = node.children()
            rebuilt = node.with_children([done[id(child)] for child in children]) if children else node
            done[id(node)] = rule(rebuilt)
    return done[id(root)]


def substitute(root: Expr, replacements: dict[Expr, Expr]) -> Expr:
    """Replace nodes (variables, as a rule) by identity."""
    return rewrite(root, lambda node: node, {id(old): new for old, new in replacements.items()})


def free_vars(root: Expr) -> list[Var]:
    """Variables used in `root` that nothing in it binds, in order of first use."""
    bound: set[int] = set()
    used: list[Var] = []
    for node in post_order(root):
        if isinstance(node, Var):
            used.append(node)
        else:
            bound.update(id(var) for var in node.binders())
    return [node for node in used if id(node) not in bound]


def use_counts(*roots: Expr) -> dict[int, int]:
    """How many edges lead to each node, by id; each root counts as one use."""
    counts: dict[int, int] = {}
    for root in roots:
        counts[id(root)] = counts.get(id(root), 0) + 1
    for node in post_order(*roots):
        for child in node.children():
            counts[id(child)] = counts.get(id(child), 0) + 1
    return counts


def inline_fields(arguments: Sequence[Expr]) -> list[Expr]:
    """Arguments with tuples replaced by their fields, one level deep."""
    from relaybuild.ir.expr import Tuple

    flat: list[Expr] = []
    for argument in arguments:
        flat.extend(argument.fields if isinstance(argument, Tuple) else (argument,))
    return flat
