"""What a library is made of, and by which compilers; builds nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from relaybuild.build.cxx import CxxCompiler
from relaybuild.build.forms import Form
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.weights import WeightBlob
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError

_UNIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")
_SUFFIXES = {"c": ".c", "c++": ".cc"}

CXX_RUNTIME = "-lstdc++"
"""What the C++ library is for a linker."""


@dataclass(frozen=True)
class Unit:
    """One translation unit: the stem of its file, its text in `language` `c` or `c++`, and flags after those of the
    toolchain; its own include folders come behind the library's."""

    name: str
    text: str
    flags: tuple[str, ...] = ()
    language: str = "c"
    include_dirs: tuple[Path, ...] = ()

    @property
    def file_name(self) -> str:
        """The name of the file that holds the text."""
        return f"{self.name}{_SUFFIXES[self.language]}"


@dataclass(frozen=True)
class LibrarySpec:
    """What a library is made of, and in which form.

    Units are linked in the order given. `link_flags` come before the objects and after the toolchain's own;
    `link_files` are libraries, as files or words for the linker, behind the objects; `link_libs` are names for `-l`,
    and those that nothing needs are not recorded. Only symbols that the sources mark
    with default visibility are exported; who links an archive adds `-Wl,--exclude-libs,ALL` to hide its symbols.

    A static library, or an object, has no symbols but those named `public`; flags, files and libraries of links are its
    users' business.
    """

    name: str
    units: tuple[Unit, ...]
    include_dirs: tuple[Path, ...] = ()
    weights: WeightBlob | None = None
    link_flags: tuple[str, ...] = ()
    link_files: tuple[str, ...] = ()
    link_libs: tuple[str, ...] = ("m", "pthread", "dl")
    form: Form = Form.SHARED
    public: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compilers:
    """The compilers of a build, `cxx` None where no unit is in C++, and the objcopy where symbols become local."""

    c: Toolchain
    cxx: CxxCompiler | None = None
    objcopy: Path | None = None

    @property
    def stamp(self) -> str:
        """What tells these compilers from others."""
        return f"{self.c.digest}\n" + (f"{self.cxx.digest}\n" if self.cxx else "")

    @property
    def link_command(self) -> tuple[str, ...]:
        """What links begin with; never a launcher."""
        return self.cxx.link_command if self.cxx else self.c.compiler_command

    def of(self, unit: Unit) -> Toolchain | CxxCompiler:
        """The compiler of a unit's language; raises InternalError where there is none."""
        if unit.language == "c":
            return self.c
        if self.cxx is None:
            raise InternalError(f"the unit '{unit.name}' is in C++, but no compiler for it was given")
        return self.cxx


def link_words(spec: LibrarySpec) -> tuple[str, ...]:
    """What a program is linked with that is linked with a static library or an object; nothing for a shared library."""
    if spec.form is Form.SHARED:
        return ()
    runtime = (CXX_RUNTIME,) if any(unit.language == "c++" for unit in spec.units) else ()
    return (*spec.link_files, *runtime, *(f"-l{name}" for name in spec.link_libs))


def unique_units(units: Iterable[Unit]) -> list[Unit]:
    """The units in order, each name once; raises InternalError if one name stands for two texts."""
    by_name: dict[str, Unit] = {}
    for unit in units:
        if not _UNIT_NAME.fullmatch(unit.name):
            raise InternalError(f"'{unit.name}' cannot be the name of a translation unit")
        if by_name.setdefault(unit.name, unit) != unit:
            raise InternalError(f"two translation units are named '{unit.name}', but their text or flags differ")
    return list(by_name.values())
