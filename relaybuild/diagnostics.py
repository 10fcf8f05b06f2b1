"""Texts with names, positions in them, and mistakes shown with their line and a caret; knows no language."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from relaybuild.dataclass import dataclass

_TAB = re.compile(r"[^\t]")


@dataclass(frozen=True)
class Source:
    """A text with a name, and the positions at which its lines begin."""

    name: str
    text: str
    line_starts: tuple[int, ...]

    @staticmethod
    def of(text: str, name: str) -> Source:
        """The source of a text that is called `name` in messages."""
        return Source(name, text, (0, *(match.end() for match in re.finditer("\n", text))))

    def position(self, pos: int) -> tuple[int, int]:
        """Line and column of a position, both counted from 1."""
        line = bisect_right(self.line_starts, pos)
        return line, pos - self.line_starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """The position of a line and a column, the inverse of `position`; the end of the text for a line past it."""
        return self.line_starts[line - 1] + column - 1 if line <= len(self.line_starts) else len(self.text)

    def where(self, pos: int) -> str:
        """`name:line:column`."""
        line, column = self.position(pos)
        return f"{self.name}:{line}:{column}"

    def excerpt(self, pos: int) -> str:
        """The line at a position, and a caret below it."""
        line, column = self.position(pos)
        start = self.line_starts[line - 1]
        end = self.line_starts[line] - 1 if line < len(self.line_starts) else len(self.text)
        text = self.text[start:end].rstrip("\r")
        return f"    {text}\n    {_TAB.sub(' ', text[: column - 1])}^"


@dataclass(frozen=True)
class Diagnostic:
    """One mistake at a position of a source.

    `is_syntax` tells a text that has no structure from one whose structure means nothing.
    """

    pos: int
    message: str
    is_syntax: bool = False

    def render(self, source: Source) -> str:
        """`name:line:column: message`, the line and the caret."""
        return f"{source.where(self.pos)}: {self.message}\n{source.excerpt(self.pos)}"


def nearest(name: str, known: Iterable[str], count: int = 1) -> list[str]:
    """Those of the known names that are most like a name, the most alike first; none where no name is."""
    from difflib import get_close_matches

    return get_close_matches(name, list(known), count)


def did_you_mean(name: str, known: Iterable[str], quote: str = "'{}'") -> str:
    """`; did you mean 'x'?` where something known is near, else "". `quote` is how a name is shown."""
    near = nearest(name, known)
    return f"; did you mean {quote.format(near[0])}?" if near else ""
