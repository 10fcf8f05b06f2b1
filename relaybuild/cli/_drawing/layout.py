"""Places the boxes of an acyclic graph in layers from top to bottom; knows sizes and groups, and nothing of text.

Layers are by longest path. An edge over several layers passes each through a slot of its own, which the long edges of
one box share. The order within a layer is by barycenters, boxes of one group side by side; horizontal places are the
least squares of distances between neighbours that the order allows.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass

GAP_X = 24.0
GAP_Y = 40.0
_SLOT_WIDTH = 6.0
_ORDER_SWEEPS = 6
_PLACE_SWEEPS = 6
_MOST_SLOTS = 8
"""Slots for each box of the graph; what needs more has edges without slots."""


@dataclass(frozen=True)
class Box:
    """What is to be placed: a size, and the name of a group that should stay together."""

    width: float
    height: float
    group: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a box is: its left and upper edges, and its layer."""

    x: float
    y: float
    layer: int


@dataclass(frozen=True)
class Route:
    """An edge from one box to another as points, from the lower edge of the first to the upper edge of the second."""

    start: int
    end: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Layout:
    """Places by box, routes by edge, and the size of the whole."""

    places: Sequence[Place]
    routes: Sequence[Route]
    width: float
    height: float


def lay_out(boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> Layout:
    """Places for boxes and routes for edges, which go from an earlier box to a later one.

    Time grows with the number of boxes, edges and slots, not with its square.
    """
    edges = list(dict.fromkeys(edges))
    graph = _Slotted(boxes, edges)
    order = _order(graph)
    x = _place(graph, order)
    tops, height = _tops(graph, order)
    places = [
        Place(x[number] - box.width / 2, tops[graph.layers[number]], graph.layers[number])
        for number, box in enumerate(boxes)
    ]
    routes = [Route(start, end, _points(graph, x, tops, start, end)) for start, end in edges]
    width = max((place.x + box.width for place, box in zip(places, boxes)), default=0.0)
    return Layout(places, routes, max(width, *x, 0.0) if x else width, height)


class _Slotted:
    """The graph with slots in the layers that edges pass through; boxes come first, then slots."""

    def __init__(self, boxes: Sequence[Box], edges: Sequence[tuple[int, int]]) -> None:
        self.boxes = boxes
        self.layers = _layers(len(boxes), edges)
        self.widths = [box.width for box in boxes]
        self.groups = [box.group for box in boxes]
        self.above: list[list[int]] = [[] for _ in boxes]
        self.below: list[list[int]] = [[] for _ in boxes]
        self.slots: dict[int, list[int]] = {}
        """By box: its slots, one for each layer below it as far as its edges go."""
        reach: dict[int, int] = {}
        for start, end in edges:
            reach[start] = max(reach.get(start, 0), self.layers[end])
        left = _MOST_SLOTS * len(boxes)
        for start, last in sorted(reach.items(), key=lambda item: (item[1] - self.layers[item[0]], item[0])):
            count = last - self.layers[start] - 1
            if count <= left:
                left -= count
                self.slots[start] = [self._slot(start, layer) for layer in range(self.layers[start] + 1, last)]
        for start, slots in self.slots.items():
            for upper, lower in zip((start, *slots), slots):
                self._join(upper, lower)
        for start, end in edges:
            passed = self.slots_between(start, end)
            if passed or self.layers[end] == self.layers[start] + 1:
                self._join(passed[-1] if passed else start, end)

    def slots_between(self, start: int, end: int) -> list[int]:
        """The slots that an edge passes through."""
        return self.slots.get(start, [])[: self.layers[end] - self.layers[start] - 1]

    def is_slot(self, number: int) -> bool:
        return number >= len(self.boxes)

    def _slot(self, start: int, layer: int) -> int:
        self.layers.append(layer)
        self.widths.append(_SLOT_WIDTH)
        self.groups.append(None)
        self.above.append([])
        self.below.append([])
        return len(self.layers) - 1

    def _join(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def _layers(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """By box: the length of the longest way to it; what nothing leads to stands right above its first user."""
    users: list[list[int]] = [[] for _ in range(count)]
    layers = [0] * count
    has_operands = [False] * count
    for start, end in edges:
        if start >= end:
            raise ValueError(f"the edge from box {start} to box {end} does not go to a later one")
        users[start].append(end)
        has_operands[end] = True
    for number in range(count):
        for user in users[number]:
            layers[user] = max(layers[user], layers[number] + 1)
    for number in range(count):
        if users[number] and not has_operands[number]:
            layers[number] = min(layers[user] for user in users[number]) - 1
    return layers


def _order(graph: _Slotted) -> list[list[int]]:
    """The members of each layer from left to right."""
    layers: list[list[int]] = [[] for _ in range(max(graph.layers, default=-1) + 1)]
    for number in _by_depth(graph):
        layers[graph.layers[number]].append(number)
    position = [0.0] * len(graph.layers)
    for layer in layers:
        _note_positions(layer, position)
    for sweep in range(_ORDER_SWEEPS):
        downwards = sweep % 2 == 0
        near = graph.above if downwards else graph.below
        for layer in layers if downwards else reversed(layers):
            _sort_layer(layer, near, graph.groups, position)
    return layers


def _by_depth(graph: _Slotted) -> list[int]:
    """Depth first from the sources: what belongs together begins side by side."""
    seen: set[int] = set()
    found: list[int] = []
    sources = [number for number, above in enumerate(graph.above) if not above]
    stack = sources[::-1]
    while stack:
        number = stack.pop()
        if number not in seen:
            seen.add(number)
            found.append(number)
            stack.extend(reversed(graph.below[number]))
    return found


def _note_positions(layer: Sequence[int], position: list[float]) -> None:
    for index, number in enumerate(layer):
        position[number] = (index + 0.5) / len(layer)


def _sort_layer(
    layer: list[int], near: Sequence[Sequence[int]], groups: Sequence[str | None], position: list[float]
) -> None:
    """Sort a layer by the places of neighbours; members of a group by those of the whole group first."""
    wanted: dict[int, float] = {}
    members: dict[str, list[float]] = {}
    for number in layer:
        places = [position[each] for each in near[number]]
        wanted[number] = sum(places) / len(places) if places else position[number]
        group = groups[number]
        if group is not None:
            members.setdefault(group, []).append(wanted[number])
    means = {group: sum(values) / len(values) for group, values in members.items()}

    def key(number: int) -> tuple[float, str, float]:
        group = groups[number]
        return (wanted[number], "", 0.0) if group is None else (means[group], group, wanted[number])

    layer.sort(key=key)
    _note_positions(layer, position)


def _place(graph: _Slotted, order: Sequence[Sequence[int]]) -> list[float]:
    """By box and slot: where its middle is, from 0 on."""
    x = [0.0] * len(graph.layers)
    offsets = [_offsets(graph, layer) for layer in order]
    for layer, offset in zip(order, offsets):
        for number, place in zip(layer, offset):
            x[number] = place - offset[-1] / 2
    for sweep in range(_PLACE_SWEEPS):
        downwards = sweep % 2 == 0
        near = graph.above if downwards else graph.below
        indices = range(len(order)) if downwards else range(len(order) - 1, -1, -1)
        for index in indices:
            _place_layer(graph, order[index], offsets[index], near, x)
    left = min((place - graph.widths[number] / 2 for number, place in enumerate(x)), default=0.0)
    return [round(place - left, 1) for place in x]


def _offsets(graph: _Slotted, layer: Sequence[int]) -> list[float]:
    """Where the members of a layer are if they stand as close as they may."""
    found: list[float] = []
    right = 0.0
    for number in layer:
        found.append(right + graph.widths[number] / 2)
        right += graph.widths[number] + (GAP_X / 2 if graph.is_slot(number) else GAP_X)
    return found


def _place_layer(
    graph: _Slotted, layer: Sequence[int], offsets: Sequence[float], near: Sequence[Sequence[int]], x: list[float]
) -> None:
    """The least squares of distances from where each member wants to be, under the distances that must be kept."""
    blocks: list[tuple[float, float, int]] = []
    for number, offset in zip(layer, offsets):
        places = [x[each] for each in near[number]]
        # a box beside a slot moves as far as the slot does, so that what forks and joins stays in one line
        weight = 1.0 if places else 0.1
        wanted = (sum(places) / len(places) if places else x[number]) - offset
        block = (wanted * weight, weight, 1)
        # neighbours that want to pass one another stand side by side around their common middle
        while blocks and blocks[-1][0] / blocks[-1][1] > block[0] / block[1]:
            last = blocks.pop()
            block = (last[0] + block[0], last[1] + block[1], last[2] + block[2])
        blocks.append(block)
    starts = [total / weight for total, weight, count in blocks for _ in range(count)]
    for number, offset, start in zip(layer, offsets, starts):
        x[number] = start + offset


def _tops(graph: _Slotted, order: Sequence[Sequence[int]]) -> tuple[list[float], float]:
    """The upper edge of each layer, and the lower edge of the last."""
    tops: list[float] = []
    bottom = -GAP_Y
    for layer in order:
        tops.append(bottom + GAP_Y)
        bottom = tops[-1] + max(
            (graph.boxes[number].height for number in layer if not graph.is_slot(number)), default=0.0
        )
    return tops, max(bottom, 0.0)


def _points(
    graph: _Slotted, x: Sequence[float], tops: Sequence[float], start: int, end: int
) -> list[tuple[float, float]]:
    bottom = tops[graph.layers[start]] + graph.boxes[start].height
    points = [(x[start], bottom)]
    for slot in graph.slots_between(start, end):
        layer = graph.layers[slot]
        lower = tops[layer + 1] - GAP_Y
        points += [(x[slot], tops[layer]), (x[slot], lower)]
    return [*points, (x[end], tops[graph.layers[end]])]
