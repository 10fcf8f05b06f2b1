"""The page on the language is right: its programs have the values stated, its snippets print what follows them."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaybuild
from relaybuild.ir.formatter import format_text
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "relay.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLAIM = re.compile(r"^// main\((.*)\) = (.*)$", re.MULTILINE)


def blocks(language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(PAGE) if kind == language]


@pytest.mark.parametrize("text", blocks("relay"), ids=lambda text: text.strip().splitlines()[0])
def test_programs(text: str) -> None:
    mod = parse(text)
    (claim,) = CLAIM.findall(text)
    (kind,) = (param.checked_type for param in mod["main"].params)
    assert isinstance(kind, TensorType)
    found = relaybuild.interpret(mod, np.asarray(eval(claim[0]), dtype=kind.dtype))
    assert_equal(found, eval(claim[1]))


@pytest.mark.parametrize("text", blocks("relay"), ids=lambda text: text.strip().splitlines()[0])
def test_programs_survive_their_text_and_their_layout(text: str) -> None:
    mod = parse(text)
    assert structural_equal(parse(print_module(mod, show_spans=True)), mod)
    assert structural_equal(parse(format_text(text)), mod)


def test_snippets_print_what_follows_them() -> None:
    names: dict[str, Any] = {}
    pairs = [
        (code, shown)
        for (kind, code), (other, shown) in zip(BLOCK.findall(PAGE), BLOCK.findall(PAGE)[1:])
        if kind == "python" and other == "text"
    ]
    assert len(pairs) == len(blocks("python"))
    for code, shown in pairs:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(code, names)
        assert output.getvalue() == shown


def assert_equal(found: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for left, right in zip(found, expected):
            assert_equal(left, right)
    else:
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
