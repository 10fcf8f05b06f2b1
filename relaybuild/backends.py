"""Which backends are on, and what their regions of a module become in a library; knows no backend by name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from relaybuild.build.configure import BackendModule, BackendSettings, configure
from relaybuild.build.library import Unit
from relaybuild.build.share import share_dir
from relaybuild.errors import UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.module import IRModule
from relaybuild.partition.backend import HOST, Backend, CodegenOptions, GeneratedCode, all_backends, flat_types
from relaybuild.partition.c_text import Port
from relaybuild.partition.constants import constant_arguments
from relaybuild.partition.region_text import LibraryModule, RegionPorts, library_unit, region_unit
from relaybuild.runtime import elf
from relaybuild.runtime.blob import MAGIC, frame, unframe
from relaybuild.runtime.sources import module_sources

HOST_NAME = "host"

_SYSTEM_FOLDERS = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib")
"""Where the loader looks by itself."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Selection:
    """The backends beside the host that a configuration switches on, and what was found for each flag."""

    backends: tuple[Backend, ...] = ()
    settings: Mapping[str, BackendSettings] = field(default_factory=dict)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(backend.tag for backend in self.backends)

    def of(self, backend: Backend) -> BackendSettings | None:
        """What was found for a backend; None for one without a flag."""
        return self.settings.get(backend.cmake_flag)


@dataclass(frozen=True)
class Region:
    """A region of a module: its function's name there, its tensors, its backend, and what that made of it."""

    name: str
    ports: RegionPorts
    backend: Backend
    code: GeneratedCode


@dataclass(frozen=True)
class RegionSources:
    """What regions add to a library: units, and libraries that it is linked with."""

    units: tuple[Unit, ...] = ()
    link_files: tuple[str, ...] = ()


def select(
    config: str | Path | Mapping[str, object] | None,
    flags: Mapping[str, object] | None = None,
    *,
    cache_dir: Path | None = None,
) -> Selection:
    """The backends that are on: those whose flags are, and those without a flag, which a script has registered.

    `config` is the path of a `config.cmake`, or the flags themselves; `flags` win over it. A flag is ON, OFF, True,
    False or what its backend takes beside them. Raises UserError for flags that no backend knows and for libraries that
    are asked for and absent.
    """
    given = dict(flags or {})
    if isinstance(config, Mapping):
        given = {**config, **given}
        config = None
    backends = [backend for backend in all_backends().values() if backend.name != HOST_NAME]
    found: Mapping[str, BackendSettings] = {}
    if config is not None or given:
        texts = {name: _flag_text(value) for name, value in given.items()}
        modules = [BackendModule(each.name, each.cmake_flag, _cmake_file(each)) for each in backends if each.cmake_flag]
        found = configure(Path(config) if config is not None else None, texts, modules, cache_dir=cache_dir)
    on = {"", *(flag for flag, settings in found.items() if settings.enabled)}
    enabled = [each for each in backends if each.cmake_flag in on]
    return Selection(tuple(sorted(enabled, key=lambda backend: (-backend.priority, backend.tag))), found)


def _flag_text(value: object) -> str:
    return {True: "ON", False: "OFF"}[value] if isinstance(value, bool) else str(value)


def _cmake_file(backend: Backend) -> Path | None:
    if backend.cmake_module is None:
        return None
    own = backend.folder / backend.cmake_module if backend.folder is not None else None
    if own is not None and own.is_file():
        return own
    return share_dir() / "cmake" / "modules" / "contrib" / f"{backend.cmake_module}.cmake"


def generate_regions(module: IRModule, options: CodegenOptions, selection: Selection) -> tuple[Region, ...]:
    """What the backends make of the functions of a typed module that are marked for them.

    `options` are those of the whole program. Raises UserError for a function whose backend is unknown or off, for a
    symbol that is no C identifier, and for one that two functions have.
    """
    marked = {name: function for name, function in module.functions.items() if _tag_of(function) is not None}
    _check_symbols(marked)
    return tuple(_generate(name, function, module, options, selection) for name, function in marked.items())


def _tag_of(function: Function) -> str | None:
    tag = function.attrs.get("Compiler")
    return tag if isinstance(tag, str) and tag != HOST else None


def _check_symbols(marked: Mapping[str, Function]) -> None:
    owners: dict[str, str] = {}
    for name, function in marked.items():
        symbol = function.attrs.get("global_symbol")
        if not isinstance(symbol, str) or not _IDENTIFIER.fullmatch(symbol):
            raise UserError(f"'@{name}' has the 'global_symbol' {symbol!r}, expected a C identifier")
        if symbol in owners:
            raise UserError(f"'@{owners[symbol]}' and '@{name}' have the same 'global_symbol', '{symbol}'")
        owners[symbol] = name


