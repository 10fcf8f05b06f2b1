"""Tokens, comments, and where the metadata begins."""

import pytest

from relaybuild.diagnostics import Source
from relaybuild.ir.lexer import Tokens, stray_message, tokenize


def read(text: str) -> Tokens:
    return tokenize(Source.of(text, "t"))


def texts(text: str) -> list[str]:
    return [token for token in read(text).texts if token]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%x.0.1", ["%x", ".0", ".1"]),
        ("%0.0", ["%0", ".0"]),
        ("%base/x/%b", ["%base/x", "/", "%b"]),
        ("%a/2", ["%a", "/", "2"]),
        ('%"a b" @"c.d"', ['%"a b"', '@"c.d"']),
        ("1e-5f 3f16 inff nan", ["1e-5f", "3f16", "inff", "nan"]),
        ("info nan_x nn.relu", ["info", "nan_x", "nn.relu"]),
        ("a->b==c=>d", ["a", "->", "b", "==", "c", "=>", "d"]),
        ("a -1", ["a", "-", "1"]),
        ("match?(x)", ["match", "?", "(", "x", ")"]),
        ('#[span("a")]', ["#[", "span", "(", '"a"', ")", "]"]),
        ("1 // 2\n/* /* 3 */ */ 4", ["1", "4"]),
        ('"a\\"b // c"', ['"a\\"b // c"']),
        ("  \n\t", []),
        ("", []),
    ],
)
def test_tokens(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "stray"),
    [("a $", "unexpected character"), ('"open', "not closed on its line"), ("% x", "not followed by a name")],
)
def test_what_starts_no_token_is_a_piece_of_its_own(text: str, stray: str) -> None:
    assert stray in "".join(stray_message(token) or "" for token in texts(text))


def test_punctuation_and_names_are_not_stray() -> None:
    assert not any(stray_message(token) for token in texts("a + _ 1 (x) { } [?] , ; : < / * - = >"))


def test_positions_are_behind_the_tokens() -> None:
    tokens = read("  ab\n /* c */ %x")
    assert [tokens.start(index) for index in range(2)] == [2, 14]
    assert tokens.comments == [(6, 13)]


def test_the_metadata_ends_the_tokens() -> None:
    tokens = read('1 "#[metadata]"\n#[metadata]{$')
    assert [token for token in tokens.texts if token] == ["1", '"#[metadata]"']
    assert tokens.metadata == 16


def test_metadata_in_a_comment_is_none() -> None:
    tokens = read("1 /*\n#[metadata]\n*/ 2\n#[metadata]{")
    assert [token for token in tokens.texts if token] == ["1", "2"]
    assert tokens.source.text[tokens.metadata :] == "#[metadata]{"


def test_an_unclosed_comment_is_a_mistake() -> None:
    (mistake,) = read("1 /* /* */").mistakes
    assert (mistake.pos, mistake.message) == (2, "this comment is never closed with '*/'")
