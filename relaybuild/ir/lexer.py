"""Tokens of the text format, with their positions; knows nothing of grammar."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

from relaybuild.errors import UserError

METADATA = "#[metadata]"
_MAX_DIGITS = 1000

_TOKEN = re.compile(
    r"""
    [ \t\r\n\f]*(?:
    (?P<space>//[^\n]*|\Z)
  | (?P<comment>/\*)
  | (?P<attribute>\#\[)
  | (?P<local>%(?:[0-9]+(?![A-Za-z_0-9])|[A-Za-z_][A-Za-z_0-9]*(?:/[A-Za-z_][A-Za-z_0-9]*)*|"(?:[^"\\\n]|\\.)*"))
  | (?P<global>@(?:[A-Za-z_][A-Za-z_0-9]*(?:[./][A-Za-z_][A-Za-z_0-9]*)*|"(?:[^"\\\n]|\\.)*"))
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<projection>\.[0-9]+)
  | (?P<number>(?:[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|(?:inf|nan)(?=f|(?![A-Za-z_0-9.])))
      (?:f64|f32|f16|f|i64|i32|i16|i8|i|u64|u32|u16|u8)?(?![A-Za-z_0-9]))
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*)
  | (?P<punct>->|==|!=|<=|>=|[-+*/<>=(){}\[\],;:?])
    )""",
    re.VERBOSE,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """A piece of text: `kind` is the name of a group of the lexer, or "end" after the last."""

    kind: str
    text: str
    pos: int


@dataclass(frozen=True)
class Source:
    """A text with a name, and the positions of its lines."""

    name: str
    text: str
    line_starts: tuple[int, ...]

    @staticmethod
    def of(text: str, name: str) -> Source:
        return Source(name, text, (0, *(match.end() for match in re.finditer("\n", text))))

    def position(self, pos: int) -> tuple[int, int]:
        """Line and column, both counted from 1."""
        line = bisect_right(self.line_starts, pos)
        return line, pos - self.line_starts[line - 1] + 1

    def line_of(self, pos: int) -> int:
        return bisect_right(self.line_starts, pos)

    def where(self, pos: int) -> str:
        line, column = self.position(pos)
        return f"{self.name}:{line}:{column}"

    def excerpt(self, pos: int) -> str:
        """The line at a position, and a caret below it."""
        line, column = self.position(pos)
        start = self.line_starts[line - 1]
        text = self.text[start:].split("\n", 1)[0].rstrip("\r") if start < len(self.text) else ""
        pad = "".join("\t" if char == "\t" else " " for char in text[: column - 1])
        return f"    {text}\n    {pad}^"


class SyntaxFault(UserError):
    """A text that is not in the format; raised at the first token that does not fit."""

    def __init__(self, message: str, pos: int) -> None:
        super().__init__(message)
        self.pos = pos


def tokenize(source: Source) -> tuple[list[Token], int]:
    """The tokens, closed by one of kind "end", and where the metadata begins (the text's length if it has none).

    Raises SyntaxFault for a character that starts no token and for an unclosed comment.
    """
    text = source.text
    tokens: list[Token] = []
    pos = 0
    while pos < len(text):
        match = _TOKEN.match(text, pos)
        if match is None:
            pos += len(text[pos:]) - len(text[pos:].lstrip(" \t\r\n\f"))
            raise SyntaxFault(f"unexpected character {json.dumps(text[pos])}", pos)
        kind = match.lastgroup or ""
        start = match.start(kind)
        if kind == "comment":
            pos = _skip_comment(text, start)
            continue
        if kind == "attribute" and text.startswith(METADATA, start):
            pos = start
            break
        if kind in ("number", "projection") and match.end() - start > _MAX_DIGITS:
            raise SyntaxFault(f"a number of {match.end() - start} digits, expected at most {_MAX_DIGITS}", start)
        if kind != "space":
            tokens.append(Token(kind, match.group(kind), start))
        pos = match.end()
    tokens.append(Token("end", "", pos))
    return tokens, pos


def unquote(text: str) -> str:
    """A name or string without quotes; raises ValueError for a bad escape."""
    return str(json.loads(text)) if text.startswith('"') else text


def _skip_comment(text: str, start: int) -> int:
    depth, pos = 0, start
    while match := _COMMENT_EDGE.search(text, pos):
        depth += 1 if match.group() == "/*" else -1
        pos = match.end()
        if depth == 0:
            return pos
    raise SyntaxFault("this comment is never closed with '*/'", start)
