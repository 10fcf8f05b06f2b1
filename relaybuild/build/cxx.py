"""Finds the C++ compiler that goes with a C compiler and proves that it works; does not know what will be compiled.

A library that has no C++ in it never asks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relaybuild.build.files import writing
from relaybuild.build.process import run_together
from relaybuild.build.toolchain import CFLAGS, Toolchain, binary_identity, resolve_command, without_launchers
from relaybuild.digest import Digest, Hasher
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

_STATIC = "-static-libstdc++"
_HIDDEN = "-Wl,--exclude-libs,ALL"
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
    where `hides_runtime` says that this works, and those of our own code are not unique in a process where
    `can_avoid_unique` does: one that is would keep the library loaded for ever.
    """

    command: tuple[str, ...]
    static_runtime: bool
    digest: Digest
    hides_runtime: bool = False
    can_avoid_unique: bool = False

    @property
    def cflags(self) -> tuple[str, ...]:
        """Flags of every compilation; a unit's own flags come after them and win."""
        hiding = (_NOT_UNIQUE,) if self.can_avoid_unique else ()
        own = (_OWN_RUNTIME,) if self.static_runtime and self.hides_runtime else ()
        return ("-std=gnu++17", *(flag for flag in CFLAGS if not flag.startswith("-std=")), *hiding, *own)

    @property
    def link_command(self) -> tuple[str, ...]:
        """The compiler without a launcher, and what its links begin with."""
        static = (_STATIC,) if self.static_runtime else ()
        return (*without_launchers(self.command), *static, *((_HIDDEN,) if self.hides_runtime else ()))


def probe_cxx(toolchain: Toolchain, *, environ: Mapping[str, str] | None = None) -> CxxCompiler:
    """Find and try the C++ compiler: `$CXX`, else the C compiler's counterpart, else `c++`, `g++` or `clang++`.

    Raises UserError if there is none, ToolError with its output if it cannot make a shared library.
    """
    environment = os.environ if environ is None else environ
    command = _find(toolchain, environment)
    with writing(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="relaybuild-probe-") as folder:
        source = Path(folder) / "probe.cc"
        source.write_text(_PROBE_SOURCE, encoding="utf-8")
        base = (*command, *(flag for flag in CFLAGS if not flag.startswith("-std=")), "-std=gnu++17", "-shared")
        plain, static, hidden, not_unique, version = run_together(
            [
                (*base, str(source), "-o", str(Path(folder) / "plain.so")),
                (*base, _STATIC, str(source), "-o", str(Path(folder) / "static.so")),
                (*base, _HIDDEN, str(source), "-o", str(Path(folder) / "hidden.so")),
                (*base, _NOT_UNIQUE, str(source), "-o", str(Path(folder) / "not_unique.so")),
                (*without_launchers(command), "--version"),
            ],
            environ=environment,
        )
    name = shlex.join(command)
    plain.check(
        f"the C++ compiler '{name}' cannot make a shared library; mend its installation (are the C++ library's "
        "headers, 'libstdc++-dev' or 'libstdc++-devel', there?) or name another with the variable CXX"
    )
    path = without_launchers(command)[0]
    hasher = Hasher("cxx.2").field("driver", binary_identity(path)).field("arguments", command[1:])
    hasher.field("version", version.output).field("toolchain", toolchain.digest.hex)
    works = {"static_runtime": static, "hides_runtime": hidden, "can_avoid_unique": not_unique}
    return CxxCompiler(command, digest=hasher.digest(), **{name: run.returncode == 0 for name, run in works.items()})


def _find(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[str, ...]:
    search = environ.get("PATH")
    if text := environ.get("CXX", "").strip():
        return resolve_command(text, "the variable CXX", environ)
    compiler = toolchain.compiler_command
    launchers = toolchain.command[: len(toolchain.command) - len(compiler)]
    if match := _NAME.match(Path(compiler[0]).name):
        prefix, stem, suffix = match.groups(default="")
        counterpart = Path(compiler[0]).with_name(f"{prefix}{_COUNTERPARTS[stem]}{suffix}")
        if os.access(counterpart, os.X_OK):
            return (*launchers, str(counterpart), *compiler[1:])
    for name in ("c++", "g++", "clang++"):
        if path := shutil.which(name, path=search):
            return (*launchers, path, *compiler[1:])
    raise UserError(
        "no C++ compiler was found, which the library's backends need: looked for the counterpart of "
        f"'{compiler[0]}', and for 'c++', 'g++' and 'clang++' on the PATH; {_INSTALL}"
    )
