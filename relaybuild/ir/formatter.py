"""Lays out a module's text: one way to write what is written, comments kept; changes no name, no order, no spelling.

Every statement and every definition begins a line, blocks are indented by two spaces, a semicolon stands where a
line's end stood for one. What would be longer than 100 columns is broken at commas, one thing a line, or, where there
are none, before infix operators. One empty line between statements or definitions is kept. Laying out what is laid out
changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.diagnostics import Source
from relaybuild.errors import InternalError
from relaybuild.ir.lexer import Tokens, tokenize
from relaybuild.ir.parser import read_layout
from relaybuild.ir.text.comments import Lead, Placed, place_comments
from relaybuild.ir.text.layout import Group, Item, Part, all_groups, build_groups
from relaybuild.ir.trampoline import Step, run

WIDTH = 100

_MAX_INDENT = 40
_INFIX = frozenset(("*", "/", "+", "-", "<", "<=", ">", ">=", "==", "!="))
_OPENERS = frozenset(("(", "[", "#["))
_TIGHT = frozenset((",", ";", ")", "]", ":"))
_NO_CALLEES = frozenset(("if", "match", "else", "?", ",", "=>", "->", "=", ":", *_INFIX))
_BEFORE_OPERAND = frozenset(("(", "[", "{", ",", ";", "=", "=>", ":", *_INFIX))


def format_text(text: str, source_name: str = "<text>") -> str:
    """The text of a module, laid out. The metadata section stays as it is.

    Raises ParseError for a text whose structure cannot be read, and UserError for a comment that there is no place for.
    """
    source = Source.of(text, source_name)
    tokens, line_ends = read_layout(source)
    laid_out = _Layout(tokens, line_ends).text()
    metadata = text[tokens.metadata :]
    result = laid_out + (metadata if metadata.endswith("\n") or not metadata else metadata + "\n")
    _check_same(tokens, tokenize(Source.of(result, source_name)))
    return result


def _check_same(before: Tokens, after: Tokens) -> None:
    """Nothing may be lost on the way, however odd the text."""
    if _essence(before) != _essence(after) or len(before.comments) != len(after.comments):
        raise InternalError("the layout of a text has other tokens or comments than the text", where=before.source.name)


def _essence(tokens: Tokens) -> list[str]:
    return [token for token in tokens.texts if token and token not in (",", ";")]


class _Layout:
    """Lays out one text."""

    def __init__(self, tokens: Tokens, line_ends: Sequence[int]) -> None:
        self.texts = tokens.texts
        self.items = build_groups(tokens.texts, frozenset(line_ends))
        self.groups = list(all_groups(self.items))
        lists = [self.items, *(group.items for group in self.groups)]
        firsts = {item.first for items in lists for item in items}
        self.comments: Placed = place_comments(tokens, firsts)
        self.parents = {part: group for group in self.groups for item in group.items for part in self._tokens_of(item)}
        self.pieces = [self._piece(index) for index in range(len(tokens.texts))]
        self.gaps = [self._gap(index) for index in range(len(tokens.texts))]
        self.lengths: dict[int, int] = {}
        self.broken: set[int] = set()
        """Groups that cannot stand on one line, by their openers."""
        for group in reversed(self.groups):
            self._measure(group)
        self.out: list[str] = []
        self.column = 0

    def text(self) -> str:
        """The laid out text."""
        run(self._lines(self.items, 0, "", ""))
        for lead in self.comments.leads.get(self._end(), ()):
            self._lead(lead, 0)
        return "".join(self.out)

    def _end(self) -> int:
        return self.texts.index("")

    # What pieces are, and the spaces between them

    def _tokens_of(self, item: Item) -> list[int]:
        return [part if isinstance(part, int) else part.opener for part in item.parts]

    def _piece(self, index: int) -> str:
        return " ".join([self.texts[index], *self.comments.inline.get(index, ())])

    def _gap(self, index: int) -> str:
        """The space before a token, if the one before it stands on its line."""
        token = self.texts[index]
        before = self.texts[index - 1] if index else ""
        if token in _TIGHT or token[:1] == "." or before in _OPENERS or not before:
            return ""
        if self._is_attribute(index) or self._is_attribute(index - 1):
            return ""
        if before == "-" and (index == 1 or self.texts[index - 2] in _BEFORE_OPERAND or self._begins_item(index - 1)):
            return ""
        if token == "(":
            return " " if before in _NO_CALLEES or (before == "fn" and self._is_function(index)) else ""
        if token == "?" and before == "match":
            return ""
        if token == "[":
            return " " if before in _NO_CALLEES else ""
        return " "

    def _begins_item(self, index: int) -> bool:
        return self.texts[index - 1] == "}"

    def _is_attribute(self, index: int) -> bool:
        """Whether a token is the `=` of `name=value`."""
        parent = self.parents.get(index)
        before = self.texts[index - 1] if index else ""
        inside = parent is not None and self.texts[parent.opener] == "("
        return self.texts[index] == "=" and inside and before[:1] != "%"

    def _is_function(self, index: int) -> bool:
        """Whether `(` after `fn` begins parameters, not a type's arguments."""
        inner = self.texts[index + 1]
        if inner == ")":
            return self.texts[index + 2] == "{" or self.texts[index - 2] not in (":", "->")
        return inner[:1] == "%" or self.texts[index + 2] == "="

    # Measures

    def _measure(self, group: Group) -> None:
        """The length of a group on one line, and whether it can stand on one; those within it are known."""
        opener, closer = group.opener, group.closer
        leads, line_ends = self.comments.leads, self.comments.line_ends
        must_break = self.texts[opener] == "{" and bool(group.items)
        must_break |= opener in line_ends or closer in leads
        length = len(self.pieces[opener]) + len(self.pieces[closer])
        for item in group.items:
            inner = [part.opener for part in item.parts if isinstance(part, Group)]
            ends = [item.separator, self._last(item)]
            must_break |= item.first in leads or any(end in line_ends for end in ends)
            must_break |= any(opener in self.broken for opener in inner)
            length += self._length(item.parts) + 2
        self.lengths[opener] = length - 2 * bool(group.items) + len(self._closing_comma(group))
        if must_break:
            self.broken.add(opener)

    def _last(self, item: Item) -> int:
        tail = item.parts[-1]
        return tail if isinstance(tail, int) else tail.closer

    def _length(self, parts: Sequence[Part]) -> int:
        total = 0
        for position, part in enumerate(parts):
            index = part if isinstance(part, int) else part.opener
            gap = self.gaps[index] if position else ""
            total += len(gap) + (len(self.pieces[part]) if isinstance(part, int) else self.lengths[index])
        return total

    # Lines

    def _write(self, text: str) -> None:
        self.out.append(text)
        newline = text.rfind("\n")
        self.column = self.column + len(text) if newline < 0 else len(text) - newline - 1

    def _newline(self, indent: int) -> None:
        self._write("\n" + "  " * min(indent, _MAX_INDENT))

    def _lead(self, lead: Lead, indent: int) -> None:
        blank = "\n" if lead.after_blank and self.out else ""
        self._write(f"{blank}{'  ' * min(indent, _MAX_INDENT)}{lead.text}\n")

    def _line_end(self, *indices: int | None) -> None:
        for index in indices:
            for comment in self.comments.line_ends.get(-1 if index is None else index, ()):
                self._write(f" {comment}")

    def _lines(self, items: Sequence[Item], indent: int, separator: str, closing: str) -> Step[None]:
        """Items on lines of their own, with what separates them and what stands behind the last."""
        for position, item in enumerate(items):
            self._before(item, indent, position > 0)
            self._write("  " * min(indent, _MAX_INDENT))
            yield self._sequence(item.parts, indent, separator)
            self._write(self._separator(item, closing if position == len(items) - 1 else separator))
            self._line_end(self._last(item), item.separator)
            self._write("\n")

    def _before(self, item: Item, indent: int, may_be_blank: bool) -> None:
        leads = self.comments.leads.get(item.first, ())
        for position, lead in enumerate(leads):
            self._lead(Lead(lead.text, lead.after_blank and (may_be_blank or position > 0)), indent)
        if item.first in self.comments.blanks and (may_be_blank or leads):
            self._write("\n")

    def _separator(self, item: Item, separator: str) -> str:
        """What stands behind an item, and the comments that stood behind its separator."""
        return " ".join([separator, *self.comments.inline.get(-1 if item.separator is None else item.separator, ())])

    def _sequence(self, parts: Sequence[Part], indent: int, separator: str) -> Step[None]:
        """Parts from where the line is, broken where they do not fit."""
        for position, part in enumerate(parts):
            index = part if isinstance(part, int) else part.opener
            gap = self.gaps[index] if position else ""
            if isinstance(part, Group):
                self._write(gap)
                yield self._group(part, indent, self._tail(parts, position + 1))
                continue
            if position and self._is_infix(index) and not self._fits(parts, position):
                self._newline(indent + 2)
                gap = ""
            self._write(gap + self.pieces[index])

    def _is_infix(self, index: int) -> bool:
        return self.texts[index] in _INFIX and self.gaps[index + 1] == " "

    def _fits(self, parts: Sequence[Part], position: int) -> bool:
        """Whether an operator and its operand end within the line."""
        length = 2
        for part in parts[position + 1 :]:
            index = part if isinstance(part, int) else part.opener
            if index in self.broken:
                return True
            if isinstance(part, int) and self._is_infix(index):
                break
            length += len(self.gaps[index]) + (
                len(self.pieces[index]) if isinstance(part, int) else self.lengths[index]
            )
        return self.column + length < WIDTH

    def _tail(self, parts: Sequence[Part], position: int) -> int:
        """How long the line goes on behind a group before it can be broken again."""
        length = 1
        for part in parts[position:]:
            index = part if isinstance(part, int) else part.opener
            length += len(self.gaps[index]) + len(self.pieces[index])
            if isinstance(part, Group) and (part.items or index in self.broken):
                break
        return length

    # Groups

    def _group(self, group: Group, indent: int, tail: int) -> Step[None]:
        opener, closer = group.opener, group.closer
        if opener not in self.broken and (self.column + self.lengths[opener] + tail <= WIDTH or not group.items):
            self._write(self._flat(group))
        elif self._is_hugged(group):
            self._write(self.pieces[opener])
            yield self._sequence(group.items[0].parts, indent, "")
            self._write(self._separator(group.items[0], self._closing_comma(group)) + self.pieces[closer])
        else:
            self._write(self.pieces[opener])
            self._line_end(opener)
            self._write("\n")
            if self._is_filled(group):
                self._fill(group, indent + 1)
            else:
                yield self._lines(group.items, indent + 1, *self._separators(group))
            for lead in self.comments.leads.get(closer, ()):
                self._lead(Lead(lead.text, lead.after_blank and bool(group.items)), indent + 1)
            self._write("  " * min(indent, _MAX_INDENT) + self.pieces[closer])

    def _separators(self, group: Group) -> tuple[str, str]:
        """What stands between the items of a group on lines, and what behind the last."""
        if group.is_block:
            return ";", ";" if group.items and group.items[-1].separator is not None else ""
        return ",", "," if self.texts[group.opener] == "{" else self._closing_comma(group)

    def _flat(self, group: Group) -> str:
        """A group on one line."""
        out: list[str] = []
        stack: list[str | Part | Item] = [group]
        while stack:
            top = stack.pop()
            if isinstance(top, str):
                out.append(top)
            elif isinstance(top, int):
                out.append(self.pieces[top])
            elif isinstance(top, Group):
                stack.extend(reversed(list(self._flat_group(top))))
            else:
                stack.extend(reversed(list(self._flat_item(top))))
        return "".join(out)

    def _flat_group(self, group: Group) -> list[str | Part | Item]:
        parts: list[str | Part | Item] = [self.pieces[group.opener]]
        for position, item in enumerate(group.items):
            parts.append(item)
            is_last = position == len(group.items) - 1
            parts.append(
                self._separator(item, self._closing_comma(group)) if is_last else self._separator(item, ",") + " "
            )
        return [*parts, self.pieces[group.closer]]

    def _flat_item(self, item: Item) -> list[str | Part | Item]:
        parts: list[str | Part | Item] = []
        for position, part in enumerate(item.parts):
            if position:
                parts.append(self.gaps[part if isinstance(part, int) else part.opener])
            parts.append(part)
        return parts

    def _closing_comma(self, group: Group) -> str:
        """The comma that makes a parenthesis a tuple of one."""
        is_tuple = self.texts[group.opener] == "(" and len(group.items) == 1 and group.items[0].separator is not None
        return "," if is_tuple and (self.gaps[group.opener] or not self._follows_callee(group.opener)) else ""

    def _follows_callee(self, opener: int) -> bool:
        before = self.texts[opener - 1] if opener else ""
        return before not in _OPENERS and before not in ("", "{", ";", ",", "=", "-") and before not in _NO_CALLEES

    def _is_hugged(self, group: Group) -> bool:
        """Whether brackets stay close around the one thing in them that is broken by itself."""
        if len(group.items) != 1 or self.texts[group.opener] == "{" or group.opener in self.comments.line_ends:
            return False
        (item,) = group.items
        ends = [item.separator, self._last(item)]
        has_comments = item.first in self.comments.leads or group.closer in self.comments.leads
        has_comments |= any(end in self.comments.line_ends for end in ends)
        is_group = len(item.parts) == 1 and isinstance(item.parts[0], Group)
        is_broken = any(isinstance(part, Group) and part.opener in self.broken for part in item.parts)
        return not has_comments and (is_group or is_broken)

    def _is_filled(self, group: Group) -> bool:
        """Whether a group holds numbers alone, many on a line."""
        if group.opener in self.broken or len(group.items) < 2:
            return False
        return all(all(isinstance(part, int) and self._is_number(part) for part in item.parts) for item in group.items)

    def _is_number(self, index: int) -> bool:
        return self.texts[index][:1].isdigit() or self.texts[index] == "-"

    def _fill(self, group: Group, indent: int) -> None:
        self._write("  " * min(indent, _MAX_INDENT))
        for position, item in enumerate(group.items):
            text = "".join(self.pieces[part] for part in item.parts if isinstance(part, int))
            if position and self.column + len(text) + 2 > WIDTH:
                self._newline(indent)
            elif position:
                self._write(" ")
            self._write(text + self._separator(item, ","))
        self._write("\n")
