"""Common ancestors against those found by walking up."""

from __future__ import annotations

import random

from relaybuild.ir.ancestry import Place, ancestor_at, common_ancestor


def path(place: Place | None) -> list[Place]:
    found = []
    while place is not None:
        found.append(place)
        place = place.parent
    return found


def test_random_trees() -> None:
    choose = random.Random(0)
    for spread in (1, 3, 50):
        places = [Place(None)]
        for _ in range(300):
            places.append(Place(choose.choice(places[-spread:])))
        for _ in range(300):
            a, b = choose.choice(places), choose.choice(places)
            above = {id(place) for place in path(a)}
            assert common_ancestor(a, b) is next(place for place in path(b) if id(place) in above)
            depth = choose.randint(0, a.depth)
            assert ancestor_at(a, depth) is path(a)[a.depth - depth]


def test_places_of_two_trees_have_none() -> None:
    a, b = Place(None), Place(None)
    assert common_ancestor(a, b) is None
    assert common_ancestor(Place(Place(a)), Place(b)) is None


def test_long_paths_take_few_steps() -> None:
    place = Place(None)
    for _ in range(90_000):
        place = Place(place)
    steps, at = 0, place
    while at.depth > 17:
        at = at.jump if at.jump.depth >= 17 else path(at)[1]
        steps += 1
    assert steps < 60
