"""Turns C sources and a blob of weights into one shared library; does not know what they compute.

A build directory is a ninja project:

    src/<unit>.c            one translation unit each
    obj/<unit>.o            its object
    obj/weights-<digest>.o  the weights (on machines without an object writer: src/weights-<digest>.bin and .S)
    toolchain               the compiler's digest, on which every object depends
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
from typing import BinaryIO

from relaybuild.build.elf import ALIGNMENT, can_write_for, write_data_object
from relaybuild.build.files import check_writable, make_folder, publish, write_atomically, write_if_changed, writing
from relaybuild.build.ninja import FinishedEdge, NinjaWriter, Ref, run_ninja
from relaybuild.build.toolchain import Toolchain
from relaybuild.digest import digest_file
from relaybuild.errors import InternalError, ToolError, UnsupportedError, UserError

WEIGHTS_SYMBOL = "rb_weights"
"""The hidden symbol of the weights: `extern const unsigned char rb_weights[];`, aligned to 64 bytes."""

MAX_WEIGHT_BYTES = 2_000_000_000
"""Code addresses read-only data with 32-bit signed offsets, which all of the library has to share."""

_UNIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")
_OBJECT, _LINK = "object", "link"
_LIBRARY = "library"


@dataclass(frozen=True)
class Unit:
    """One translation unit: the stem of its file, its C text, and flags after those of the toolchain."""

    name: str
    text: str
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class WeightBlob:
    """The read-only data of a library: `write` puts exactly `size` bytes into the file it is given.

    `digest` (hexadecimal) stands for the content: equal digests are taken to be equal bytes, and `write` is not called
    when a build directory holds them already.
    """

    write: Callable[[BinaryIO], None]
    digest: str
    size: int

    @staticmethod
    def from_bytes(data: bytes | memoryview, digest: str) -> WeightBlob:
        """A blob of bytes in memory."""
        view = memoryview(data).cast("B")
        return WeightBlob(lambda file: _write_view(file, view), digest, view.nbytes)

    @staticmethod
    def from_file(path: Path) -> WeightBlob:
        """The content of a file, which must not change before it has been built; raises OSError."""
        digest = digest_file(path)
        return WeightBlob(lambda file: _copy_file(path, file), digest.hex, digest.size)


@dataclass(frozen=True)
class LibrarySpec:
    """What a shared library is made of.

    Units are linked in the order given. `link_flags` come before the objects and after the toolchain's own;
    `link_libs` are names for `-l`, and those that nothing needs are not recorded. Only symbols that the sources mark
    with default visibility are exported.
    """

    name: str
    units: tuple[Unit, ...]
    include_dirs: tuple[Path, ...] = ()
    weights: WeightBlob | None = None
    link_flags: tuple[str, ...] = ()
    link_libs: tuple[str, ...] = ("m", "pthread")


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
) -> BuildReport:
    """Compile and link `spec` in `directory` and put the library at `output`, complete or not at all.

    At most `jobs` compilers run at a time; `on_progress(finished, total)` is called after each step that had to run.
    With `keep` the directory stays as it is, for the next build or to be looked at; otherwise what the build put there
    is removed, and the directory too if it is then empty.

    Raises UserError where a file cannot be written (the output is tried first), ToolError with the compiler's output
    where a unit does not compile, UnsupportedError for more weights than a library can hold.
    """
    units = _unique_units(spec.units)
    _check_weights(spec.weights)
    check_writable(output)
    try:
        return _build(spec, units, toolchain, directory, output, jobs, on_progress, keep)
    finally:
        if not keep:
            _clean(directory)


def _build(
    spec: LibrarySpec,
    units: Sequence[Unit],
    toolchain: Toolchain,
    directory: Path,
    output: Path,
    jobs: int | None,
    on_progress: Callable[[int, int], None] | None,
    keep: bool,
) -> BuildReport:
    clock = _StepClock()
    weights = _weight_files(spec.weights, toolchain)
    _write_sources(directory, units, toolchain)
    write_if_changed(directory / "build.ninja", _ninja_text(spec, units, weights, toolchain))
    _remove_strangers(directory, units, weights)
    clock.step("write")
    if spec.weights is not None:
        _write_weights(directory, spec.weights, weights, toolchain)
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


@dataclass(frozen=True)
class _WeightFiles:
    """Where the weights stand in a build directory: files we write, and the object that is linked."""

    sources: tuple[str, ...] = ()
    object: str | None = None

    @property
    def written(self) -> tuple[str, ...]:
        """All files that are written before ninja runs."""
        return self.sources or ((self.object,) if self.object else ())


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


def _check_weights(weights: WeightBlob | None) -> None:
    if weights is not None and weights.size > MAX_WEIGHT_BYTES:
        raise UnsupportedError(
            f"the weights take {weights.size / 1e9:.2f} GB, but a library holds at most {MAX_WEIGHT_BYTES / 1e9:g} GB; "
            "compile a smaller model, or one with weights of a smaller data type"
        )


def _write_sources(directory: Path, units: Iterable[Unit], toolchain: Toolchain) -> None:
    make_folder(directory / "src")
    make_folder(directory / "obj")
    write_if_changed(directory / "toolchain", f"{toolchain.digest}\n")
    for unit in units:
        write_if_changed(directory / _source(unit), unit.text)


def _source(unit: Unit) -> str:
    return f"src/{unit.name}.c"


def _object(unit: Unit) -> str:
    return f"obj/{unit.name}.o"


def _weight_files(weights: WeightBlob | None, toolchain: Toolchain) -> _WeightFiles:
    if weights is None:
        return _WeightFiles()
    stem = f"weights-{weights.digest[:16]}"
    if can_write_for(toolchain.machine):
        return _WeightFiles(object=f"obj/{stem}.o")
    return _WeightFiles(sources=(f"src/{stem}.bin", f"src/{stem}.S"), object=f"obj/{stem}.o")


def _write_weights(directory: Path, weights: WeightBlob, files: _WeightFiles, toolchain: Toolchain) -> None:
    """Write the weights unless the directory holds them: their file is named by digest and appears when complete."""
    path = directory / files.written[0]
    if path.exists():
        return
    if not files.sources:
        write_atomically(
            path,
            lambda file: write_data_object(file, toolchain.machine, WEIGHTS_SYMBOL, weights.size, weights.write),
        )
        return
    write_if_changed(directory / files.sources[1], _assembly(files.sources[0]))
    write_atomically(path, lambda file: _write_counted(file, weights))


def _write_counted(file: BinaryIO, weights: WeightBlob) -> None:
    weights.write(file)
    if file.tell() != weights.size:
        raise InternalError(f"the weights are {file.tell()} bytes long, but {weights.size} were announced")


def _assembly(data: str) -> str:
    return f"""\
