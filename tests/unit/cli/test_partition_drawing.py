"""Drawings of programs: what is a box, what edges pass through, and what is said of a box."""

from __future__ import annotations

import re
from html import unescape

from relaybuild.cli._partition_drawing import drawing
from relaybuild.ir.infer import infer_types
from relaybuild.ir.parser import parse
from relaybuild.partition.backend import register_supports
from relaybuild.partition.report import report

VECTOR = "Tensor[(3,), float32]"


def drawn(body: str, *tags: str) -> str:
    mod = infer_types(parse(f"def @main(%x: {VECTOR}, %c: bool) {{ {body} }}", "m.relay"))
    return drawing(report(mod, tags), "m")


def boxes(text: str) -> list[str]:
    """The first lines of boxes, in order."""
    return [unescape(each) for each in re.findall(r'<text x="[^"]*" y="17">([^<]*)</text>', text)]


def count_edges(text: str) -> int:
    return len(re.findall(r'<path class="', text))


def details(text: str) -> list[str]:
    return [unescape(each) for each in re.findall(r"<g class=\"node[^>]*><title>([^<]*)</title>", text)]


def test_calls_parameters_and_results_are_boxes() -> None:
    text = drawn("exp(tanh(%x))")
    assert sorted(boxes(text)) == ["%x", "@main", "exp", "tanh"]
    assert count_edges(text) == 3


def test_tuples_fields_and_lets_are_passed_through() -> None:
    text = drawn("let %a = (exp(%x), tanh(%x)); add(%a.0, %a.1)")
    assert sorted(boxes(text)) == ["%x", "@main", "add", "exp", "tanh"]
    assert count_edges(text) == 5


def test_constants_and_what_is_made_of_them_are_no_boxes() -> None:
    text = drawn("add(%x, exp(full(fill_value=2.0, shape=[3])))")
    assert sorted(boxes(text)) == ["%x", "@main", "add"]


def test_both_branches_lead_to_the_conditional() -> None:
    text = drawn("if (%c) { exp(%x) } else { tanh(%x) }")
    assert sorted(boxes(text)) == ["%c", "%x", "@main", "exp", "if", "tanh"]
    assert count_edges(text) == 6


def test_a_box_says_node_types_attributes_and_reason() -> None:
    register_supports("a", "exp")(lambda call: "'exp' is too steep")
    register_supports("a", "sum")(lambda call: True)
    text = drawn("sum(exp(%x), axis=[0])", "a")
    by_name = {each.split("\n")[0]: each.split("\n") for each in details(text)}
    assert "host: 'exp' is too steep" in by_name["exp"]
    assert "node: m.relay:1:54" in by_name["exp"]
    assert f"operand 0: {VECTOR}" in by_name["exp"]
    assert "region: relaybuild_default_a_main_0" in by_name["sum"]
    assert any(line.startswith("axis: ") for line in by_name["sum"])
