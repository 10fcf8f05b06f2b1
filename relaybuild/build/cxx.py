"""Finds the C++ compiler that goes with a C compiler and proves that it works; does not know what will be compiled.

A library that has no C++ in it never asks.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from relaybuild.build.cache.store import Cache
from relaybuild.build.files import writing
from relaybuild.build.flags import objection_to_flags
from relaybuild.build.moment import Moment
from relaybuild.build.process import run_together
from relaybuild.build.tool_identity import SHOW, identity
from relaybuild.build.tool_record import ToolRecords
from relaybuild.build.toolchain import (
    CFLAGS,
    Toolchain,
    include_folders,
    program_files,
    resolve_command,
    without_launchers,
)
from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.errors import UserError

_PROBE_SOURCE = """\
#include <string>
#include <vector>
extern "C" int rb_probe(const char *text) { return (int)std::vector<std::string>(2, text).size(); }
"""

_INSTALL = """install one:
    Debian, Ubuntu:  apt-get install g++
    Fedora, RHEL:    dnf install gcc-c++
    Alpine:          apk add g++
    macOS:           xcode-select --install
or name one with the variable CXX"""

_QUESTIONS = (("--version",), ("-print-prog-name=cc1plus",), ("-E", "-Wp,-v", "-x", "c++", os.devnull))

_ABILITIES = ("static_runtime", "hides_runtime", "can_avoid_unique")
_LISTS = ("include_dirs", "programs")

_STATIC = "-static-libstdc++"
EXPORTS_FILE = "exports"
"""The name of the file with `EXPORTS`, which links read in the folder in which they run."""

EXPORTS = "{ local: _Z*; };\n"
"""Nothing is exported that has a name of C++. Templates of the C++ library that our own code instantiates have default
visibility whatever the flags say: those of a program would take the place of the library's, whose C++ runtime is not
the program's, and the other way round."""

_HIDDEN = "-Wl,--exclude-libs,ALL,-Bsymbolic,--version-script="

_NOT_UNIQUE = "-fno-gnu-unique"
_OWN_RUNTIME = "-DRB_OWN_CXX_RUNTIME"
"""Tells sources that the library's C++ runtime serves nobody else."""

_NAME = re.compile(r"^(.*-)?(gcc|clang|cc)(-[0-9.]+)?$")
_COUNTERPARTS = {"gcc": "g++", "clang": "clang++", "cc": "c++"}


@dataclass(frozen=True)
class CxxCompiler:
    """A C++ compiler that has made a shared library on this machine.

    `command` is how it is called, launcher and own arguments included; `digest` identifies it by content. Its runtime
    library is linked in statically where `static_runtime` says that this works. Its symbols stay inside of the library
    where `hides_runtime` says that this works, by what `EXPORTS_FILE` says; and those of our own code are not unique in
    a process where `can_avoid_unique` does: one that is would keep the library loaded for ever. `launcher`,
    `include_dirs`, `programs` and `objection` are as a `Toolchain` has them.
    """

    command: tuple[str, ...]
    static_runtime: bool
    digest: Digest
    hides_runtime: bool = False
    can_avoid_unique: bool = False
    launcher: tuple[str, ...] = ()
    include_dirs: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    objection: str = ""

    @property
    def compiler_command(self) -> tuple[str, ...]:
        """`command` without a launcher."""
        return without_launchers(self.command[len(self.launcher) :])

    @property
    def cflags(self) -> tuple[str, ...]:
        """Flags of every compilation; a unit's own flags come after them and win."""
        hiding = (_NOT_UNIQUE,) if self.can_avoid_unique else ()
        own = (_OWN_RUNTIME,) if self.static_runtime and self.hides_runtime else ()
        return ("-std=gnu++17", *(flag for flag in CFLAGS if not flag.startswith("-std=")), *hiding, *own)

    @property
    def link_command(self) -> tuple[str, ...]:
        """The compiler without a launcher, and what its links begin with; they read `EXPORTS_FILE` if it hides."""
        static = (_STATIC,) if self.static_runtime else ()
        return (*self.compiler_command, *static, *((_HIDDEN + EXPORTS_FILE,) if self.hides_runtime else ()))


def probe_cxx(
    toolchain: Toolchain, *, environ: Mapping[str, str] | None = None, cache: Cache | None = None
) -> CxxCompiler:
    """Find and try the C++ compiler: `$CXX`, else the C compiler's counterpart, else `c++`, `g++` or `clang++`.

    A `cache` remembers what was found out, as for `probe`. Raises UserError if there is none, ToolError with its output
    if it cannot make a shared library.
    """
    environment = os.environ if environ is None else environ
    command = _find(toolchain, environment)
    records = ToolRecords(cache, environment)
    kind = f"c++.2/{toolchain.digest}"
    if (facts := records.recall(kind, command)) is not None and (known := _from_facts(command, toolchain, facts)):
        return known
    return _tried(command, toolchain, environment, records, kind)


