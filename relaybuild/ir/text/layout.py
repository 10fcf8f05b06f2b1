"""The tokens of a module as nested groups of items, which is all that laying them out needs; knows no meaning.

A group is what a pair of brackets encloses. The items of a block and of the whole text are statements and definitions;
those of other groups stand between commas.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from relaybuild.dataclass import dataclass

_CLOSERS = frozenset((")", "]", "}"))
_OPENERS = frozenset(("(", "[", "{", "#["))

Part: TypeAlias = "int | Group"
"""A token, by its index, or a group."""


@dataclass
class Item:
    """Parts that stand together, and the separator behind them, if one is written."""

    parts: list[Part] = field(default_factory=list)
    separator: int | None = None

    @property
    def first(self) -> int:
        """The token it begins with."""
        head = self.parts[0]
        return head if isinstance(head, int) else head.opener


@dataclass
class Group:
    """What stands between two brackets; `is_block` tells statements from what stands between commas."""

    opener: int
    closer: int = -1
    is_block: bool = False
    items: list[Item] = field(default_factory=list)


def build_groups(texts: Sequence[str], line_ends: Collection[int]) -> list[Item]:
    """The definitions of a text; `line_ends` are the tokens before which a line's end stands for a semicolon."""
    root = Group(-1, is_block=True, items=[Item()])
    stack = [root]
    for index, token in enumerate(texts):
        top = stack[-1]
        if not token:
            break
        if token in _CLOSERS:
            top.closer = index
            _finish(top)
            stack.pop()
        elif token in (";" if top.is_block else ","):
            top.items[-1].separator = index
            top.items.append(Item())
        else:
            if _begins_item(texts, index, top, line_ends) and top.items[-1].parts:
                top.items.append(Item())
            if token in _OPENERS:
                group = Group(index, is_block=token == "{" and not _is_list(texts, top), items=[Item()])
                top.items[-1].parts.append(group)
                stack.append(group)
            else:
                top.items[-1].parts.append(index)
    _finish(root)
    return root.items


def all_groups(items: Sequence[Item]) -> Iterator[Group]:
    """Every group within items, outer before inner."""
    stack = [part for item in reversed(items) for part in reversed(item.parts) if isinstance(part, Group)]
    while stack:
        group = stack.pop()
        yield group
        stack += [part for item in reversed(group.items) for part in reversed(item.parts) if isinstance(part, Group)]


def _begins_item(texts: Sequence[str], index: int, group: Group, line_ends: Collection[int]) -> bool:
    """Whether an item begins here though nothing separates it from the one before."""
    if not group.is_block:
        return False
    if group.opener >= 0:
        return index in line_ends
    before = texts[index - 1] if index else ""
    parts = group.items[-1].parts
    after_header = bool(parts) and isinstance(parts[0], Group) and texts[parts[0].opener] == "#["
    return texts[index] in ("def", "extern") or (texts[index] == "type" and before != "extern") or after_header


def _is_list(texts: Sequence[str], parent: Group) -> bool:
    """Whether the brace that comes next in a group holds a match's clauses or a type's constructors."""
    parts = parent.items[-1].parts
    first = parts[0] if parts else None
    if parent.opener < 0 and isinstance(first, int) and texts[first] == "type":
        return True
    return _follows_match(texts, parts)


def _follows_match(texts: Sequence[str], parts: Sequence[Part]) -> bool:
    """`match`, `?` or nothing, a span or nothing, a parenthesis."""
    if not parts or not isinstance(parts[-1], Group) or texts[parts[-1].opener] != "(":
        return False
    before = parts[-1].opener - 1
    if texts[before] == "]" and len(parts) > 1 and isinstance(parts[-2], Group) and texts[parts[-2].opener] == "#[":
        before = parts[-2].opener - 1
    if texts[before] == "?":
        before -= 1
    return texts[before] == "match"


def _finish(group: Group) -> None:
    if not group.items[-1].parts:
        group.items.pop()
