"""The three kinds of error and their exit codes; knows nothing of what raises them."""

from __future__ import annotations

from collections.abc import Sequence


class RelayBuildError(Exception):
    """Base of all errors raised on purpose; `exit_code` is what the command line returns.

    `notes` are sentences added on the way up ("while importing graph 'main'"), printed after the message.
    """

    exit_code = 70

    def __init__(self, message: str, *, where: str | None = None, notes: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.notes = list(notes)

    def with_note(self, note: str) -> RelayBuildError:
        """Append a sentence of context and return the same error, so that callers write `raise e.with_note(...)`."""
        self.notes.append(note)
        return self

    def __str__(self) -> str:
        head = f"{self.where}: {self.message}" if self.where else self.message
        return "\n".join([head, *(f"  note: {note}" for note in self.notes)])


class UserError(RelayBuildError):
    """The model, a flag or the environment is at fault: one clear paragraph, no traceback, exit 1."""

    exit_code = 1


class TypeCheckError(UserError):
    """A program that does not type-check; `where` is the span of the call at fault.

    `errors` are the single mistakes where the message lists several, and the error itself where it is one.
    """

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        notes: Sequence[str] = (),
        errors: Sequence[TypeCheckError] = (),
    ) -> None:
        super().__init__(message, where=where, notes=notes)
        self.errors: tuple[TypeCheckError, ...] = tuple(errors) or (self,)


class UnsupportedError(UserError):
    """A well-formed model asks for what no backend can do."""


class ToolError(RelayBuildError):
    """A subprocess failed: its command, its exit code and its output; exit 2."""

    exit_code = 2

    def __init__(self, message: str, *, command: Sequence[str], returncode: int, output: str = "") -> None:
        super().__init__(message)
        self.command = list(command)
        self.returncode = returncode
        self.output = output

    def __str__(self) -> str:
        indented = "\n".join(f"    {line}" for line in self.output.rstrip().splitlines())
        parts = [super().__str__(), f"  command: {' '.join(self.command)}", f"  exit code: {self.returncode}"]
        return "\n".join([*parts, *([indented] if indented else [])])


class InternalError(RelayBuildError):
    """An invariant of relaybuild broke: traceback, exit 70."""
