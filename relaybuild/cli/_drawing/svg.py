"""Draws a graph as SVG: boxes with two lines of text, edges, grounds behind groups; knows no program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from relaybuild.cli._drawing.layout import GAP_Y, Box, Layout, Place, Route, lay_out
from relaybuild.dataclass import dataclass

MARGIN = 24
_CHARACTER = 7.2
"""Width of a character of the first line; the second line's are smaller."""
_SMALL_CHARACTER = 6.1
_HEIGHT = 40.0
_PADDING = 10.0
_LONGEST = 34


@dataclass(frozen=True)
class Node:
    """A box: its lines, what is shown of it when it is pointed at, the group it is in, and the name of its colour."""

    title: str
    subtitle: str = ""
    detail: str = ""
    group: str | None = None
    colour: str = "host"


@dataclass(frozen=True)
class Picture:
    """The inside of an `svg` element, a small copy of its boxes, and the size of both."""

    scene: str
    overview: str
    width: int
    height: int


def draw(nodes: Sequence[Node], edges: Sequence[tuple[int, int]]) -> Picture:
    """A picture of nodes and of edges from earlier to later ones. Equal arguments give equal bytes."""
    boxes = [Box(_width(node), _HEIGHT, node.group) for node in nodes]
    layout = lay_out(boxes, edges)
    parts = [*_grounds(nodes, boxes, layout)]
    parts += [_edge(route, nodes) for route in layout.routes]
    parts += [_box(number, node, boxes[number], layout) for number, node in enumerate(nodes)]
    overview = [_small_box(node, box, place) for node, box, place in zip(nodes, boxes, layout.places)]
    return Picture("\n".join(parts), "\n".join(overview), round(layout.width), round(layout.height))


def shortened(text: str) -> str:
    """A line that fits a box: of a long one, both ends."""
    if len(text) <= _LONGEST:
        return text
    kept = _LONGEST - 1
    return f"{text[: kept // 2]}…{text[-(kept - kept // 2) :]}"


def _width(node: Node) -> float:
    lines = len(shortened(node.title)) * _CHARACTER, len(shortened(node.subtitle)) * _SMALL_CHARACTER
    return round(max(*lines, 40.0) + 2 * _PADDING)


def _box(number: int, node: Node, box: Box, layout: Layout) -> str:
    place = layout.places[number]
    middle = round(box.width / 2, 1)
    group = f' data-group="{escape(node.group)}"' if node.group is not None else ""
    return (
        f'<g class="node {escape(node.colour)}" id="n{number}"{group} transform="translate({place.x:g} {place.y:g})">'
        f"<title>{escape(node.detail)}</title>"
        f'<rect width="{box.width:g}" height="{box.height:g}" rx="5"/>'
        f'<text x="{middle:g}" y="17">{escape(shortened(node.title))}</text>'
        f'<text class="small" x="{middle:g}" y="32">{escape(shortened(node.subtitle))}</text></g>'
    )


def _small_box(node: Node, box: Box, place: Place) -> str:
    where = f'x="{place.x:g}" y="{place.y:g}" width="{box.width:g}" height="{box.height:g}"'
    return f'<rect class="{escape(node.colour)}" {where}/>'


def _edge(route: Route, nodes: Sequence[Node]) -> str:
    start, end = nodes[route.start], nodes[route.end]
    inside = start.group is not None and start.group == end.group
    return f'<path class="{escape(start.colour) if inside else "edge"}" d="{_curve(route.points)}"/>'


def _curve(points: Sequence[tuple[float, float]]) -> str:
    """Straight through slots, and an S between layers."""
    (x, y), *rest = points
    parts = [f"M{x:g} {y:g}"]
    for next_x, next_y in rest:
        if next_x == x:
            parts.append(f"V{next_y:g}")
        else:
            bend = round((y + next_y) / 2, 1)
            parts.append(f"C{x:g} {bend:g} {next_x:g} {bend:g} {next_x:g} {next_y:g}")
        x, y = next_x, next_y
    return "".join(parts)


def _grounds(nodes: Sequence[Node], boxes: Sequence[Box], layout: Layout) -> Iterator[str]:
    """A ground behind the boxes of each group, layer by layer, joined where the next layer has some of it too."""
    spans: dict[str, dict[int, tuple[float, float]]] = {}
    colours: dict[str, str] = {}
    for node, box, place in zip(nodes, boxes, layout.places):
        if node.group is not None:
            colours[node.group] = node.colour
            left, right = spans.setdefault(node.group, {}).get(place.layer, (place.x, place.x + box.width))
            spans[node.group][place.layer] = min(left, place.x), max(right, place.x + box.width)
    tops = {place.layer: place.y for place in layout.places}
    for group, by_layer in spans.items():
        shapes = "".join(_ground(layer, by_layer, tops) for layer in sorted(by_layer))
        yield f'<g class="ground {escape(colours[group])}" data-ground="{escape(group)}">{shapes}</g>'


def _ground(layer: int, spans: Mapping[int, tuple[float, float]], tops: Mapping[int, float]) -> str:
    left, right = spans[layer]
    top, bottom = tops[layer] - 7, tops[layer] + _HEIGHT + 7
    shape = f"M{left - 7:g} {top:g}H{right + 7:g}V{bottom:g}H{left - 7:g}Z"
    if layer + 1 not in spans:
        return f'<path d="{shape}"/>'
    next_left, next_right = spans[layer + 1]
    lower = bottom + GAP_Y - 14
    neck = f"M{left - 7:g} {bottom - 1:g}H{right + 7:g}L{next_right + 7:g} {lower + 1:g}H{next_left - 7:g}Z"
    return f'<path d="{shape}{neck}"/>'
