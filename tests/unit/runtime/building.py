"""Compiles small models for the tests of the runtime; they are C programs written by hand."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from runners.objects import compiled_once

from relaybuild.runtime import TensorSpec, include_dir, model_sources, packed_sources

DATA = Path(__file__).parent / "data"
RUNTIME = model_sources()
STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic")

INPUTS = (TensorSpec("x", (2, 64), "float32"), TensorSpec("the bias", (64,), "float32"))
OUTPUTS = (TensorSpec("y", (2, 64), "float32"), TensorSpec("total", (2,), "float32"))


def cc(*arguments: str | Path, compiler: str | None = None) -> None:
    """Runs a C compiler, the usual one by default; a failure shows what it said."""
    command = [compiler or os.environ.get("CC", "cc"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def compiled(source: Path, *flags: str | Path) -> Path:
    """An object of C, slightly optimised, by the usual compiler; the same one for all of a session."""
    return compiled_once((os.environ.get("CC", "cc"), *STRICT, "-pthread", "-O1", f"-I{include_dir()}", *flags), source)


def build_library(output: Path, source: str = "program.c", defines: Sequence[str] = ()) -> Path:
    """A model library at `output` from a program in data/ and the runtime."""
    return _shared(output, RUNTIME, source, defines)


def build_functions(output: Path, defines: Sequence[str] = ()) -> Path:
    """A library of packed functions without a model at `output`, from data/functions.c."""
    return _shared(output, packed_sources(), "functions.c", defines)


def _shared(output: Path, runtime: Sequence[Path], source: str, defines: Sequence[str]) -> Path:
    flags = ("-fPIC", "-fvisibility=hidden")
    objects = [compiled(part, *flags) for part in runtime]
    own = compiled(DATA / source, *flags, *(f"-D{define}" for define in defines))
    cc("-shared", own, *objects, "-o", output, "-pthread")
    return output


def build_consumer(folder: Path, name: str, header: str, flags: Sequence[str]) -> Path:
    """The C program data/NAME.c with the sample model and the runtime in one executable."""
    (folder / "sample.h").write_text(header)
    debug = ("-g", *flags)
    objects = [compiled(source, *debug) for source in (DATA / "program.c", *RUNTIME)]
    include = (f"-I{folder}", f"-I{include_dir()}")
    words = (*STRICT, "-D_GNU_SOURCE", "-O1", *debug, *include, DATA / f"{name}.c", *objects)
    cc(*words, "-o", folder / name, "-pthread")
    return folder / name
