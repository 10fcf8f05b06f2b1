"""Runs relaybuild as a process whose time is measured; does not know what it is asked to do."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchlib import CHECKOUT
from benchlib.models import Model
from relaybuild.errors import ToolError


def compile_command(program: Sequence[str], model: Model, output: Path) -> list[str]:
    """`relaybuild compile` of a model, as the Python in `program` runs it."""
    command = [*program, "-m", "relaybuild", "compile", str(model.path), "-o", str(output)]
    for name, shape in model.shapes.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    return command


def environment(bytecode: Path, **variables: str) -> dict[str, str]:
    """The environment of such a process, with `variables`.

    Python keeps compiled modules in `bytecode`, as it does beside those of an installed package: the first process
    writes them.
    """
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": str(bytecode), **variables}


def timed(command: Sequence[str], environ: Mapping[str, str]) -> tuple[float, float]:
    """Seconds of a process, by the clock, and of processors, its children's among them.

    Raises ToolError, with its output, where it fails.
    """
    before = _children_cpu()
    begin = time.perf_counter()
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    seconds = time.perf_counter() - begin
    if done.returncode != 0:
        output = done.stdout.decode(errors="replace")
        raise ToolError("a command of the benchmark failed", command=command, returncode=done.returncode, output=output)
    return seconds, _children_cpu() - before


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
