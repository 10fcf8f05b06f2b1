"""Makes Python environments that have all that this one has, and packages to be installed into; needs no network."""

from __future__ import annotations

import importlib.machinery
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

_BUILT_FROM = "pyproject.toml setup.py MANIFEST.in README.md LICENSE config.cmake cmake relaybuild".split()


@dataclass(frozen=True)
class Environment:
    """A Python environment, whose `bin` is first on the PATH of what runs in it."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def run(self, *command: str | Path, folder: Path, timeout: float = 300) -> str:
        """What a command prints; one that fails fails the test, which shows all it said."""
        done = self.start(*command, folder=folder, timeout=timeout)
        assert done.returncode == 0, f"{done.args}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(
        self,
        *command: str | Path,
        folder: Path,
        timeout: float = 300,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with some environment variables beside our own."""
        environ = {**os.environ, "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}", "MYPYPATH": str(ROOT)}
        for name in ("PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE"):
            environ.pop(name, None)
        words: Sequence[str] = [str(word) for word in command]
        return subprocess.run(
            words,
            cwd=folder,
            env={**environ, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def make_environment(folder: Path, *, with_checkout: bool = True) -> Environment:
    """An environment with the packages of this one, and `pip`, `python` and `relaybuild` as commands.

    Its pip installs without looking for dependencies. Without the checkout, relaybuild has to be installed into it.
    Skips the test where pip or setuptools are not installed.
    """
    for name in ("pip", "setuptools"):
        # finders that setuptools adds complain of what other tests have imported
        if importlib.machinery.PathFinder.find_spec(name) is None:
            pytest.skip(f"{name} is not installed")
    venv.create(folder, symlinks=True)
    made = Environment(folder)
    own = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", scheme="posix_prefix", vars=own))
    # files named *.pth are read in folders that are added so: this checkout may be installed by one
    sites = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    lines = [f"import site; site.addsitedir({site!r})\n" for site in sorted(sites)]
    (packages / "tests.pth").write_text("".join([*lines, f"{ROOT}\n" * with_checkout]), encoding="utf-8")
    if with_checkout:
        write_command(made.bin, "relaybuild", f'exec "{made.bin / "python"}" -m relaybuild "$@"')
    offline = "--no-deps --no-build-isolation --no-index --disable-pip-version-check"
    write_command(made.bin, "pip", f'exec "{made.bin / "python"}" -m pip "$1" {offline} "$2" "$3"')
    return made


def write_command(folder: Path, name: str, line: str) -> None:
    """A command in a folder, which is made: a line for the shell."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)


def write_relaybuild(folder: Path) -> None:
    """`relaybuild` as a command in a folder: what this Python imports, where PYTHONPATH leads to it."""
    write_command(folder, "relaybuild", f'exec "{sys.executable}" -m relaybuild "$@"')


def put_relaybuild_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `relaybuild` be a command for all that runs, by way of a folder: the one of this checkout."""
    write_relaybuild(folder)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


def copy_sources(folder: Path) -> Path:
    """What a distribution is built from, copied into a folder; skips the test where there is no checkout."""
    if not (ROOT / "setup.py").is_file():
        pytest.skip("there is no checkout to build from")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.o")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder
