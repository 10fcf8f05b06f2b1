"""The forms that a compiled model takes, and what the files of each are called; makes none."""

from __future__ import annotations

import enum
from pathlib import Path

from relaybuild.errors import UserError

_SHARED_SUFFIXES = (".so", ".dylib", ".dll")


class Form(enum.Enum):
    """What becomes of a model: one file, which may be a library of either kind or an object, or a folder of sources."""

    SHARED = "shared"
    STATIC = "static"
    OBJECT = "object"
    PROJECT = "project"
    SOURCES = "sources"

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self in (Form.PROJECT, Form.SOURCES)

    @property
    def is_relocatable(self) -> bool:
        """Whether it is linked into a program, rather than loaded."""
        return self in (Form.STATIC, Form.OBJECT)

    @property
    def suffix(self) -> str:
        """What the name of its file ends in; a folder has one until it is put in its place."""
        return {Form.SHARED: ".so", Form.STATIC: ".a", Form.OBJECT: ".o"}.get(self, ".tar")

    def check_name(self, path: Path) -> None:
        """Raise UserError for a name that says that a file is of another form."""
        own = _SHARED_SUFFIXES if self is Form.SHARED else (self.suffix,)
        if path.suffix in (*_SHARED_SUFFIXES, ".a", ".o") and path.suffix not in own:
            expected = "the name of a folder" if self.is_folder else f"a name that ends in '{self.suffix}'"
            raise UserError(
                f"'{path}' is not a name for the form '{self.value}': expected {expected}; choose it, or another form"
            )

    def model_name(self, path: Path) -> str:
        """The name of a model whose output is at `path`: an archive `libdigits.a` is that of `digits`."""
        return path.stem.removeprefix("lib") or path.stem if self is Form.STATIC else path.stem


def form_named(name: str | Form) -> Form:
    """The form of a name; raises UserError."""
    try:
        return Form(name)
    except ValueError:
        known = ", ".join(f"'{form.value}'" for form in Form)
        raise UserError(f"'{name}' is no form of a compiled model, expected one of {known}") from None
