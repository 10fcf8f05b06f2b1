"""A module that is C or C++ text: what a code generator of a user's script returns. It knows no compiler.

Its text defines packed functions, as `relaybuild/packed.h` describes them: `__tvm_ffi_NAME` for each function NAME.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.registry import get_global_func
from relaybuild.runtime.module import Module, quoted

EXPORT_FUNCTION = "runtime.csource.export_library"
"""The registered function that compiles a module: `f(module, path, **options)`, see `relaybuild.packaging`."""

_LANGUAGES = {"c": "c", "cc": "c++", "cpp": "c++", "cxx": "c++"}


@dataclass(frozen=True)
class CSourceModule(Module):
    """C or C++ text as a module; `func_names` are functions that it is said to have, perhaps not all."""

    code: str
    fmt: str = "c"
    func_names: tuple[str, ...] = ()
    type_key = "c"

    @property
    def language(self) -> str:
        """`c` or `c++`."""
        return _LANGUAGES[self.fmt]

    @property
    def function_names(self) -> tuple[str, ...]:
        """What `func_names` says."""
        return self.func_names

    def get_source(self, fmt: str = "") -> str:
        """The text; in another format than its own there is none, and a UserError."""
        if fmt and _LANGUAGES.get(fmt) != self.language:
            raise UserError(f"the module has no source in the format '{fmt}', it is {self.language} text")
        return self.code

    def get_function(self, name: str) -> Callable[..., object]:
        """Always a UserError: text does not run before it is compiled."""
        raise UserError(
            f"the module is {self.language} text that is not compiled, and has no function '{name}' to call: "
            f"write a library with export_library(path), and load that with load_module(path)"
        )

    def save_to_binary(self) -> bytes:
        """Always a UserError: text becomes part of a library, not bytes in one."""
        raise UserError(f"the module is {self.language} text, which is compiled: use export_library(path)")

    def export_library(
        self,
        path: str | os.PathLike[str],
        *,
        cc: str | None = None,
        flags: Sequence[str] = (),
        include_dirs: Sequence[str | os.PathLike[str]] = (),
        link_files: Sequence[str] = (),
    ) -> None:
        """Compile the text into a shared library at `path`, complete or not at all.

        `cc` names the C compiler (default: as `relaybuild compile` finds it), `flags` are for compiling, `include_dirs`
        are searched behind relaybuild's own, `link_files` are libraries, as files or words for the linker. Raises
        ToolError with the compiler's words where the text does not compile.
        """
        export = get_global_func(EXPORT_FUNCTION)
        export(
            self,
            Path(path),
            cc=cc,
            flags=tuple(flags),
            include_dirs=tuple(Path(folder) for folder in include_dirs),
            link_files=tuple(link_files),
        )

    def __repr__(self) -> str:
        functions = f" with {quoted(self.func_names)}" if self.func_names else ""
        return f"<relaybuild Module of type 'c', {self.language} text{functions}>"


def csource_module_create(code: str, fmt: str = "c", func_names: Sequence[str] | None = None) -> CSourceModule:
    """A module of C text (`fmt` "c") or C++ text ("cc", "cpp", "cxx").

    Raises UserError for another format, for text without anything in it, and for a name in `func_names` that the text
    does not have.
    """
    if fmt not in _LANGUAGES:
        raise UserError(f"found the format '{fmt}', expected one of {', '.join(_LANGUAGES)}")
    if not isinstance(code, str) or not code.strip():
        raise UserError(f"found {code!r}, expected the text of a C source")
    names = tuple(func_names or ())
    words = set(re.findall(r"\w+", code)) if names else set()
    for name in names:
        if name not in words and f"__tvm_ffi_{name}" not in words:
            raise UserError(f"'func_names' has '{name}', which the text does not define: expected '__tvm_ffi_{name}'")
    return CSourceModule(code, fmt, names)