def _generate(name: str, function: Function, module: IRModule, options: CodegenOptions, selection: Selection) -> Region:
    backend = _backend_of(name, function, selection)
    symbol = str(function.attrs["global_symbol"])
    ports = RegionPorts(symbol, backend.tag, _inputs(function), _outputs(function))
    own = replace(
        options,
        name=symbol,
        symbol=symbol,
        inputs=tuple(port.name for port in ports.inputs),
        outputs=tuple(port.name for port in ports.outputs),
        module=module,
        constants=constant_arguments(module, name),
    )
    return Region(name, ports, backend, backend.codegen(function, own))


def _backend_of(name: str, function: Function, selection: Selection) -> Backend:
    tag = _tag_of(function)
    backend = all_backends().get(tag or "")
    if backend is None:
        known = ", ".join(f"'{each}'" for each in sorted(all_backends()))
        raise UserError(f"'@{name}' is marked for the compiler '{tag}', but no backend has this tag; known are {known}")
    if backend.cmake_flag and backend.tag not in selection.tags:
        raise UserError(
            f"'@{name}' is marked for the compiler '{tag}', but its backend '{backend.name}' is off; switch it on with "
            f"-D {backend.cmake_flag}=ON or in config.cmake"
        )
    return backend


def _inputs(function: Function) -> tuple[Port, ...]:
    ports: list[Port] = []
    for param in function.params:
        kinds = flat_types(param.checked_type)
        plain = len(kinds) == 1
        ports += [
            Port(param.name_hint if plain else f"{param.name_hint}_{number}", kind) for number, kind in enumerate(kinds)
        ]
    return tuple(ports)


def _outputs(function: Function) -> tuple[Port, ...]:
    kinds = flat_types(function.body.checked_type)
    return tuple(Port(f"out{number}", kind) for number, kind in enumerate(kinds))


def region_sources(regions: Sequence[Region], selection: Selection, hot_flags: Sequence[str]) -> RegionSources:
    """Units that compute the regions of a library, with its table of them, and the libraries that they need.

    `hot_flags` are for units that carry arithmetic; what comes with a backend is compiled for every processor.
    """
    if not regions:
        return RegionSources()
    units: list[Unit] = []
    link_files: list[str] = []
    for backend in {region.backend.tag: region.backend for region in regions}.values():
        settings = selection.of(backend)
        include_dirs = (*((backend.folder,) if backend.folder else ()), *(settings.include_dirs if settings else ()))
        flags = tuple(f"-D{definition}" for definition in (settings.definitions if settings else ()))
        for region in regions:
            if region.backend.tag == backend.tag:
                units += [
                    Unit(unit.name, unit.text, (*flags, *(hot_flags if unit.hot else ())), unit.language, include_dirs)
                    for unit in region.code.units
                ]
        units += [_runtime_unit(backend, source, flags, include_dirs) for source in backend.runtime_sources]
        link_files += [each for each in (settings.libraries if settings else ()) if each not in link_files]
    adapters = [region_unit(region.ports, region.code, _framed(region)) for region in regions]
    adapters.append(library_unit(_modules(regions), "relaybuild", _sonames(link_files)))
    units += [Unit(unit.name, unit.text) for unit in adapters]
    if any(region.code.blob is not None for region in regions):
        units += [_plain_unit(path.stem, path, (), ()) for path in module_sources()]
    return RegionSources(tuple(units), (*link_files, *_run_paths(link_files)))


def _shared_libraries(link_files: Sequence[str]) -> list[Path]:
    return [Path(word) for word in link_files if os.path.isabs(word) and ".so" in Path(word).suffixes]


def _sonames(link_files: Sequence[str]) -> tuple[str, ...]:
    """The names by which the loader knows shared libraries."""
    files = _shared_libraries(link_files)
    return tuple(dict.fromkeys(elf.dynamic(file).soname or file.name for file in files))


def _run_paths(link_files: Sequence[str]) -> list[str]:
    """Words that tell where to look, at run time, for shared libraries outside of the system's folders."""
    folders = [file.parent for file in _shared_libraries(link_files)]
    strange = [folder for folder in folders if not any(folder.is_relative_to(known) for known in _SYSTEM_FOLDERS)]
    return [f"-Wl,-rpath,{folder}" for folder in dict.fromkeys(strange)]


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


def _runtime_unit(backend: Backend, source: str, flags: tuple[str, ...], include_dirs: tuple[Path, ...]) -> Unit:
    assert backend.folder is not None
    path = backend.folder / source
    return _plain_unit(f"{backend.name}_{path.stem}", path, flags, include_dirs)


def _plain_unit(name: str, path: Path, flags: tuple[str, ...], include_dirs: tuple[Path, ...]) -> Unit:
    language = "c" if path.suffix == ".c" else "c++"
    return Unit(name, path.read_text(encoding="utf-8"), flags, language, include_dirs)
