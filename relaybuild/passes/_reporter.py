"""What passes find wrong with a program, collected so that one run reports all of it; knows no pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relaybuild.diagnostics import Source
from relaybuild.errors import RelayBuildError, UserError
from relaybuild.ir.expr import Expr, Span


class ErrorReporter:
    """Collects diagnostics. Errors end the pass that reported them; warnings are kept for whoever asks.

    A place in a text is shown with its line and a caret where the text is known: from `sources`, by the name that
    spans have for it, or from the file of that name.
    """

    def __init__(self, sources: Mapping[str, str] | None = None) -> None:
        self.sources = dict(sources or {})
        self.errors: list[UserError] = []
        self.warnings: list[UserError] = []

    def report(self, message: str, where: Expr | Span | str | None = None) -> None:
        """Record a mistake and go on; `where` is the expression at fault, its span, or a place in words."""
        self.errors.append(self._diagnostic(message, where))

    def warn(self, message: str, where: Expr | Span | str | None = None) -> None:
        """Record what is worth knowing, which does not end the pass."""
        self.warnings.append(self._diagnostic(message, where))

    def raise_all(self) -> None:
        """Raise what was recorded, if anything, and forget it."""
        errors, self.errors = self.errors, []
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise UserError(f"{len(errors)} errors:\n" + "\n".join(f"  {_indented(error)}" for error in errors))

    def attach_to(self, error: BaseException) -> None:
        """Add what was recorded to an error that ended the pass before it could be raised, and forget it."""
        errors, self.errors = self.errors, []
        for reported in errors:
            note = f"reported before: {reported}"
            if isinstance(error, RelayBuildError):
                error.with_note(note)
            elif hasattr(error, "add_note"):
                error.add_note(note)

    def _diagnostic(self, message: str, where: Expr | Span | str | None) -> UserError:
        span = where.span if isinstance(where, Expr) else where
        excerpt = self._excerpt(span) if isinstance(span, Span) else ""
        return UserError(message + excerpt, where=str(span) if span else None)

    def _excerpt(self, span: Span) -> str:
        """The line of a span and a caret, on lines of their own; empty where its text is not known."""
        text = self._text(span.source) if span.line else None
        if text is None or span.line > text.count("\n") + 1:
            return ""
        source = Source.of(text, span.source)
        return f"\n{source.excerpt(source.offset(span.line, span.column))}"

    def _text(self, name: str) -> str | None:
        if name not in self.sources:
            try:
                self.sources[name] = Path(name).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                return None
        return self.sources[name]


def _indented(error: UserError) -> str:
    return str(error).replace("\n", "\n  ")
