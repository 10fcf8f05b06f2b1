"""Through which nodes everything passes that is made of a node's value: the post-dominator tree of one expression.

Knows nothing of patterns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.ir.ancestry import Place, ancestor_at, common_ancestor
from relaybuild.ir.expr import Expr


class PostDominators:
    """The tree of an expression: `order` has children before parents, `users` the nodes that use each, by id."""

    def __init__(self, order: Sequence[Expr], users: Mapping[int, Sequence[Expr]]) -> None:
        self._places: dict[int, Place] = {}
        for node in reversed(order):
            parent: Place | None = None
            for user in users.get(id(node), ()):
                place = self._places[id(user)]
                parent = place if parent is None else common_ancestor(parent, place)
                if parent is None:
                    break
            self._places[id(node)] = Place(parent)

    def dominates(self, upper: Expr, lower: Expr) -> bool:
        """Whether all that is made of the value of `lower` passes through `upper`; a node dominates itself."""
        wanted, place = self._places[id(upper)], self._places[id(lower)]
        return place.depth >= wanted.depth and ancestor_at(place, wanted.depth) is wanted
