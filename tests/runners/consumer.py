"""A CMake project of somebody who uses relaybuild: configured, built and looked at; knows no relaybuild but by name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from environments import Environment

HEAD = "cmake_minimum_required(VERSION 3.20)\nproject(consumer LANGUAGES C)\nfind_package(relaybuild CONFIG REQUIRED)\n"

OLDEST = "cmake-3.20"
"""The name of the oldest cmake that is supported, where it is installed under a name of its own."""


@dataclass(frozen=True)
class Consumer:
    """A project in `folder`, which is built in `folder`/`build` by a generator of a cmake.

    `environ` are variables for all that runs. Commands that are expected to succeed fail the test with what they said.
    """

    environment: Environment
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    cmake: str = "cmake"
    generator: str = "Ninja"
    build_folder: str = "build"

    @property
    def build(self) -> Path:
        return self.folder / self.build_folder

    def by(self, cmake: str, generator: str) -> Consumer:
        """The same project with another cmake, for another program; skips the test where one is missing."""
        for program in (cmake, "make" if "Makefiles" in generator else "ninja"):
            if shutil.which(program) is None:
                pytest.skip(f"{program} is not installed")
        return replace(self, cmake=cmake, generator=generator)

    def write(self, name: str, text: str | bytes) -> Path:
        """A file of the project."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        return self.environment.start(*command, folder=self.folder, variables=self.environ)

    def configure(self, *options: str | Path) -> str:
        """What cmake says to standard output when it configures the project."""
        done = self.try_configure(*options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def try_configure(self, *options: str | Path) -> subprocess.CompletedProcess[str]:
        # -Werror=dev: the package gives nobody a warning
        return self.run(self.cmake, "-S", ".", "-B", self.build_folder, "-G", self.generator, "-Werror=dev", *options)

    def make(self, *options: str) -> str:
        """All that a build prints."""
        done = self.try_make(*options)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def try_make(self, *options: str) -> subprocess.CompletedProcess[str]:
        return self.run(self.cmake, "--build", self.build_folder, *options)

    def work(self) -> set[str]:
        """What a build did, by the lines that it printed: models compiled, sources compiled, targets linked."""
        return set(re.findall(r"(Compiling the model \S+|Building \w+ object \S+|Linking .+)", self.make()))

    def time(self, name: str) -> int:
        """When a file of the build was written."""
        return (self.build / name).stat().st_mtime_ns


def touch(path: Path) -> None:
    """Make a file newer than all that was made until now; what is in it stays."""
    os.utime(path)
