"""The page: well-formed, nothing from elsewhere, all text escaped, a colour for each line of the legend."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from relaybuild.cli._drawing.page import Legend, page
from relaybuild.cli._drawing.svg import Node, draw, shortened

NODES = [
    Node("<in>", "1×3", "a & b\nsecond", None, "end"),
    Node("conv", "1×3", "node: '\"'", "r0", "b0"),
    Node("conv", "1×3", "", "r0", "b0"),
    Node("add", "1×3"),
]
EDGES = [(0, 1), (1, 2), (2, 3), (0, 3)]
LEGEND = [Legend("host", "host: 1 call"), Legend("b0", "a<b: 1 region", ["r0"])]


class Elements(HTMLParser):
    """Elements in order, and whether each is closed."""

    VOID = frozenset(("meta", "input", "rect", "path"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def text_of_page() -> str:
    return page("a <model>", draw(NODES, EDGES), LEGEND)


def test_every_element_is_closed_and_nothing_is_loaded() -> None:
    text = text_of_page()
    elements = Elements(text)
    assert not elements.open
    assert not re.search(r"https?://|\bsrc=|@import|url\(|<link", text)


def test_text_is_escaped() -> None:
    text = text_of_page()
    assert "<title>a &lt;model&gt;</title>" in text
    assert "<title>a &amp; b\nsecond</title>" in text
    assert "&lt;in&gt;</text>" in text
    assert "a&lt;b: 1 region" in text


def test_boxes_edges_and_grounds_are_drawn() -> None:
    elements = Elements(text_of_page()).found
    boxes = [attrs for tag, attrs in elements if tag == "g" and "id" in attrs and (attrs["id"] or "").startswith("n")]
    assert [attrs["class"] for attrs in boxes] == ["node end", "node b0", "node b0", "node host"]
    assert [attrs.get("data-group") for attrs in boxes] == [None, "r0", "r0", None]
    grounds = [attrs for tag, attrs in elements if attrs.get("data-ground")]
    assert [(attrs["class"], attrs["data-ground"]) for attrs in grounds] == [("ground b0", "r0")]
    edges = [attrs["class"] for tag, attrs in elements if tag == "path" and "class" in attrs]
    assert sorted(str(each) for each in edges) == ["b0", "edge", "edge", "edge"]


def test_each_colour_of_the_legend_has_rules_of_its_own() -> None:
    legend = [LEGEND[0], *(Legend(f"b{number}", f"tag{number}") for number in range(12))]
    text = page("m", draw(NODES, EDGES), legend)
    hues = re.findall(r"li\.b\d+ i \{ background: hsl\((\d+)", text)
    assert len(set(hues)) == 12


def test_equal_graphs_give_equal_bytes() -> None:
    assert text_of_page() == text_of_page()


def test_long_names_keep_both_ends() -> None:
    text = shortened("a" * 40 + "b" * 40)
    assert len(text) == 34
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert shortened("a" * 34) == "a" * 34
