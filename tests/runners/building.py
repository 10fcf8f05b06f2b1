"""Builds what relaybuild made where neither relaybuild nor Python is: a few programs are all that is on the PATH."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from environments import write_command

from relaybuild.build.cmake import find_cmakes
from relaybuild.build.ninja import find_ninja

PROGRAMS = "cc c++ gcc g++ as ld ar ranlib nm objcopy strip readelf sh uname make".split()


@dataclass(frozen=True)
class Bare:
    """A folder of programs, which is all that a command finds."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str | Path, folder: Path) -> str:
        """What a command prints; one that fails fails the test, with all that it said."""
        done = self.start(*command, folder=folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *command: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
        """The end of a command."""
        environ = {"PATH": str(self.folder), "HOME": str(self.folder), "LC_ALL": "C", **self.environ}
        return subprocess.run(
            [str(word) for word in command], cwd=folder, env=environ, capture_output=True, text=True, timeout=300
        )

    def build(self, source: Path, folder: Path, *options: str) -> None:
        """Configure a project, build it, and run its tests; its cmake gives no warning."""
        self.run("cmake", "-S", source, "-B", folder, "-Werror=dev", *options, folder=source)
        self.run("cmake", "--build", folder, "--parallel", "2", folder=source)
        self.run("ctest", "--output-on-failure", "--no-tests=error", folder=folder)


def bare(folder: Path) -> Bare:
    """The programs, in a folder made for them; skips the test where there is no compiler, or no make."""
    folder.mkdir()
    (cmake, *_) = find_cmakes(os.environ)
    found = {name: shutil.which(name) for name in PROGRAMS}
    found |= {"cmake": cmake, "ctest": str(Path(cmake).with_name("ctest")), "ninja": find_ninja()}
    for name in ("cc", "c++", "make"):
        if found[name] is None:
            pytest.skip(f"{name} is not installed")
    for name, path in found.items():
        if path is not None:
            (folder / name).symlink_to(path)
    made = Bare(folder)
    assert made.start("sh", "-c", "python3 --version || python --version", folder=folder).returncode == 127
    return made


def unoptimised(tools: Bare, folder: Path, **compilers: str) -> Bare:
    """The same, with compilers (by the variables that name them) that optimise nothing, whatever they are told."""
    folder.mkdir()
    for variable, path in compilers.items():
        write_command(folder, variable, f'exec "{path}" "$@" -O0')
    return replace(tools, environ={**tools.environ, **{name: str(folder / name) for name in compilers}})


def compiled_by_its_line(folder: Path, tools: Bare) -> None:
    """Run the line that README.md has for it, as it stands there: an archive of a folder of C."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    (\$\{CC.*)$", text, re.MULTILINE)
    tools.run("sh", "-euc", line, folder=folder)


def tree(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
