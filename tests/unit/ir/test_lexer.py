"""Tokens and positions."""

import pytest

from relaybuild.ir.lexer import Source, SyntaxFault, tokenize


def kinds(text: str) -> list[tuple[str, str]]:
    return [(token.kind, token.text) for token in tokenize(Source.of(text, "t"))[0][:-1]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%x.0.1", [("local", "%x"), ("projection", ".0"), ("projection", ".1")]),
        ("%0.0", [("local", "%0"), ("projection", ".0")]),
        ("%base/x/%b", [("local", "%base/x"), ("punct", "/"), ("local", "%b")]),
        ("%a/2", [("local", "%a"), ("punct", "/"), ("number", "2")]),
        ('%"a b" @"c.d"', [("local", '%"a b"'), ("global", '@"c.d"')]),
        ("1e-5f 3f16 inff nan", [("number", "1e-5f"), ("number", "3f16"), ("number", "inff"), ("number", "nan")]),
        ("info nan_x nn.relu", [("name", "info"), ("name", "nan_x"), ("name", "nn.relu")]),
        ("a->b==c", [("name", "a"), ("punct", "->"), ("name", "b"), ("punct", "=="), ("name", "c")]),
        ("1 // 2\n/* /* 3 */ */ 4", [("number", "1"), ("number", "4")]),
        ('"a\\"b"', [("string", '"a\\"b"')]),
        ("  \n\t", []),
    ],
)
def test_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(("text", "pos"), [("a $", 2), ("/* /* */", 0), ('"open', 0), ("3x", 0), ("%", 0)])
def test_what_starts_no_token(text: str, pos: int) -> None:
    with pytest.raises(SyntaxFault) as caught:
        tokenize(Source.of(text, "t"))
    assert caught.value.pos == pos


def test_metadata_ends_the_tokens() -> None:
    tokens, end = tokenize(Source.of('1 "#[metadata]"\n#[metadata]{$', "t"))
    assert [token.kind for token in tokens] == ["number", "string", "end"]
    assert end == tokens[-1].pos == 16


def test_positions() -> None:
    source = Source.of("ab\n\tcd\n", "f.relay")
    assert [source.where(pos) for pos in (0, 2, 3, 5)] == ["f.relay:1:1", "f.relay:1:3", "f.relay:2:1", "f.relay:2:3"]
    assert source.excerpt(4) == "    \tcd\n    \t^"
    assert source.excerpt(len(source.text)) == "    \n    ^"
