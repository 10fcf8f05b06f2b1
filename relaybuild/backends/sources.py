"""What regions add to a library: units that compute them, its table of them, libraries to link; knows no backend."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from relaybuild.backends.generation import Region
from relaybuild.backends.selection import Selection, cmake_file
from relaybuild.build.configure import BackendSettings
from relaybuild.build.library_spec import CXX_RUNTIME, Unit
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.partition.backend import Backend, SourceUnit, all_backends
from relaybuild.partition.region_text import LibraryModule, library_unit, region_unit
from relaybuild.runtime import elf
from relaybuild.runtime.blob import MAGIC, frame, unframe
from relaybuild.runtime.sources import cxx_sources, module_sources


@dataclass(frozen=True)
class BackendSources:
    """What one backend adds to a library.

    `units` are the names of its own, which read headers of `folder`; `flags` are those among theirs that stand for what
    was found on this machine. `cmake_file` is the CMake module that finds it on another one.
    """

    name: str
    flag: str
    folder: Path | None
    cmake_file: Path | None
    units: frozenset[str]
    flags: tuple[str, ...]
    regions: tuple[str, ...]


@dataclass(frozen=True)
class RegionSources:
    """What regions add to a library: units, and libraries that it is linked with; and which backend adds what."""

    units: tuple[Unit, ...] = ()
    link_files: tuple[str, ...] = ()
    backends: tuple[BackendSources, ...] = ()


@dataclass(frozen=True)
class _Brought:
    """A backend with what was found for it: how its units are compiled."""

    backend: Backend
    settings: BackendSettings | None

    @property
    def include_dirs(self) -> tuple[Path, ...]:
        own = (self.backend.folder,) if self.backend.folder is not None else ()
        return (*own, *(self.settings.include_dirs if self.settings else ()))

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(f"-D{definition}" for definition in (self.settings.definitions if self.settings else ()))

    @property
    def libraries(self) -> tuple[str, ...]:
        return self.settings.libraries if self.settings else ()

    def unit(self, unit: SourceUnit, hot_flags: Sequence[str]) -> Unit:
        """A generated unit."""
        flags = (*self.flags, *unit.compiler_flags(hot_flags))
        return Unit(unit.name, unit.text, flags, unit.language, self.include_dirs)

    def runtime_units(self, hot_flags: Sequence[str]) -> list[Unit]:
        """What comes with the backend: it may carry arithmetic, and is compiled for every processor of its kind."""
        if self.backend.folder is None:
            return []
        files = [self.backend.folder / source for source in self.backend.runtime_sources]
        flags = (*hot_flags, *self.flags)
        return [_file_unit(f"{self.backend.name}_{file.stem}", file, flags, self.include_dirs) for file in files]


def region_sources(
    regions: Sequence[Region], selection: Selection, hot_flags: Sequence[str], plain_flags: Sequence[str]
) -> RegionSources:
    """What the regions of a library need; `hot_flags` are for units that carry arithmetic for the library's target,
    `plain_flags` for those that carry it for every processor.

    Raises UserError for a blob whose type key no backend has a runtime for.
    """
    if not regions:
        return RegionSources()
    brought = {tag: _Brought(each, selection.of(each)) for tag, each in _needed_backends(regions).items()}
    units = [brought[region.backend.tag].unit(unit, hot_flags) for region in regions for unit in region.code.units]
    units += [unit for each in brought.values() for unit in each.runtime_units(plain_flags)]
    libraries = tuple(dict.fromkeys(library for each in brought.values() for library in each.libraries))
    tables = [region_unit(region.ports, region.code, _framed(region)) for region in regions]
    tables.append(library_unit(_modules(regions), "relaybuild", _sonames(libraries)))
    units += [Unit(unit.name, unit.text) for unit in tables]
    if any(region.code.blob is not None for region in regions):
        units += [_file_unit(file.stem, file) for file in module_sources()]
    if any(unit.language == "c++" for unit in units):
        units += [_file_unit(file.stem, file) for file in cxx_sources()]
    return RegionSources(tuple(units), libraries, tuple(_by_backend(brought.values(), regions)))


def possible_libraries(selection: Selection) -> tuple[str, ...]:
    """What a linker may need beside a static library, whichever of the backends that are on have regions in it.

    The C++ runtime is among it wherever there are any: nothing tells of a generator what it writes.
    """
    settings = filter(None, map(selection.of, selection.backends))
    libraries = dict.fromkeys(library for each in settings for library in each.libraries)
    return (*libraries, CXX_RUNTIME) if selection.backends else ()


def _by_backend(brought: Iterable[_Brought], regions: Sequence[Region]) -> Iterable[BackendSources]:
    for each in brought:
        backend = each.backend
        own = [region for region in regions if region.backend.tag == backend.tag]
        names = [unit.name for region in own for unit in region.code.units]
        names += [unit.name for unit in each.runtime_units(())]
        read = [region for region in regions if region.code.blob and region.code.blob.type_key == backend.type_key]
        symbols = tuple(dict.fromkeys(region.ports.symbol for region in (*own, *read)))
        place = cmake_file(backend)
        yield BackendSources(
            backend.name, backend.cmake_flag, backend.folder, place, frozenset(names), each.flags, symbols
        )


def _needed_backends(regions: Iterable[Region]) -> dict[str, Backend]:
    """The backends of regions, and those whose runtimes their blobs need, by tag."""
    needed: dict[str, Backend] = {}
    for region in regions:
        needed[region.backend.tag] = region.backend
        blob = region.code.blob
        if blob is not None and blob.type_key != region.backend.type_key:
            runtime = _runtime_of(blob.type_key, region.ports.symbol)
            needed[runtime.tag] = runtime
    return needed


def _runtime_of(type_key: str, symbol: str) -> Backend:
    for backend in all_backends().values():
        if backend.type_key == type_key:
            return backend
    known = ", ".join(sorted(repr(each.type_key) for each in all_backends().values() if each.type_key)) or "none"
    raise UserError(
        f"region '{symbol}' became a module of the type key '{type_key}', for which no backend brings a runtime; known "
        f"are {known}"
    )


def _shared_libraries(link_files: Sequence[str]) -> list[Path]:
    return [Path(word) for word in link_files if os.path.isabs(word) and ".so" in Path(word).suffixes]


def _sonames(link_files: Sequence[str]) -> tuple[str, ...]:
    """The names by which the loader knows shared libraries."""
    files = _shared_libraries(link_files)
    return tuple(dict.fromkeys(elf.dynamic(file).soname or file.name for file in files))


def _modules(regions: Sequence[Region]) -> list[LibraryModule]:
    """Blobs are modules by themselves; the code of all C regions is one."""
    code = tuple(region.ports.symbol for region in regions if region.code.blob is None)
    blobs = [LibraryModule(r.code.blob.type_key, (r.ports.symbol,)) for r in regions if r.code.blob is not None]
    return [*([LibraryModule("c", code)] if code else []), *blobs]


def _framed(region: Region) -> bytes | None:
    blob = region.code.blob
    if blob is None:
        return None
    # what a module of the runtime wrote is in a frame that names no flag
    data = unframe(blob.data).payload if blob.data.startswith(MAGIC) else blob.data
    return frame(blob.type_key, region.backend.cmake_flag, data)


def _file_unit(name: str, file: Path, flags: tuple[str, ...] = (), include_dirs: tuple[Path, ...] = ()) -> Unit:
    language = "c" if file.suffix == ".c" else "c++"
    return Unit(name, file.read_text(encoding="utf-8"), flags, language, include_dirs)
