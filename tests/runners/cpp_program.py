"""Runs a model's library from a C++ program, which finds neither Python nor relaybuild where it runs."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runners.modules_program import build

SOURCE = Path(__file__).with_name("run_model.cc")


@cache
def _program() -> Path:
    """The program, linked once a process."""
    folder = Path(tempfile.mkdtemp(prefix="relaybuild-run-model-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder / "run_model", [SOURCE])


def run_from_cpp(
    library: Path, inputs: Sequence[NDArray[Any]], shapes: Sequence[tuple[int, ...]]
) -> list[NDArray[Any]]:
    """The outputs, of the shapes given, of a model whose tensors are all float32."""
    with tempfile.TemporaryDirectory(prefix="relaybuild-run-model-") as folder:
        source, target = Path(folder) / "in", Path(folder) / "out"
        source.write_bytes(b"".join(np.ascontiguousarray(value, "float32").tobytes() for value in inputs))
        tensors = [("i", value.shape) for value in inputs] + [("o", shape) for shape in shapes]
        words = [role + ",".join(map(str, shape)) for role, shape in tensors]
        command = [str(_program()), str(library), str(source), str(target), *words]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, env={"PATH": "/nowhere"}
        )
        assert done.returncode == 0, done.stderr
        flat = np.fromfile(target, "float32")
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends[:-1]), shapes)]
