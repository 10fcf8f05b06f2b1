"""A place in a sequence of tokens: what is expected there, what is in scope, where to go on after a mistake.

Knows nothing of what the tokens mean, apart from brackets, `;`, and the words that begin a statement or a definition.
"""

from __future__ import annotations

from bisect import bisect_right
from string import ascii_letters
from typing import Any

from relaybuild.diagnostics import Diagnostic
from relaybuild.ir.expr import Expr, Span, Var
from relaybuild.ir.lexer import Tokens, stray_message, unquote
from relaybuild.ir.text.names import local_key

DIGITS = frozenset("0123456789")

_MAX_ERRORS = 20
_NAME_STARTS = frozenset(ascii_letters + '_"')
_CLOSERS = {"(": ")", "[": "]", "#[": "]", "{": "}"}
_set = object.__setattr__


class Fault(Exception):
    """A token that does not fit: ends the statement it stands in. Without a message it has been reported already."""

    def __init__(self, message: str, pos: int) -> None:
        super().__init__(message)
        self.message = message
        self.pos = pos


class TooManyErrors(Exception):
    """Enough mistakes to report at once."""


class Cursor:
    """Tokens and a place among them, the mistakes found so far, and the names in scope.

    `scope` maps local names (`%x`), nodes (`%0`) and type parameters (`type A`) to what they are; `undo` lists what
    each binding hid, so that leaving a scope costs what entering it did.
    """

    def __init__(self, tokens: Tokens) -> None:
        self.source = tokens.source
        self.tokens = tokens.texts
        self.ends = tokens.ends
        self.line_starts = tokens.source.line_starts
        self.at = 0
        self.errors: list[Diagnostic] = list(tokens.mistakes)
        self.scope: dict[str, Any] = {}
        self.undo: list[tuple[str, Any]] = []
        self.has_positions = True
        """Whether a node that has no span in the text gets its position for one."""
        self.line_ends: list[int] = []
        """Tokens before which a line's end stands for a semicolon."""

    # Tokens

    def start(self, at: int) -> int:
        """The position of a token."""
        return self.ends[at] - len(self.tokens[at])

    def accept(self, text: str) -> bool:
        """Step over a token if it is this one."""
        if self.tokens[self.at] == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Step over this token; raises Fault for another."""
        if self.tokens[self.at] != text:
            raise self.fault(f"expected '{text}'")
        self.at += 1

    def close(self, opener: int, alternatives: str = "',' or ") -> None:
        """Step over the bracket that closes the one at `opener`; raises Fault, which names both, for another token."""
        wanted = _CLOSERS[self.tokens[opener]]
        if self.tokens[self.at] != wanted:
            line, column = self.source.position(self.start(opener))
            raise self.fault(
                f"expected {alternatives}'{wanted}' to close the '{self.tokens[opener]}' at {line}:{column}"
            )
        self.at += 1

    def expect_kind(self, first: str, what: str) -> int:
        """Step over a token that begins so, and return its place; raises Fault for another."""
        if self.tokens[self.at][:1] != first:
            raise self.fault(f"expected {what}")
        self.at += 1
        return self.at - 1

    def fault(self, expected: str, at: int | None = None) -> Fault:
        """The fault of the token here, or at another place."""
        at = self.at if at is None else at
        token = self.tokens[at]
        stray = stray_message(token)
        if stray is not None:
            return Fault(stray, self.start(at))
        return Fault(f"found {_shown(token)}, {expected}", self.start(at))

    def at_name(self) -> bool:
        """Whether a bare or quoted name stands here."""
        return self.tokens[self.at][:1] in _NAME_STARTS

    def name_of(self, at: int) -> str:
        """The name a token writes; raises Fault for a bad escape."""
        token = self.tokens[at]
        if stray_message(token) is not None:
            raise self.fault("expected a name", at)
        bare = token[1:] if token[0] in "%@" else token
        try:
            return unquote(bare)
        except ValueError:
            raise Fault("this quoted text has an escape that JSON does not know", self.start(at)) from None

    def on_line_of_previous(self) -> bool:
        """Whether the token here stands on the line where the one before it ends."""
        return self.source.text.find("\n", self.ends[self.at - 1], self.start(self.at)) < 0

    def whole_number(self, what: str) -> int:
        """Step over digits and return their value; raises Fault for another token and for more than 18 digits."""
        token = self.tokens[self.at]
        if token[:1] not in DIGITS or not token.isdigit() or len(token) > 18:
            raise self.fault(f"expected {what}: a whole number")
        self.at += 1
        return int(token)

    # Mistakes

    def error(self, at: int, message: str) -> None:
        """Note a mistake that does not keep the text from being read on."""
        self.errors.append(Diagnostic(self.start(at), message))
        self._check_limit()

    def report(self, fault: Fault) -> None:
        """Note a fault as a mistake."""
        if fault.message:
            self.errors.append(Diagnostic(fault.pos, fault.message, is_syntax=True))
            self._check_limit()

    def _check_limit(self) -> None:
        if len(self.errors) >= _MAX_ERRORS:
            raise TooManyErrors

    def skip_statement(self, start: int) -> None:
        """Go from a fault to behind the `;` that ends the statement begun at `start`, or to what ends its block.

        A bracket that is open at the fault is closed by the statement's end. The next definition ends all blocks; a
        `let` or a graph binding at a line's beginning begins the next statement.
        """
        braces = 0
        fault, self.at = self.at, start
        while not self.at_definition():
            token = self.tokens[self.at]
            if token == "}" and not braces:
                return
            if not braces and self.at > max(fault, start) and self._begins_statement():
                return
            braces += (token == "{") - (token == "}")
            self.at += 1
            if token == ";" and not braces and self.at > fault:
                return

    def at_definition(self) -> bool:
        """Whether a definition begins here, or the text ends."""
        token = self.tokens[self.at]
        if token in ("def", "type", "extern"):
            following = self.tokens[self.at + 1]
            column = self.source.position(self.start(self.at))[1]
            return following[:1] in ("@", "#") if token == "def" else column == 1 and following not in ("=", ",", ")")
        return not token

    def _begins_statement(self) -> bool:
        token = self.tokens[self.at]
        starts = token == "let" or (token[:1] == "%" and self.tokens[self.at + 1] == "=")
        return starts and not self.on_line_of_previous()

    # Spans

    def span(self, at: int) -> Span | None:
        """The position of a token as a span; None where positions are no spans."""
        if not self.has_positions:
            return None
        pos = self.ends[at] - len(self.tokens[at])
        line = bisect_right(self.line_starts, pos)
        return Span(self.source.name, "", line, pos - self.line_starts[line - 1] + 1)

    def written_span(self, at: int) -> Span | None:
        """The span written here as `#[span(…)]`, or else that of a token's position."""
        return self.read_span() if self.tokens[self.at] == "#[" else self.span(at)

    def read_span(self) -> Span:
        """`#[span("source", "node", line, column)]`, each part but the first optional."""
        opener = self.at
        self.at += 1
        self.expect("span")
        inner = self.at
        self.expect("(")
        source = self.name_of(self.expect_kind('"', "a source in quotes"))
        name, line, column = "", 0, 0
        if self.tokens[self.at] == "," and self.tokens[self.at + 1][:1] == '"':
            self.at += 2
            name = self.name_of(self.at - 1)
        if self.accept(","):
            line = self.whole_number("a line")
            self.expect(",")
            column = self.whole_number("a column")
        self.close(inner)
        self.close(opener, "")
        return Span(source, name, line, column)

    def place(self, node: Expr, span: Span) -> Expr:
        """Give a node that was built just now the span that its text has."""
        _set(node, "span", span)
        return node

    # Scopes

    def key(self, at: int) -> str:
        """What a local name is called in `scope`; a variable called "1" is not node 1."""
        token = self.tokens[at]
        if len(token) == 1:
            raise self.fault("expected a variable", at)
        return token if token[1] != '"' else local_key(self.name_of(at))

    def bind(self, key: str, found: Any) -> None:
        """Bring a name into scope, hiding what it was."""
        scope = self.scope
        self.undo.append((key, scope.get(key)))
        scope[key] = found

    def leave(self, mark: int) -> None:
        """Undo all bindings since `undo` had this length."""
        while len(self.undo) > mark:
            key, old = self.undo.pop()
            if old is None:
                self.scope.pop(key, None)
            else:
                self.scope[key] = old

    def unknown(self) -> Expr:
        """What stands for an expression that could not be read: it has no type, so that nothing more is said of it."""
        return Var("error")


def _shown(token: str) -> str:
    if not token:
        return "the end of the text"
    return f"'{token}'" if len(token) <= 40 else f"'{token[:37]}...'"
