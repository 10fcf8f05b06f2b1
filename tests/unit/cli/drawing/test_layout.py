"""Layouts: no boxes on one another, layers along edges, routes that end at boxes, groups side by side; in time."""

from __future__ import annotations

import random
import time
from itertools import pairwise

import pytest

from relaybuild.cli._drawing.layout import GAP_X, Box, Layout, lay_out

Edges = list[tuple[int, int]]


def random_graph(seed: int, count: int, far: int = 30) -> tuple[list[Box], Edges]:
    source = random.Random(seed)
    boxes = [Box(source.randrange(40, 200), 40, source.choice([None, None, "a", "b"])) for _ in range(count)]
    near = [(max(0, end - source.randrange(1, 4)), end) for end in range(1, count) if source.random() < 0.9]
    long = [(max(0, end - source.randrange(1, far)), end) for end in range(1, count) if source.random() < 0.3]
    return boxes, near + long


def check(boxes: list[Box], edges: Edges) -> Layout:
    layout = lay_out(boxes, edges)
    check_boxes(boxes, layout)
    for start, end in edges:
        assert layout.places[start].layer < layout.places[end].layer
    check_routes(boxes, edges, layout)
    return layout


def check_boxes(boxes: list[Box], layout: Layout) -> None:
    rows: dict[int, list[tuple[float, float, float]]] = {}
    for box, place in zip(boxes, layout.places):
        assert place.x >= 0
        assert place.x + box.width <= layout.width
        assert place.y + box.height <= layout.height
        rows.setdefault(place.layer, []).append((place.x, place.x + box.width, place.y))
    for row in rows.values():
        assert len({y for _, _, y in row}) == 1
        for (_, right, _), (left, _, _) in pairwise(sorted(row)):
            assert left - right > GAP_X / 2 - 0.2
    tops = [rows[layer][0][2] for layer in sorted(rows)]
    assert all(lower - upper > 40 for upper, lower in pairwise(tops))


def check_routes(boxes: list[Box], edges: Edges, layout: Layout) -> None:
    assert [(route.start, route.end) for route in layout.routes] == list(dict.fromkeys(edges))
    for route in layout.routes:
        start, end = layout.places[route.start], layout.places[route.end]
        (x, y), (last_x, last_y) = route.points[0], route.points[-1]
        assert x == pytest.approx(start.x + boxes[route.start].width / 2)
        assert y == start.y + boxes[route.start].height
        assert last_x == pytest.approx(end.x + boxes[route.end].width / 2)
        assert last_y == end.y
        assert all(upper <= lower for (_, upper), (_, lower) in pairwise(route.points))


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed: int) -> None:
    check(*random_graph(seed, 1 + seed * 5))


def test_no_boxes_have_no_size() -> None:
    layout = lay_out([], [])
    assert (layout.width, layout.height) == (0, 0)


def test_a_chain_stands_in_one_line() -> None:
    boxes = [Box(40 + 20 * number, 40) for number in range(5)]
    layout = check(boxes, [(number, number + 1) for number in range(4)])
    middles = [place.x + box.width / 2 for place, box in zip(layout.places, boxes)]
    assert middles == [middles[0]] * 5
    assert [place.layer for place in layout.places] == list(range(5))


def test_what_forks_and_joins_does_not_drift() -> None:
    """Fifty blocks of a chain of two beside an edge around it."""
    edges: Edges = []
    for block in range(50):
        first = 3 * block
        edges += [(first, first + 1), (first + 1, first + 2), (first + 2, first + 3), (first, first + 3)]
    boxes = [Box(80, 40) for _ in range(151)]
    assert check(boxes, edges).width < 250


def test_an_edge_around_boxes_does_not_cross_them() -> None:
    boxes = [Box(100, 40) for _ in range(5)]
    layout = check(boxes, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)])
    (around,) = (route for route in layout.routes if (route.start, route.end) == (0, 4))
    for x, y in around.points[1:-1]:
        for box, place in zip(boxes[1:4], layout.places[1:4]):
            inside = place.y <= y <= place.y + box.height
            assert not inside or not place.x < x < place.x + box.width


def test_a_source_stands_above_its_first_user() -> None:
    layout = check([Box(50, 40)] * 5, [(0, 1), (1, 2), (2, 4), (3, 4)])
    assert layout.places[3].layer == 2


def test_crossings_that_can_be_avoided_are() -> None:
    layout = check([Box(50, 40)] * 4, [(0, 3), (1, 2)])
    places = layout.places
    assert (places[0].x < places[1].x) == (places[3].x < places[2].x)


def test_members_of_a_group_stand_side_by_side() -> None:
    groups = ["a", None, "b", "a", None, "b", "a"]
    boxes = [Box(50, 40), *(Box(50, 40, group) for group in groups), Box(50, 40)]
    last = len(boxes) - 1
    layout = check(boxes, [edge for n in range(1, last) for edge in ((0, n), (n, last))])
    row = sorted(range(1, last), key=lambda number: layout.places[number].x)
    for group in ("a", "b"):
        places = [index for index, number in enumerate(row) if boxes[number].group == group]
        assert places == list(range(places[0], places[0] + len(places)))


def test_equal_graphs_have_equal_layouts() -> None:
    boxes, edges = random_graph(3, 80)
    assert lay_out(boxes, edges) == lay_out(boxes, edges)


def test_an_edge_that_goes_back_is_refused() -> None:
    with pytest.raises(ValueError, match="from box 1 to box 1 does not go to a later one"):
        lay_out([Box(1, 1)] * 2, [(1, 1)])


def test_thousands_of_boxes_take_seconds() -> None:
    """2,000 boxes: under two seconds on a quiet machine."""
    boxes, edges = random_graph(1, 2000, far=200)
    start = time.perf_counter()
    lay_out(boxes, edges)
    assert time.perf_counter() - start < 10


def test_edges_without_slots_end_at_their_boxes_too() -> None:
    """Each of many boxes has an edge to the last: slots for all would be many more than boxes."""
    count = 120
    edges = [(number, number + 1) for number in range(count - 1)] + [(number, count - 1) for number in range(count - 2)]
    layout = check([Box(60, 40)] * count, edges)
    assert sum(len(route.points) for route in layout.routes) < 20 * count
