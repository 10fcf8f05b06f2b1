"""Through which nodes everything passes that is made of a node's value: the post-dominator tree of one expression.

Knows nothing of patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.ir.expr import Expr


class _Place:
    """A node's place in the tree; `jump` is an ancestor that makes common ancestors logarithmic to find."""

    __slots__ = ("depth", "jump", "parent")

    def __init__(self, parent: _Place | None) -> None:
        self.parent = parent
        self.depth: int = 0
        self.jump: _Place = self
        if parent is not None:
            far = parent.jump
            self.depth = parent.depth + 1
            self.jump = far.jump if parent.depth - far.depth == far.depth - far.jump.depth else parent


class PostDominators:
    """The tree of an expression: `order` has children before parents, `users` the nodes that use each, by id."""

    def __init__(self, order: Sequence[Expr], users: Mapping[int, Sequence[Expr]]) -> None:
        self._places: dict[int, _Place] = {}
        for node in reversed(order):
            parent: _Place | None = None
            for index, user in enumerate(users.get(id(node), ())):
                place = self._places[id(user)]
                parent = place if not index else _common(parent, place)
                if parent is None:
                    break
            self._places[id(node)] = _Place(parent)

    def dominates(self, upper: Expr, lower: Expr) -> bool:
        """Whether all that is made of the value of `lower` passes through `upper`; a node dominates itself."""
        wanted = self._places[id(upper)]
        place = self._places[id(lower)]
        while place.depth > wanted.depth:
            place = place.jump if place.jump.depth >= wanted.depth else _parent(place)
        return place is wanted


def _common(a: _Place | None, b: _Place | None) -> _Place | None:
    while a is not None and b is not None and a.depth != b.depth:
        if a.depth < b.depth:
            a, b = b, a
        a = a.jump if a.jump.depth >= b.depth else a.parent
    while a is not b:
        # places of equal depth have jumps of equal depth
        if a is None or b is None or not a.depth:
            return None
        a, b = (a.jump, b.jump) if a.jump is not b.jump else (a.parent, b.parent)
    return a


def _parent(place: _Place) -> _Place:
    if place.parent is None:
        raise AssertionError("the root has no parent")
    return place.parent