#ifdef __APPLE__
    .section __TEXT,__const
    .private_extern _{WEIGHTS_SYMBOL}
    .globl _{WEIGHTS_SYMBOL}
    .balign {ALIGNMENT}
_{WEIGHTS_SYMBOL}:
    .incbin "{data}"
#else
    .section .rodata.{WEIGHTS_SYMBOL}, "a", %progbits
    .globl {WEIGHTS_SYMBOL}
    .hidden {WEIGHTS_SYMBOL}
    .type {WEIGHTS_SYMBOL}, %object
    .balign {ALIGNMENT}
{WEIGHTS_SYMBOL}:
    .incbin "{data}"
    .size {WEIGHTS_SYMBOL}, . - {WEIGHTS_SYMBOL}
    .section .note.GNU-stack, "", %progbits
#endif
"""


def _ninja_text(spec: LibrarySpec, units: Sequence[Unit], weights: _WeightFiles, toolchain: Toolchain) -> str:
    ninja = NinjaWriter()
    ninja.comment(f"library '{spec.name}'")
    ninja.variable("ninja_required_version", "1.5")
    _write_rules(ninja, spec, toolchain)
    # Ninja starts steps in the order of the file: the longest first, so that none is left running alone at the end.
    for unit in sorted(units, key=lambda unit: (-len(unit.text), unit.name)):
        variables = {"flags": unit.flags} if unit.flags else {}
        ninja.build([_object(unit)], "compile", [_source(unit)], implicit=["toolchain"], variables=variables)
    if weights.sources and weights.object:
        data, assembly = weights.sources
        ninja.build([weights.object], "assemble", [assembly], implicit=[data, "toolchain"])
    objects = [*map(_object, units), *([weights.object] if weights.object else [])]
    ninja.build([_LIBRARY], "link", objects, implicit=["toolchain"])
    ninja.default([_LIBRARY])
    return ninja.text()


def _write_rules(ninja: NinjaWriter, spec: LibrarySpec, toolchain: Toolchain) -> None:
    """The compile, assemble and link rules; no absolute path but the compiler's and the include folders' is in them."""
    depfile = Ref("out", suffix=".d")
    ninja.rule(
        "compile",
        (
            *toolchain.command,
            *toolchain.cflags,
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
            *(*toolchain.compiler_command, *toolchain.ldflags, *spec.link_flags),
            *("-o", Ref("out"), Ref("out", prefix="@", suffix=".rsp")),
            *(f"-l{name}" for name in spec.link_libs),
        ),
        description=(_LINK, Ref("out")),
        rspfile=(response,),
        rspfile_content=(Ref("in"),),
    )


def _include_flags(include_dirs: Iterable[Path]) -> list[str]:
    """Include folders, and the promise that `__FILE__` and debug information do not tell where they stand."""
    flags: list[str] = []
    for path in map(os.path.abspath, include_dirs):
        flags += [f"-I{path}", f"-ffile-prefix-map={path}=include"]
    return flags


def _remove_strangers(directory: Path, units: Iterable[Unit], weights: _WeightFiles) -> None:
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
        raise UserError(
            f"cannot write '{directory}': there is no space left on the device; free some, or choose another folder"
        ) from error


def _clean(directory: Path) -> None:
    """Remove what a build makes, and the directory itself if nothing else is in it; what cannot be removed stays."""
    for folder in ("src", "obj"):
        shutil.rmtree(directory / folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        for name in ("build.ninja", "toolchain", _LIBRARY, ".ninja_log", ".ninja_deps", ".ninja_lock"):
            (directory / name).unlink(missing_ok=True)
        directory.rmdir()


def _write_view(file: BinaryIO, view: memoryview) -> None:
    file.write(view)


def _copy_file(path: Path, file: BinaryIO) -> None:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file, 1 << 20)
