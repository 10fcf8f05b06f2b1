"""Writes one HTML file around a picture: search, zoom, legend, overview, all within it; knows no program."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from relaybuild.cli._drawing.svg import MARGIN, Picture
from relaybuild.dataclass import dataclass

_HUES = (212, 28, 145, 285, 350, 178, 58, 240)


@dataclass(frozen=True)
class Legend:
    """A line of the legend: a colour's name as nodes have it, what it stands for, and the groups that are drawn so."""

    colour: str
    text: str
    groups: Sequence[str] = ()


def page(title: str, picture: Picture, legend: Sequence[Legend]) -> str:
    """The file's text. Equal arguments give equal bytes; nothing in it is loaded from elsewhere."""
    folder = Path(__file__).parent
    style = (folder / "page.css").read_text(encoding="utf-8")
    script = (folder / "page.js").read_text(encoding="utf-8")
    colours = "\n".join(_colour_rules(each.colour, _hue(number)) for number, each in enumerate(legend[1:]))
    box = f"{-MARGIN} {-MARGIN} {picture.width + 2 * MARGIN} {picture.height + 2 * MARGIN}"
    entries = "\n".join(_entry(each) for each in legend)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{escape(title)}</title>
<style>
{style}{colours}
</style>
</head>
<body>
<header>
<h1>{escape(title)}</h1>
<input id="search" type="search" placeholder="operator, node, shape, reason" aria-label="Search">
<output id="found"></output>
<button id="fit" type="button">whole graph</button>
<button id="actual" type="button">full size</button>
<ul>
{entries}
</ul>
</header>
<main>
<svg id="overview" viewBox="{box}" preserveAspectRatio="none">
{picture.overview}
<rect id="window"/>
</svg>
<svg id="canvas" data-width="{picture.width}" data-height="{picture.height}" data-margin="{MARGIN}">
<g id="scene">
{picture.scene}
</g>
</svg>
<pre id="detail">Point at a box. Scroll to zoom, drag to move; Enter in the search goes to the next match.</pre>
</main>
<script>
{script}</script>
</body>
</html>
"""


def _entry(legend: Legend) -> str:
    groups = escape(" ".join(legend.groups))
    return f'<li class="{escape(legend.colour)}" data-groups="{groups}"><i></i>{escape(legend.text)}</li>'


def _hue(number: int) -> int:
    """Hues far apart for the first few, then by the golden angle."""
    return _HUES[number] if number < len(_HUES) else round(number * 137.5) % 360


def _colour_rules(colour: str, hue: int) -> str:
    fill, line = f"hsl({hue} 70% 84%)", f"hsl({hue} 60% 38%)"
    return (
        f".node.{colour} > rect, #overview .{colour} {{ fill: {fill}; stroke: {line}; }}\n"
        f"li.{colour} i {{ background: hsl({hue} 70% 72%); }}\n"
        f"#canvas path.{colour} {{ stroke: {line}; stroke-width: 2; }}\n"
        f"#canvas .ground.{colour} path {{ fill: hsl({hue} 75% 94%); }}"
    )
