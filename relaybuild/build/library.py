"""Turns C and C++ sources and a blob of weights into one shared library; does not know what they compute.

A build directory is a ninja project:

    src/<unit>.c, .cc       one translation unit each
    obj/<unit>.o            its object
    obj/weights-<digest>.o  the weights (on machines without an object writer: src/weights-<digest>.bin and .S)
    .relaybuild             the compiler's digest, on which every object depends; marks the directory as ours
    build.ninja, library    what ninja reads, what it makes

It can be used again: only what changed is done again, and what no longer belongs to it is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relaybuild.build.cxx import CxxCompiler
from relaybuild.build.files import check_writable, make_folder, no_space, publish, write_if_changed, writing
from relaybuild.build.ninja import FinishedEdge, NinjaWriter, Ref, run_ninja
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.weights import WeightBlob as WeightBlob
from relaybuild.build.weights import WeightFiles, check_weights, weight_files, write_weights
from relaybuild.errors import InternalError, ToolError, UserError

_UNIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")
_OBJECT, _LINK = "object", "link"
_SUFFIXES = {"c": ".c", "c++": ".cc"}
_RULES = {"c": "compile", "c++": "compile_cxx"}
_LIBRARY = "library"
_STAMP = ".relaybuild"
_OWN_FILES = ("build.ninja", _STAMP, _LIBRARY, f"{_LIBRARY}.rsp", ".ninja_log", ".ninja_deps", ".ninja_lock")


@dataclass(frozen=True)
class Unit:
    """One translation unit: the stem of its file, its text in `language` `c` or `c++`, and flags after those of the
    toolchain; its own include folders come behind the library's."""

    name: str
    text: str
    flags: tuple[str, ...] = ()
    language: str = "c"
    include_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class LibrarySpec:
    """What a shared library is made of.

    Units are linked in the order given. `link_flags` come before the objects and after the toolchain's own;
    `link_files` are libraries, as files or words for the linker, behind the objects; `link_libs` are names for `-l`,
    and those that nothing needs are not recorded. Only symbols that the sources mark
    with default visibility are exported; who links an archive adds `-Wl,--exclude-libs,ALL` to hide its symbols.
    """

    name: str
    units: tuple[Unit, ...]
    include_dirs: tuple[Path, ...] = ()
    weights: WeightBlob | None = None
    link_flags: tuple[str, ...] = ()
    link_files: tuple[str, ...] = ()
    link_libs: tuple[str, ...] = ("m", "pthread", "dl")


@dataclass(frozen=True)
class BuildReport:
    """What a build did: steps that ran and steps that were up to date, by layer (`object`, `link`).

    `seconds` are wall-clock times of `write` (sources), `weights`, `object`, `link` and `publish`; `size` is the
    library's, in bytes.
    """

    output: Path
    size: int
    executed: Mapping[str, int]
    cached: Mapping[str, int]
    seconds: Mapping[str, float]


def build_library(
    spec: LibrarySpec,
    toolchain: Toolchain,
    directory: Path,
    output: Path,
    *,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    keep: bool = False,
    cxx: CxxCompiler | None = None,
) -> BuildReport:
    """Compile and link `spec` in `directory` and put the library at `output`, complete or not at all.

    Units in C++ need `cxx`, which then links, too.

    At most `jobs` compilers run at a time; `on_progress(finished, total)` is called after each step that had to run.
    With `keep` the directory stays as it is, for the next build or to be looked at; otherwise what the build put there
    is removed, and the directory too if it is then empty.

    Raises UserError where a file cannot be written (the output is tried first), ToolError with the compiler's output
    where a unit does not compile, UnsupportedError for more weights than a library can hold.
    """
    units = _unique_units(spec.units)
    if cxx is None and any(unit.language == "c++" for unit in units):
        raise InternalError(f"library '{spec.name}' has units in C++, but no compiler for them was given")
    check_weights(spec.weights)
    check_writable(output)
    _check_ours(directory)
    try:
        return _build(spec, units, Compilers(toolchain, cxx), directory, output, jobs, on_progress, keep)
    finally:
        if not keep:
            _clean(directory)


