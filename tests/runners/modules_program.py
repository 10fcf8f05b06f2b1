"""Compiles C++ programs over modules with the sources that those need; knows no program, and no test."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from relaybuild.contrib.example_json import BACKEND
from relaybuild.runtime.sources import include_dir, module_sources, packed_sources
from runners.objects import compiled_once

WARNINGS = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
LANGUAGES = {".c": ("gcc", "-std=gnu11"), ".cc": ("g++", "-std=gnu++17", *WARNINGS)}


def example_json_sources() -> Sequence[Path]:
    """The runtime of ExampleJSON."""
    assert BACKEND.folder is not None
    return [BACKEND.folder / name for name in BACKEND.runtime_sources]


def words(source: Path, *flags: str) -> Sequence[str]:
    """What compiles a source of modules, or of a program over them, without a warning."""
    folders = (include_dir(), *([BACKEND.folder] if BACKEND.folder is not None else []))
    return [*LANGUAGES[source.suffix], "-fvisibility=hidden", *flags, *(f"-I{folder}" for folder in folders)]


def build(output: Path, sources: Sequence[Path], *flags: str) -> Path:
    """A program of its own sources and those of modules, at `output`; how fast it is does not matter."""
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    parts = [*module_sources(), *packed_sources(), *sources]
    made = [compiled_once(words(source, "-O0", "-g1", *flags), source) for source in parts]
    subprocess.run(["g++", *flags, *made, "-o", output, "-ldl", "-pthread"], check=True, timeout=120)
    return output
