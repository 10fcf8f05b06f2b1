"""A build directory as a ninja project: its files, its rules, and runs of ninja over it; knows no cache.

    src/<unit>.c, .cc       one translation unit each
    obj/<unit>.o            its object
    obj/weights-<digest>.o  room for the weights (on machines without an object writer: src/weights-<digest>.bin and .S)
    .relaybuild             the compiler's digest, on which every object depends; marks the directory as ours
    exports                 what a library with C++ in it does not export
    build.ninja, library    what ninja reads, what it makes

It can be used again: only what changed is done again, and what no longer belongs to it is removed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from relaybuild.build.cxx import EXPORTS, EXPORTS_FILE
from relaybuild.build.depfile import read_depfile
from relaybuild.build.early_weights import EarlyWeights, early_weights
from relaybuild.build.files import make_folder, no_space, write_if_changed, writing
from relaybuild.build.forms import Form
from relaybuild.build.library_spec import Compilers, LibrarySpec, Unit
from relaybuild.build.link_errors import collision
from relaybuild.build.moment import Moment
from relaybuild.build.ninja import FinishedEdge, NinjaWriter, OnStep, Ref, RunningNinja
from relaybuild.build.relocatable import finish, join_words, local_words
from relaybuild.build.weights import (
    WeightFiles,
    put_in_weights,
    weight_files,
    write_weights,
    write_weights_object,
)
from relaybuild.dataclass import dataclass
from relaybuild.errors import ToolError, UserError

OBJECT, LINK = "object", "link"
LIBRARY = "library"
_JOINED = "joined.o"
_EARLY = f"{LIBRARY}.weights"

_RULES = {"c": "compile", "c++": "compile_cxx"}
_OBJECTS = "objects"
_STAMP = ".relaybuild"
_OWN_FILES = (
    "build.ninja",
    _STAMP,
    EXPORTS_FILE,
    LIBRARY,
    _EARLY,
    f"{LIBRARY}.rsp",
    _JOINED,
    f"{_JOINED}.rsp",
    ".ninja_deps",
    ".ninja_log",
    ".ninja_lock",
)

OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Workspace:
    """The build of a library in a directory; `units` are those of `spec`, each once."""

    directory: Path
    spec: LibrarySpec
    units: Sequence[Unit]
    compilers: Compilers

    @property
    def weights(self) -> WeightFiles:
        """Where the weights stand."""
        return weight_files(self.spec.weights, self.compilers.c, is_joined=self.spec.form.is_relocatable)

    @property
    def library(self) -> Path:
        """What the link makes."""
        return self.directory / LIBRARY

    @property
    def steps(self) -> Mapping[str, int]:
        """How many steps there are, by layer."""
        return {OBJECT: len(self.units) + sum(path.endswith(".S") for path in self.weights.sources), LINK: 1}

    def object(self, unit: Unit) -> Path:
        """Where the object of a unit is."""
        return self.directory / _object(unit)

    def check_ours(self) -> None:
        """Refuse a folder with sources or objects of somebody else, which a build would remove; raises UserError."""
        if (self.directory / _STAMP).exists():
            return
        taken = [name for name in ("src", "obj", "build.ninja", LIBRARY) if (self.directory / name).exists()]
        if taken:
            raise UserError(
                f"the folder '{self.directory}' has a '{taken[0]}' that is not of a build of relaybuild; "
                "choose an empty or a new folder"
            )

    def write_sources(self, units: Iterable[Unit]) -> None:
        """Make the folders, and write the text of units; raises UserError."""
        make_folder(self.directory)
        write_if_changed(self.directory / _STAMP, self.compilers.stamp)
        make_folder(self.directory / "src")
        make_folder(self.directory / "obj")
        for unit in units:
            write_if_changed(self.directory / _source(unit), unit.text)

    def write_rules(self, compiled: Collection[Unit]) -> None:
        """Write what ninja reads, with steps for the units in `compiled`; the objects of others must be there."""
        write_if_changed(self.directory / "build.ninja", self._ninja_text(compiled))
        if self.compilers.cxx is not None:
            write_if_changed(self.directory / EXPORTS_FILE, EXPORTS)

    def write_weights(self) -> None:
        """Write what is linked for the weights, if there are any and it is not there yet; raises UserError."""
        if self.spec.weights is not None:
            write_weights(self.directory, self.spec.weights, self.weights, self.compilers.c)

    def early_weights(self, place: int | None) -> contextlib.AbstractContextManager[EarlyWeights | None]:
        """Write the weights while the block runs, where they are expected at a place in the library.

        Raises UserError.
        """
        make_folder(self.directory)
        return early_weights(self.directory / _EARLY, place, self.spec.weights)

    def put_in_weights(self, jobs: int | None, early: EarlyWeights | None = None) -> tuple[int, ...]:
        """Put the weights into the library that was linked, if it lacks them; raises UserError and ToolError.

        A static library becomes one here. Where in the library something begins that others may hold, too, as far as
        that is known.
        """
        weights = self.spec.weights
        if self.spec.form.is_relocatable:
            finish(self.library, self.spec.name, weights, is_archive=self.spec.form is Form.STATIC)
            return ()
        if weights is None or self.weights.sources:
            return ()
        if not put_in_weights(self.library, weights, early.file() if early is not None else None):
            write_weights_object(self.directory, weights, self.weights, self.compilers.c)
            self.make(jobs, None)
            return ()
        begin = self.library.stat().st_size - weights.size
        return tuple(begin + offset for offset in weights.offsets)

    def remove_strangers(self) -> None:
        """Remove sources and objects of earlier builds that this library does not have; raises UserError."""
        wanted = {*self.weights.sources, self.weights.object}
        for unit in self.units:
            wanted.update((_source(unit), _object(unit), _depfile(unit)))
        with writing(self.directory):
            for folder in ("src", "obj"):
                for entry in os.scandir(self.directory / folder):
                    if f"{folder}/{entry.name}" not in wanted:
                        os.unlink(entry.path)

    def remove_products(self) -> None:
        """Remove objects and library, so that all is made again; raises UserError."""
        with writing(self.directory), contextlib.suppress(FileNotFoundError):
            self.library.unlink(missing_ok=True)
            for entry in os.scandir(self.directory / "obj"):
                os.unlink(entry.path)

    def compile(
        self, jobs: int | None, on_progress: OnProgress | None, on_step: OnStep | None = None
    ) -> tuple[FinishedEdge, ...]:
        """Make the objects that there are steps for, but not that of the weights; raises ToolError."""
        return self.finish(self.start_compiling(jobs), on_progress, on_step)

    def start_compiling(self, jobs: int | None) -> RunningNinja:
        """Begin what `compile` does, and return at once: `finish` must be called, or `stop` of what is returned."""
        return RunningNinja(self.directory, jobs, [_OBJECTS])

    def make(self, jobs: int | None, on_progress: OnProgress | None) -> tuple[FinishedEdge, ...]:
        """Make the library and what it needs; raises ToolError, and UserError where units define the same symbol."""
        return self.finish(RunningNinja(self.directory, jobs, [LIBRARY]), on_progress)

    def finish(
        self, running: RunningNinja, on_progress: OnProgress | None, on_step: OnStep | None = None
    ) -> tuple[FinishedEdge, ...]:
        """Wait for a run of ninja in the directory; raises as `make`."""
        try:
            return running.finish(on_progress, on_step)
        except ToolError as error:
            known = no_space(self.directory) if "No space left on device" in error.output else collision(error.output)
            if known is None:
                raise
            raise known from error

    def dependencies(self, unit: Unit, since: Moment) -> tuple[str, ...]:
        """Which files the compiler has read `since` then to make an object; the source is among them.

        Relative paths begin in the directory. None at all where the compiler has not told.
        """
        path = self.directory / _depfile(unit)
        if not since.is_before_change_of(path):
            return ()
        try:
            return read_depfile(path.read_text(encoding="utf-8", errors="surrogateescape"))
        except OSError:
            return ()

    def clean(self) -> None:
        """Remove what a build makes, and the directory if nothing else is in it; what cannot be removed stays."""
        for folder in ("src", "obj"):
            shutil.rmtree(self.directory / folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            for name in _OWN_FILES:
                (self.directory / name).unlink(missing_ok=True)
            self.directory.rmdir()

    def _ninja_text(self, compiled: Collection[Unit]) -> str:
        ninja = NinjaWriter()
        ninja.comment(f"library '{self.spec.name}'")
        ninja.variable("ninja_required_version", "1.5")
        self._write_rules(ninja)
        # Ninja starts steps in the order of the file: the longest first, so that none is left running alone at the end.
        for unit in sorted(compiled, key=lambda unit: (-len(unit.text), unit.name)):
            flags = (*_include_flags(unit.include_dirs), *self._place_flags(unit), *unit.flags)
            variables = {"flags": flags} if flags else {}
            ninja.build([_object(unit)], _RULES[unit.language], [_source(unit)], implicit=[_STAMP], variables=variables)
        weights = self.weights
        if weights.sources and weights.object:
            data, assembly = weights.sources
            ninja.build([weights.object], "assemble", [assembly], implicit=[data, _STAMP])
        objects = [_object(unit) for unit in self.units]
        ninja.build([_OBJECTS], "phony", [_object(unit) for unit in compiled])
        linked = [*objects, *([weights.object] if weights.object else [])]
        if self.spec.form.is_relocatable:
            ninja.build([_JOINED], "join", linked, implicit=[_STAMP])
            ninja.build([LIBRARY], "link", [_JOINED], implicit=[_STAMP])
        else:
            ninja.build([LIBRARY], "link", linked, implicit=[_STAMP])
        ninja.default([LIBRARY])
        return ninja.text()

    def _place_flags(self, unit: Unit) -> list[str]:
        """What keeps the directory out of a unit's debug information, which alone would tell it.

        Where there is none, nor is there a flag with a path: a launcher may take such a flag for part of what is made.
        """
        compiler = self.compilers.of(unit)
        words = (*compiler.command[1:], *compiler.cflags, *unit.flags)
        is_debug = any(word.startswith("-g") for word in words)
        return [f"-ffile-prefix-map={os.path.realpath(self.directory)}=."] if is_debug else []

    def _write_rules(self, ninja: NinjaWriter) -> None:
        """The compile, assemble and link rules.

        Paths are relative, and what must be absolute is mapped to a fixed name, so that no object tells where it was
        made.
        """
        toolchain, cxx, spec = self.compilers.c, self.compilers.cxx, self.spec
        depfile = Ref("out", suffix=".d")
        # distcc leaves out the folder of the output where no target is named, and ninja then makes the object again
        for language, compiler in (("c", toolchain), ("c++", cxx)):
            if compiler is not None:
                ninja.rule(
                    _RULES[language],
                    (
                        *compiler.command,
                        *compiler.cflags,
                        *_include_flags(spec.include_dirs),
                        Ref("flags"),
                        *("-MD", "-MF", depfile, "-MQ", Ref("out"), "-c", Ref("in"), "-o", Ref("out")),
                    ),
                    description=(OBJECT, Ref("in")),
                    depfile=(depfile,),
                )
        ninja.rule(
            "assemble",
            (*toolchain.compiler_command, "-c", Ref("in"), "-o", Ref("out")),
            description=(OBJECT, Ref("in")),
        )
        if spec.form.is_relocatable:
            self._write_joining_rules(ninja)
            return
        response = Ref("out", suffix=".rsp")
        ninja.rule(
            "link",
            (
                *(*self.compilers.link_command, *toolchain.ldflags, *spec.link_flags),
                *("-o", Ref("out"), Ref("out", prefix="@", suffix=".rsp")),
                *spec.link_files,
                *(f"-l{name}" for name in spec.link_libs),
            ),
            description=(LINK, Ref("out")),
            rspfile=(response,),
            rspfile_content=(Ref("in"),),
        )

    def _write_joining_rules(self, ninja: NinjaWriter) -> None:
        """What makes one object of all, with few symbols."""
        objcopy = self.compilers.objcopy
        assert objcopy is not None
        has_groups = self.compilers.cxx is not None
        ninja.rule(
            "join",
            (*join_words(self.compilers.c, has_groups), "-o", Ref("out"), Ref("out", prefix="@", suffix=".rsp")),
            description=("join", Ref("out")),
            rspfile=(Ref("out", suffix=".rsp"),),
            rspfile_content=(Ref("in"),),
        )
        ninja.rule(
            "link",
            (*local_words(objcopy, self.spec.public), Ref("in"), Ref("out")),
            description=(LINK, Ref("out")),
        )


def shifted(on_progress: OnProgress | None, *, earlier: int = 0, later: int = 0) -> OnProgress | None:
    """Reports of one of several runs of ninja, as if they were one: so many steps come before it, and behind it."""
    if on_progress is None:
        return None
    return lambda finished, total: on_progress(earlier + finished, earlier + total + later)


def layer_of(edge: FinishedEdge) -> str:
    """The layer that a step belongs to."""
    return edge.description.partition(" ")[0]


def unit_file_of(edge: FinishedEdge) -> str:
    """The name of the source that a step compiled; empty for any other step."""
    layer, _, path = edge.description.partition(" ")
    return path.removeprefix("src/") if layer == OBJECT else ""


def _source(unit: Unit) -> str:
    return f"src/{unit.file_name}"


def _object(unit: Unit) -> str:
    return f"obj/{unit.name}.o"


def _depfile(unit: Unit) -> str:
    return f"{_object(unit)}.d"


def _include_flags(include_dirs: Iterable[Path]) -> list[str]:
    flags: list[str] = []
    for path in map(os.path.abspath, include_dirs):
        flags += [f"-I{path}", f"-ffile-prefix-map={path}=include"]
    return flags