def _build(
    spec: LibrarySpec,
    units: Sequence[Unit],
    compilers: Compilers,
    directory: Path,
    output: Path,
    jobs: int | None,
    on_progress: Callable[[int, int], None] | None,
    keep: bool,
) -> BuildReport:
    clock = _StepClock()
    toolchain = compilers.c
    weights = weight_files(spec.weights, toolchain)
    _write_sources(directory, units, compilers)
    write_if_changed(directory / "build.ninja", _ninja_text(directory, spec, units, weights, compilers))
    _remove_strangers(directory, units, weights)
    clock.step("write")
    if spec.weights is not None:
        write_weights(directory, spec.weights, weights, toolchain)
    clock.step("weights")
    edges = _run(directory, jobs, on_progress)
    clock.ninja_steps(edges)
    size = (directory / _LIBRARY).stat().st_size
    publish(directory / _LIBRARY, output, keep_source=keep)
    clock.step("publish")
    executed = {layer: sum(_layer(edge) == layer for edge in edges) for layer in (_OBJECT, _LINK)}
    steps = {_OBJECT: len(units) + sum(path.endswith(".S") for path in weights.sources), _LINK: 1}
    cached = {layer: steps[layer] - executed[layer] for layer in steps}
    return BuildReport(output, size, executed, cached, clock.seconds)


@dataclass(frozen=True)
class Compilers:
    """The compilers of a build; `cxx` is None where no unit is in C++."""

    c: Toolchain
    cxx: CxxCompiler | None = None

    @property
    def stamp(self) -> str:
        """What tells these compilers from others."""
        return f"{self.c.digest}\n" + (f"{self.cxx.digest}\n" if self.cxx else "")

    @property
    def link_command(self) -> tuple[str, ...]:
        return self.cxx.link_command if self.cxx else self.c.compiler_command


