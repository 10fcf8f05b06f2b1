"""Trees that grow downwards from their roots, in which common ancestors are found in logarithmic time; knows no node.

Each place keeps one more ancestor beside its parent, its jump; places of equal depth have jumps of equal depth (Myers,
"An applicative random-access stack", 1983).
"""

from __future__ import annotations

from typing import TypeVar, cast


class Place:
    """A place below its parent; a root has none."""

    __slots__ = ("depth", "jump", "parent")
    parent: Place | None
    depth: int
    jump: Place

    def __init__(self, parent: Place | None) -> None:
        self.parent = parent
        self.depth = 0
        self.jump = self
        if parent is not None:
            far = parent.jump
            self.depth = parent.depth + 1
            self.jump = far.jump if parent.depth - far.depth == far.depth - far.jump.depth else parent


P = TypeVar("P", bound=Place)


def ancestor_at(place: P, depth: int) -> P:
    """The ancestor of that depth, at most the place's own."""
    found: Place = place
    while found.depth > depth:
        found = found.jump if found.jump.depth >= depth else _parent(found)
    return cast(P, found)


def common_ancestor(a: P, b: P) -> P | None:
    """The deepest place that is an ancestor of both, where a place is its own; None for places of two trees."""
    x: Place
    y: Place
    x, y = (a, ancestor_at(b, a.depth)) if a.depth <= b.depth else (ancestor_at(a, b.depth), b)
    while x is not y:
        if not x.depth:
            return None
        x, y = (x.jump, y.jump) if x.jump is not y.jump else (_parent(x), _parent(y))
    return cast(P, x)


def _parent(place: Place) -> Place:
    if place.parent is None:
        raise AssertionError("a root has no parent")
    return place.parent
