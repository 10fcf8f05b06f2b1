"""What a loaded module offers whatever it was made of, and the way to load one; knows neither libraries nor formats."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaybuild.errors import UserError
from relaybuild.runtime import elf


class Module(ABC):
    """Functions by name, and the modules that bring more of them.

    A function is called with arrays, those that it reads before those that it writes: `f(a, b, out)`. Arrays are
    numpy's or anything with the buffer protocol or `__dlpack__`, in the CPU's memory. Inputs that are not C-contiguous
    and aligned are copied; outputs have to be. A UserError names the array that is wrong.
    """

    type_key: str
    """The name of the kind of module: `relaybuild` for a model, `library`, `c`, `examplejson`."""

    @property
    @abstractmethod
    def function_names(self) -> tuple[str, ...]:
        """The functions that are known by name."""

    @abstractmethod
    def get_function(self, name: str) -> Callable[..., object]:
        """The function of a name; it keeps alive what it needs. Raises UserError where there is none."""

    def __getitem__(self, name: str) -> Callable[..., object]:
        return self.get_function(name)

    def __call__(self, *inputs: object, **named: object) -> Any:
        """Only a model has a signature by which it can be called itself: any other raises UserError."""
        raise UserError(
            f"a module of type '{self.type_key}' is no model to be called: use get_function(name) with one of "
            f"{quoted(self.function_names) or 'no functions'}"
        )

    @property
    def imported_modules(self) -> tuple[Module, ...]:
        """The modules that this one brings along."""
        return ()

    def get_source(self, fmt: str = "") -> str:
        """A text that shows what the module is; "" where there is none."""
        return ""

    @abstractmethod
    def save_to_binary(self) -> bytes:
        """The module as bytes. Raises UserError where it cannot be without a library around it."""


def load_module(path: str | os.PathLike[str], fmt: str | None = None, *, threads: int | None = None) -> Module:
    """Loads a library, or another file of the format `fmt` (none: by its content, then by the end of its name).

    `threads` is how many one call of a model uses (None: `RELAYBUILD_NUM_THREADS`, else the model's own default). What
    comes of a model's library is a `Model`, which can be called.

    Raises UserError when the file is missing, is cut short, is neither a library nor of a known format, has another
    interface version, or when this machine's processor lacks what it was compiled for.
    """
    if fmt is not None and not isinstance(fmt, str):
        raise UserError(f"fmt is {fmt!r}, expected the name of a format; threads are given by name, threads={fmt!r}")
    location = Path(os.path.abspath(path))
    check_file(location)
    if _is_of_other_format(location) if not fmt else fmt != "so":
        from relaybuild.runtime.modules import load_file

        return load_file(location, fmt or None)
    from relaybuild.runtime.library import open_library

    return open_library(location, threads)


def quoted(names: tuple[str, ...] | list[str]) -> str:
    """The names in quotes, for an error's text."""
    return ", ".join(f"'{name}'" for name in names)


def _is_of_other_format(path: Path) -> bool:
    if path.suffix in ("", ".so"):
        return False
    with path.open("rb") as file:
        return file.read(len(elf.MAGIC)) != elf.MAGIC


def check_file(path: Path) -> None:
    """Raises UserError for a file that is not there, cannot be read, or is a library that lacks its end."""
    if not path.exists():
        raise UserError("there is no such file, expected a model library", where=str(path))
    if not path.is_file():
        raise UserError("is not a file, expected a model library", where=str(path))
    try:
        missing = elf.missing_bytes(path)
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if missing:
        raise UserError(f"the file is cut short, it lacks {missing} bytes: compile or copy it again", where=str(path))
