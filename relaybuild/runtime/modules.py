"""Modules that are no libraries: files and bytes that the loader of their format or type key reads; knows no kind.

Loaders are registered functions, `runtime.module.loadfile_<format>(path)` and `runtime.module.loadbinary_<key>(bytes)`,
or come with the extension module under the same names; registered ones are asked first.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from relaybuild.errors import UserError
from relaybuild.registry import get_global_func, list_global_func_names
from relaybuild.runtime.blob import MAGIC, unframe
from relaybuild.runtime.module import Module, quoted

try:
    from relaybuild.runtime import _modules
except ImportError as error:
    raise ImportError(
        "the extension module relaybuild.runtime._modules is not built for this Python (it needs a C++ compiler, such "
        "as g++): install relaybuild with pip, or run 'python setup.py build_ext --inplace' in its checkout"
    ) from error

FILE_LOADER = "runtime.module.loadfile_"
BINARY_LOADER = "runtime.module.loadbinary_"

_LIBRARY = "so"


class DataModule(Module):
    """A module that a loader of the extension module made: data, and native code that runs it."""

    def __init__(self, native: _modules.NativeModule) -> None:
        self._native = native
        self.type_key = native.type_key

    @property
    def function_names(self) -> tuple[str, ...]:
        """The functions, in the order of the data."""
        return tuple(self._native.function_names())

    def get_function(self, name: str) -> Callable[..., object]:
        return self._native.get_function(name)

    @property
    def imported_modules(self) -> tuple[Module, ...]:
        return tuple(DataModule(native) for native in self._native.imports())

    def get_source(self, fmt: str = "") -> str:
        return self._native.get_source(fmt)

    def save_to_binary(self) -> bytes:
        """The module as `load_from_binary` takes it: checked when it is read, and kept by any file or database."""
        return self._native.save_to_binary()

    def __repr__(self) -> str:
        return f"<relaybuild Module of type '{self.type_key}' with {quoted(self.function_names)}>"


def load_file(path: Path, fmt: str | None = None) -> Module:
    """The module in a file of the format `fmt` (None: what save_to_binary() wrote, or the end of the file's name).

    Raises UserError for an unknown format, and for what its loader refuses.
    """
    if fmt is None and _is_frame(path):
        return load_from_binary("", path.read_bytes())
    chosen = path.suffix.removeprefix(".") if fmt is None else fmt
    registered = get_global_func(FILE_LOADER + chosen, allow_missing=True)
    if registered is not None:
        return _checked(registered(str(path)), FILE_LOADER + chosen)
    known = _known(FILE_LOADER)
    if chosen not in known:
        raise UserError(
            f"there is no loader '{FILE_LOADER}{chosen}' for the format '{chosen}', expected one of "
            f"{quoted([_LIBRARY, *known])}; a backend's runtime brings its own where its flag is on (examplejson: "
            f"USE_EXAMPLE_JSON), and register_func('{FILE_LOADER}{chosen}') adds one",
            where=str(path),
        )
    return DataModule(_modules.load_file(str(path), chosen))


def load_from_binary(type_key: str, data: bytes) -> Module:
    """The module in the bytes that save_to_binary() of a module of `type_key` ("" takes any) returned.

    Raises UserError for bytes that are cut short, were altered, or come from a later release, for a module of another
    type, and where there is no loader for it: then the flag that brings one is named.
    """
    frame = unframe(data)
    registered = get_global_func(BINARY_LOADER + frame.type_key, allow_missing=True)
    if registered is not None and type_key in ("", frame.type_key):
        return _checked(registered(frame.payload), BINARY_LOADER + frame.type_key)
    return DataModule(_modules.load_from_binary(type_key, data))


def _known(prefix: str) -> list[str]:
    """The formats or type keys that there are loaders for."""
    names = {*_modules.loader_names(), *list_global_func_names(prefix)}
    return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def _checked(module: Any, loader: str) -> Module:
    if not isinstance(module, Module):
        raise UserError(
            f"the loader '{loader}' returned a {type(module).__name__}, expected a relaybuild.runtime.Module"
        )
    return module


def _is_frame(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
