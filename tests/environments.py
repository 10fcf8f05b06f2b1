"""Makes Python environments that have all that this one has, and packages to be installed into; needs no network."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


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
        environ.pop("PYTHONPATH", None)
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
        if importlib.util.find_spec(name) is None:
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
        _write_command(made, "relaybuild", '-m relaybuild "$@"')
    offline = "--no-deps --no-build-isolation --no-index --disable-pip-version-check"
    _write_command(made, "pip", f'-m pip "$1" {offline} "$2" "$3"')
    return made


def _write_command(made: Environment, name: str, arguments: str) -> None:
    path = made.bin / name
    path.write_text(f'#!/bin/sh\nexec "{made.bin / "python"}" {arguments}\n', encoding="utf-8")
    path.chmod(0o755)
