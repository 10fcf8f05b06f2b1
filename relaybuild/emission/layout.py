"""Which file of a folder each part of a library becomes, and how it is compiled; knows neither CMake nor a shell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from relaybuild.backends.sources import BackendSources
from relaybuild.build.bundle import File
from relaybuild.build.library_spec import LibrarySpec, Unit
from relaybuild.build.toolchain import CFLAGS
from relaybuild.dataclass import dataclass

Files: TypeAlias = Mapping[str, File]
"""Contents of files by their names in the folder."""

_NEUTRAL = ("-pipe", "-fdiagnostics-color=never")
"""Flags that do not change what is compiled."""

TEMPLATES = Path(__file__).parent / "_files"


@dataclass(frozen=True)
class Group:
    """Units that are compiled alike, in a folder of their own.

    `flags` come behind those of `base_flags`. `backend` is whose headers they read, and what was found for it.
    """

    folder: str
    language: str
    flags: tuple[str, ...]
    backend: BackendSources | None
    units: tuple[Unit, ...]

    @property
    def files(self) -> list[str]:
        """The names of the sources, sorted."""
        return sorted(f"{self.folder}/{unit.file_name}" for unit in self.units)

    @property
    def include_dirs(self) -> tuple[str, ...]:
        """Where headers are looked for, in order."""
        own = (f"backends/{self.backend.name}",) if self.backend is not None and self.backend.folder else ()
        return ("include", *own)


@dataclass(frozen=True)
class Parts:
    """What a folder is made of: a library, its header, what backends add, a file with the bytes of its weights."""

    title: str
    spec: LibrarySpec
    header: str
    backends: tuple[BackendSources, ...]
    weights: Path | None = None
    weights_digest: str = ""

    @property
    def is_cxx(self) -> bool:
        """Whether a C++ compiler is needed."""
        return any(unit.language == "c++" for unit in self.spec.units)


def base_flags(language: str) -> tuple[str, ...]:
    """The flags of every unit of a language."""
    flags = tuple(flag for flag in CFLAGS if flag not in _NEUTRAL)
    return flags if language == "c" else ("-std=gnu++17", *(flag for flag in flags if not flag.startswith("-std=")))


def groups(parts: Parts) -> list[Group]:
    """The units of a library by how they are compiled, in the order in which they come up."""
    owners = {name: backend for backend in parts.backends for name in backend.units}
    found: dict[tuple[str, tuple[str, ...], str], list[Unit]] = {}
    for unit in parts.spec.units:
        owner = owners.get(unit.name)
        flags = tuple(flag for flag in unit.flags if owner is None or flag not in owner.flags)
        units = found.setdefault((unit.language, flags, owner.name if owner else ""), [])
        if unit not in units:
            units.append(unit)
    taken: set[str] = set()
    made = []
    for (language, flags, name), units in found.items():
        folder = _folder(name or ("kernels" if flags else _PLAIN_FOLDERS[language]), taken)
        made.append(Group(folder, language, flags, owners.get(units[0].name), tuple(units)))
    return made


def common_files(parts: Parts, made: Sequence[Group]) -> dict[str, File]:
    """The sources and headers."""
    files: dict[str, File] = {f"include/{parts.spec.name}.h": parts.header.encode()}
    for folder in parts.spec.include_dirs:
        files.update(_headers(folder, "include"))
    for backend in parts.backends:
        if backend.folder is not None:
            files.update(_headers(backend.folder, f"backends/{backend.name}"))
    for group in made:
        files.update({f"{group.folder}/{unit.file_name}": unit.text.encode() for unit in group.units})
    return files


def filled(template: str, **values: str) -> str:
    """The text of a template, in which names stand between two signs `@`."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def part_rows(made: Sequence[Group]) -> str:
    """The rows of a table of folders."""
    rows = []
    for group in made:
        what = (
            f"what the backend {group.backend.name} computes" if group.backend else _ROWS.get(group.folder, "kernels")
        )
        rows.append(f"| `{group.folder}/` | {what} |")
    return "\n".join(rows)


_PLAIN_FOLDERS = {"c": "src", "c++": "cxx"}
_ROWS = {
    "src": "the program, and the runtime around it",
    "cxx": "what reads modules that backends made of regions",
    "kernels": "a file for each kernel",
}


def _headers(folder: Path, target: str) -> Iterator[tuple[str, File]]:
    for path in sorted(folder.rglob("*.h*")):
        if path.suffix in (".h", ".hpp"):
            yield f"{target}/{path.relative_to(folder).as_posix()}", path.read_bytes()


def _folder(base: str, taken: set[str]) -> str:
    """A folder's name that no other has; adds it to `taken`."""
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    taken.add(name)
    return name
