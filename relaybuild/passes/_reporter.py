"""What passes find wrong with a program, collected so that one run reports all of it; knows no pass."""

from __future__ import annotations

from relaybuild.errors import RelayBuildError, UserError
from relaybuild.ir.expr import Expr, Span


class ErrorReporter:
    """Collects diagnostics. Errors end the pass that reported them; warnings are kept for whoever asks."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []
        self.warnings: list[UserError] = []

    def report(self, message: str, where: Expr | Span | str | None = None) -> None:
        """Record a mistake and go on; `where` is the expression at fault, its span, or a place in words."""
        self.errors.append(UserError(message, where=_place(where)))

    def warn(self, message: str, where: Expr | Span | str | None = None) -> None:
        """Record what is worth knowing, which does not end the pass."""
        self.warnings.append(UserError(message, where=_place(where)))

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


def _place(where: Expr | Span | str | None) -> str | None:
    span = where.span if isinstance(where, Expr) else where
    return str(span) if span else None


def _indented(error: UserError) -> str:
    return str(error).replace("\n", "\n  ")