class _StepClock:
    """Divides the time since its creation among the steps of a build."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def step(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now

    def ninja_steps(self, edges: Iterable[FinishedEdge]) -> None:
        """Objects take until the last of them is finished, the link the rest."""
        self.step(_LINK)
        objects = max((edge.seconds for edge in edges if _layer(edge) == _OBJECT), default=0.0)
        self.seconds[_OBJECT] = objects
        self.seconds[_LINK] = max(self.seconds[_LINK] - objects, 0.0)


def _layer(edge: FinishedEdge) -> str:
    return edge.description.partition(" ")[0]


def _unique_units(units: Iterable[Unit]) -> list[Unit]:
    """The units in order, each name once; raises InternalError if one name stands for two texts."""
    by_name: dict[str, Unit] = {}
    for unit in units:
        if not _UNIT_NAME.fullmatch(unit.name):
            raise InternalError(f"'{unit.name}' cannot be the name of a translation unit")
        if by_name.setdefault(unit.name, unit) != unit:
            raise InternalError(f"two translation units are named '{unit.name}', but their text or flags differ")
    return list(by_name.values())


def _check_ours(directory: Path) -> None:
    """Refuse a folder with sources or objects of somebody else, which a build would remove."""
    if (directory / _STAMP).exists():
        return
    taken = [name for name in ("src", "obj", "build.ninja", _LIBRARY) if (directory / name).exists()]
    if taken:
        raise UserError(
            f"the folder '{directory}' has a '{taken[0]}' that is not of a build of relaybuild; "
            "choose an empty or a new folder"
        )


def _write_sources(directory: Path, units: Iterable[Unit], compilers: Compilers) -> None:
    make_folder(directory)
    write_if_changed(directory / _STAMP, compilers.stamp)
    make_folder(directory / "src")
    make_folder(directory / "obj")
    for unit in units:
        write_if_changed(directory / _source(unit), unit.text)


def _source(unit: Unit) -> str:
    return f"src/{unit.name}{_SUFFIXES[unit.language]}"


def _object(unit: Unit) -> str:
    return f"obj/{unit.name}.o"


def _ninja_text(
    directory: Path, spec: LibrarySpec, units: Sequence[Unit], weights: WeightFiles, compilers: Compilers
) -> str:
    ninja = NinjaWriter()
    ninja.comment(f"library '{spec.name}'")
    ninja.variable("ninja_required_version", "1.5")
    _write_rules(ninja, directory, spec, compilers)
    # Ninja starts steps in the order of the file: the longest first, so that none is left running alone at the end.
    for unit in sorted(units, key=lambda unit: (-len(unit.text), unit.name)):
        flags = (*_include_flags(unit.include_dirs), *unit.flags)
        variables = {"flags": flags} if flags else {}
        ninja.build([_object(unit)], _RULES[unit.language], [_source(unit)], implicit=[_STAMP], variables=variables)
    if weights.sources and weights.object:
        data, assembly = weights.sources
        ninja.build([weights.object], "assemble", [assembly], implicit=[data, _STAMP])
    objects = [*map(_object, units), *([weights.object] if weights.object else [])]
    ninja.build([_LIBRARY], "link", objects, implicit=[_STAMP])
    ninja.default([_LIBRARY])
    return ninja.text()


def _write_rules(ninja: NinjaWriter, directory: Path, spec: LibrarySpec, compilers: Compilers) -> None:
    """The compile, assemble and link rules.

    Paths are relative, and what must be absolute is mapped to a fixed name, so that no object tells where it was made.
    """
    toolchain, cxx = compilers.c, compilers.cxx
    depfile = Ref("out", suffix=".d")
    for language, compiler in (("c", toolchain), ("c++", cxx)):
        if compiler is not None:
            ninja.rule(
                _RULES[language],
                (
                    *compiler.command,
                    *compiler.cflags,
                    f"-ffile-prefix-map={os.path.realpath(directory)}=.",
                    *_include_flags(spec.include_dirs),
                    Ref("flags"),
                    *("-MD", "-MF", depfile, "-c", Ref("in"), "-o", Ref("out")),
                ),
                description=(_OBJECT, Ref("in")),
                depfile=(depfile,),
                deps="gcc",
            )
    ninja.rule(
        "assemble",
        (*toolchain.compiler_command, "-c", Ref("in"), "-o", Ref("out")),
        description=(_OBJECT, Ref("in")),
    )
    response = Ref("out", suffix=".rsp")
    ninja.rule(
        "link",
        (
            *(*compilers.link_command, *toolchain.ldflags, *spec.link_flags),
            *("-o", Ref("out"), Ref("out", prefix="@", suffix=".rsp")),
            *spec.link_files,
            *(f"-l{name}" for name in spec.link_libs),
        ),
        description=(_LINK, Ref("out")),
        rspfile=(response,),
        rspfile_content=(Ref("in"),),
    )


def _include_flags(include_dirs: Iterable[Path]) -> list[str]:
    flags: list[str] = []
    for path in map(os.path.abspath, include_dirs):
        flags += [f"-I{path}", f"-ffile-prefix-map={path}=include"]
    return flags


def _remove_strangers(directory: Path, units: Iterable[Unit], weights: WeightFiles) -> None:
    """Remove sources and objects of earlier builds that this library does not have."""
    wanted = {*weights.sources, weights.object}
    for unit in units:
        wanted.update((_source(unit), _object(unit)))
    with writing(directory):
        for folder in ("src", "obj"):
            for entry in os.scandir(directory / folder):
                if f"{folder}/{entry.name}" not in wanted:
                    os.unlink(entry.path)


def _run(directory: Path, jobs: int | None, on_progress: Callable[[int, int], None] | None) -> tuple[FinishedEdge, ...]:
    try:
        return run_ninja(directory, jobs, on_progress)
    except ToolError as error:
        if "No space left on device" not in error.output:
            raise
        raise no_space(directory) from error


def _clean(directory: Path) -> None:
    """Remove what a build makes, and the directory itself if nothing else is in it; what cannot be removed stays."""
    for folder in ("src", "obj"):
        shutil.rmtree(directory / folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        for name in _OWN_FILES:
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()
