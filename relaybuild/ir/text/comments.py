"""Decides where in a laid out text each comment goes; knows items and groups of tokens, and nothing of their meaning.

An item is what may begin a line: a definition, a statement, a clause, one of the things between commas. A comment on a
line of its own before an item leads it. A `//` comment where a line can end stays there, if the group around it is
broken into lines, and a second one leads what follows; in the middle of an item it becomes `/* … */`. A `/* … */`
comment follows the token it follows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.lexer import Tokens

_OPENERS = frozenset(("(", "[", "{", "#["))
_CLOSERS = frozenset((")", "]", "}"))
_SEPARATORS = frozenset((",", ";"))


@dataclass(frozen=True)
class Lead:
    """A comment on lines of its own, and whether an empty line stands before it."""

    text: str
    after_blank: bool


@dataclass
class Placed:
    """Where comments go, by token."""

    leads: dict[int, list[Lead]] = field(default_factory=dict)
    """On lines before a token that begins an item, closes a group or ends the text."""
    inline: dict[int, list[str]] = field(default_factory=dict)
    """On the line of a token, behind it."""
    line_ends: dict[int, list[str]] = field(default_factory=dict)
    """At the end of the line that a token ends."""
    blanks: set[int] = field(default_factory=set)
    """Tokens before which an empty line stands."""


def place_comments(tokens: Tokens, firsts: Collection[int]) -> Placed:
    """Place all comments and empty lines; `firsts` are the tokens that begin items.

    Raises UserError for a `//` comment that cannot become `/* … */` because such marks stand in it.
    """
    found = Placed()
    starts = [tokens.start(index) for index in range(len(tokens.texts))]
    text = tokens.source.text
    count = len(tokens.texts)
    previous_end = 0
    comment = 0
    for index in range(count):
        is_own_line = index == 0
        while comment < len(tokens.comments) and tokens.comments[comment][1] <= starts[index]:
            start, end = tokens.comments[comment]
            body = text[start:end].rstrip()
            is_own_line = is_own_line or "\n" in text[previous_end:start]
            blank = text.count("\n", previous_end, start) > 1
            _place(found, tokens, firsts, index, Lead(body, blank), is_own_line, start)
            previous_end, comment = end, comment + 1
        if text.count("\n", previous_end, starts[index]) > 1:
            found.blanks.add(index)
        previous_end = tokens.ends[index]
        if not tokens.texts[index]:
            break
    return found


def _place(
    found: Placed, tokens: Tokens, firsts: Collection[int], index: int, lead: Lead, is_own_line: bool, pos: int
) -> None:
    """Place a comment that stands before token `index`."""
    texts = tokens.texts
    if is_own_line and (index in firsts or texts[index] in _CLOSERS or not texts[index]):
        found.leads.setdefault(index, []).append(lead)
        return
    behind = index - 1
    if not lead.text.startswith("//"):
        found.inline.setdefault(behind, []).append(lead.text)
        return
    if texts[index] in _SEPARATORS:
        behind, index = index, index + 1
    if texts[behind] in _OPENERS or index in firsts or texts[index] in _CLOSERS or not texts[index]:
        _end_line(found, behind, index, lead)
    else:
        found.inline.setdefault(behind, []).append(_as_block(lead.text, tokens, pos))


def _end_line(found: Placed, behind: int, index: int, lead: Lead) -> None:
    """Place a `//` comment behind a token; a second one there leads what follows, since one takes all of its line."""
    if behind in found.line_ends:
        found.leads.setdefault(index, []).append(lead)
    else:
        found.line_ends[behind] = [lead.text]


def _as_block(comment: str, tokens: Tokens, pos: int) -> str:
    body = comment.removeprefix("//").strip()
    if "/*" in body or "*/" in body:
        raise UserError(
            "this comment stands in the middle of a line that is laid out anew, and cannot become '/* … */' because "
            "such marks stand in it: move it to a line of its own",
            where=tokens.source.where(pos),
        )
    return f"/* {body} */"
