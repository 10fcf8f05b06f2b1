"""Tokens of the text format, with their positions, and the comments between them; knows nothing of grammar.

Tokens are plain strings; their first character tells what they are: `%` a local name, `@` a global one, `"` a string,
`.` a projection such as `.0`, a digit a number, a letter or `_` a name, and the rest punctuation.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate

from relaybuild.dataclass import dataclass
from relaybuild.diagnostics import Diagnostic, Source
from relaybuild.ir.text.names import METADATA

PUNCTUATION = frozenset("-+*/<>=(){}[],;:?")

_SPACE = " \t\r\n\f"
_SPACES = r"\ \t\r\n\f"
_QUOTED = r'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*"'
_NAME = r"[A-Za-z_][A-Za-z_0-9]*"
_TOKEN = re.compile(
    rf"""
    [{_SPACES}]*(?:
    %(?:[0-9]+(?![A-Za-z_0-9])|{_NAME}(?:/{_NAME})*|{_QUOTED})
  | {_NAME}(?:\.{_NAME})*
  | ->|=>|==|!=|<=|>=|\#\[
  | [-+*/<>=(){{}}\[\],;:?]
  | [0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?[A-Za-z_0-9]*
  | @(?:{_NAME}(?:[./]{_NAME})*|{_QUOTED})
  | {_QUOTED}
  | \.[0-9]+
  | [^{_SPACES}]
    )|[{_SPACES}]*\Z""",
    re.VERBOSE,
)
_TRIVIA = re.compile(rf"{_QUOTED}|//[^\n]*|/\*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_METADATA_LINE = re.compile(r"^[ \t]*#\[metadata\]", re.MULTILINE)
_VISIBLE = re.compile(r"[^\n]")


@dataclass(frozen=True)
class Tokens:
    """The tokens of a source, closed by an empty one, and the position behind each."""

    source: Source
    texts: list[str]
    ends: list[int]
    comments: list[tuple[int, int]]
    """Where each comment begins and ends."""
    metadata: int
    """Where the metadata section begins; the length of the text if there is none."""
    mistakes: list[Diagnostic]
    """Comments that are never closed."""

    def start(self, index: int) -> int:
        """The position of a token."""
        return self.ends[index] - len(self.texts[index])


def tokenize(source: Source) -> Tokens:
    """The tokens of a text, up to its metadata section.

    A character that begins no token is a piece of its own, which `stray_message` explains.
    """
    comments: list[tuple[int, int]] = []
    text, end, mistakes = source.text, len(source.text), []
    if "//" in text or "/*" in text:
        comments, unclosed = _comments(text)
        mistakes += [Diagnostic(pos, "this comment is never closed with '*/'", True) for pos in unclosed]
    end = _metadata_start(text, comments)
    comments = [span for span in comments if span[0] < end]
    pieces = _TOKEN.findall(_without(text, comments), 0, end)
    ends = list(accumulate(map(len, pieces)))
    texts = [piece.lstrip(_SPACE) for piece in pieces]
    return Tokens(source, texts, ends, comments, end, mistakes)


def unquote(text: str) -> str:
    """A name or string without quotes; raises ValueError for a bad escape."""
    return str(json.loads(text)) if text.startswith('"') else text


def _comments(text: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Where comments stand, and where one begins that never ends."""
    found: list[tuple[int, int]] = []
    pos = 0
    while match := _TRIVIA.search(text, pos):
        pos = match.end()
        if match.group() == "/*":
            closed = _comment_end(text, match.start())
            if closed is None:
                return [*found, (match.start(), len(text))], [match.start()]
            pos = closed
        if not match.group().startswith('"'):
            found.append((match.start(), pos))
    return found, []


def _comment_end(text: str, start: int) -> int | None:
    depth = 0
    for match in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if match.group() == "/*" else -1
        if depth == 0:
            return match.end()
    return None


def _metadata_start(text: str, comments: list[tuple[int, int]]) -> int:
    if METADATA not in text:
        return len(text)
    following = iter(comments)
    comment = next(following, None)
    for match in _METADATA_LINE.finditer(text):
        start = match.end() - len(METADATA)
        while comment and comment[1] <= start:
            comment = next(following, None)
        if comment is None or start < comment[0]:
            return start
    return len(text)


def _without(text: str, comments: list[tuple[int, int]]) -> str:
    """The text with spaces in place of comments, so that every position stays."""
    if not comments:
        return text
    parts: list[str] = []
    pos = 0
    for start, end in comments:
        parts += (text[pos:start], _VISIBLE.sub(" ", text[start:end]))
        pos = end
    return "".join([*parts, text[pos:]])


def stray_message(token: str) -> str | None:
    """What is wrong with a piece of text that is no token; None for a token."""
    if len(token) != 1 or token in PUNCTUATION or (token.isascii() and token.isalnum()) or token == "_":
        return None
    if token == '"':
        return "this quoted text is not closed on its line"
    if token in "%@":
        return f"'{token}' is not followed by a name"
    return f"unexpected character {json.dumps(token)}"