def _tried(
    command: tuple[str, ...], toolchain: Toolchain, environ: Mapping[str, str], records: ToolRecords, kind: str
) -> CxxCompiler:
    own = command[len(toolchain.launcher) :]
    compiler = without_launchers(own)
    message = (
        f"the C++ compiler '{shlex.join(own)}' cannot make a shared library; mend its installation (are the C++ "
        "library's headers, 'libstdc++-dev' or 'libstdc++-devel', there?) or name another with the variable CXX"
    )
    import tempfile

    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="relaybuild-probe-") as folder:
        start = Moment.now(Path(folder))
        source, empty, target = (Path(folder) / name for name in ("probe.cc", "empty.cc", "probe.o"))
        source.write_text(_PROBE_SOURCE, encoding="utf-8")
        empty.touch()
        exports = Path(folder) / EXPORTS_FILE
        exports.write_text(EXPORTS, encoding="ascii")
        base = (*own, *(flag for flag in CFLAGS if not flag.startswith("-std=")), "-std=gnu++17")
        compiled, not_unique, *answers = run_together(
            [
                (*base, "-c", str(source), "-o", str(target)),
                (*base, _NOT_UNIQUE, "-c", str(empty), "-o", str(empty.with_suffix(".o"))),
                *((*compiler, *question) for question in _QUESTIONS),
                (*compiler, SHOW, "-shared", str(source), "-o", str(target)),
            ],
            environ=environ,
        )
        compiled.check(message)
        links = {"plain": (), "static": (_STATIC,), "hidden": (f"{_HIDDEN}{exports}",)}
        plain, static, hidden = run_together(
            [
                (*base, "-shared", *flags, str(target), "-o", str(Path(folder) / f"{name}.so"))
                for name, flags in links.items()
            ],
            environ=environ,
        )
        plain.check(message)
    version, proper, included, shown = (answer.output.strip() for answer in answers)
    found = which(proper, path=environ.get("PATH"))
    known = identity("cxx.6", compiler, version, {"cc1plus": proper}, shown, records, environ)
    known.hasher.field("exports", EXPORTS).field("toolchain", toolchain.digest.hex)
    works = {name: run.returncode == 0 for name, run in zip(_ABILITIES, (static, hidden, not_unique))}
    result = CxxCompiler(
        command,
        digest=known.hasher.digest(),
        objection=known.objection or toolchain.objection,
        launcher=toolchain.launcher,
        include_dirs=include_folders(included),
        programs=program_files((compiler[0], proper), environ),
        **works,
    )
    programs = (compiler[0], proper) if found else (compiler[0],)
    runtimes = [os.path.join(place, "libstdc++.a") for place in toolchain.library_dirs]
    if not objection_to_flags(compiler[1:]):
        records.remember(kind, command, _facts(result), programs, runtimes, since=start)
    return result


def _facts(compiler: CxxCompiler) -> dict[str, Any]:
    """What a record of a compiler says, beside its command."""
    digest = (compiler.digest.hex, compiler.digest.size)
    return {name: getattr(compiler, name) for name in (*_ABILITIES, *_LISTS)} | {"digest": digest}


def _from_facts(command: tuple[str, ...], toolchain: Toolchain, facts: Mapping[str, Any]) -> CxxCompiler | None:
    """The compiler that a record tells of; None for a record of another shape."""
    try:
        fields: dict[str, Any] = {name: tuple(map(str, facts[name])) for name in _LISTS}
        fields |= {name: bool(facts[name]) for name in _ABILITIES}
        return CxxCompiler(command, digest=Digest(*facts["digest"]), launcher=toolchain.launcher, **fields)
    except (KeyError, TypeError):
        return None


def _find(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[str, ...]:
    search = environ.get("PATH")
    if text := environ.get("CXX", "").strip():
        return (*toolchain.launcher, *resolve_command(text, "the variable CXX", environ))
    compiler = toolchain.compiler_command
    launchers = toolchain.command[: len(toolchain.command) - len(compiler)]
    if match := _NAME.match(Path(compiler[0]).name):
        prefix, stem, suffix = match.groups(default="")
        counterpart = Path(compiler[0]).with_name(f"{prefix}{_COUNTERPARTS[stem]}{suffix}")
        if os.access(counterpart, os.X_OK):
            return (*launchers, str(counterpart), *compiler[1:])
    for name in ("c++", "g++", "clang++"):
        if path := which(name, path=search):
            return (*launchers, path, *compiler[1:])
    raise UserError(
        "no C++ compiler was found, which the library's backends need: looked for the counterpart of "
        f"'{compiler[0]}', and for 'c++', 'g++' and 'clang++' on the PATH; {_INSTALL}"
    )
