"""Measures the start: `load_module` and the first inference, against onnxruntime's session and first run.

    python benchmarks/startup.py [MODEL]... [--threads 1] [--runs 7] [--json FILE]

Every start is a new process; relaybuild and onnxruntime take turns, and the files come from the page cache (one start
of each goes before and does not count). "beyond" is the time from before `load_module` (the session's creation) to the
end of the first inference, less the median of the inferences that follow in the same process: what the start costs
beyond the inference itself. The import of the Python package is told apart and is not in it. Memory is what is
resident after the first inference: of the whole process, and beyond what it was after the import.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchlib import CHECKOUT
from benchlib.models import Model, find_models, processors
from benchlib.report import progress, run_benchmark, save, table

from relaybuild import driver
from relaybuild.cli import _arrays, _peers
from relaybuild.errors import ToolError
from relaybuild.runtime import load_module

DEFAULT_MODELS = ("mlp_mnist", "mobilenet_v2", "resnet50")
CHILD = CHECKOUT / "benchmarks" / "benchlib" / "start_child.py"

Start = dict[str, float]
"""What one process measured, as `start_child.py` prints it."""


@dataclass(frozen=True)
class Contender:
    """One way to start one model: `kind` is relaybuild or onnxruntime, `file` what it opens."""

    model: str
    kind: str
    file: Path
    inputs: Path


def prepare(model: Model, folder: Path, target: str | None) -> list[Contender]:
    """Compile a model and write its inputs; the contenders, onnxruntime where it is installed."""
    progress(f"{model.name}: compiling")
    library, inputs = folder / f"{model.name}.so", folder / f"{model.name}.npz"
    driver.compile(model.path, shapes=model.shapes, target=target).export_library(library)
    arrays: dict[str, Any] = dict(_arrays.random_inputs(load_module(library).signature.inputs, 0))
    np.savez(inputs, **arrays)
    contenders = [Contender(model.name, "relaybuild", library, inputs)]
    peer = _peers.PEERS["onnxruntime"]
    if peer.is_installed:
        contenders.append(Contender(model.name, peer.name, model.path, inputs))
    else:
        progress(f"note: {peer.missing_message}")
    return contenders


def start_once(contender: Contender, threads: int) -> Start:
    """One start in a process of its own. Raises ToolError where it fails."""
    command = [sys.executable, str(CHILD), contender.kind, str(contender.file), str(contender.inputs), str(threads)]
    path = os.pathsep.join(filter(None, (str(CHECKOUT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode != 0:
        raise ToolError(
            f"cannot start '{contender.model}' with {contender.kind}",
            command=command,
            returncode=done.returncode,
            output=done.stderr,
        )
    found: Start = json.loads(done.stdout)
    return found


def start_table(found: dict[Contender, list[Start]]) -> str:
    """A row for each model and contender."""
    header = (
        "model",
        "",
        "beyond ms",
        "least",
        "load ms",
        "first ms",
        "inference ms",
        "import ms",
        "RSS MB",
        "added MB",
    )
    rows = []
    for contender, starts in found.items():
        middle = {name: statistics.median(start[name] for start in starts) for name in starts[0]}
        least = min(start["beyond"] for start in starts)
        times = [middle["beyond"], least, *(middle[name] for name in ("load", "first", "inference", "import"))]
        memory = middle["resident"], middle["resident"] - middle["resident_before"]
        cells = *(f"{value * 1e3:.2f}" for value in times), *(f"{value / 1e6:.0f}" for value in memory)
        rows.append((contender.model, contender.kind, *cells))
    return table(header, rows)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure load and first inference.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="path or name")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--threads", type=int, default=1, help="threads of an inference (default: 1)")
    parser.add_argument("--target", help="what to compile for (default: the level of this machine)")
    parser.add_argument("--runs", type=int, default=7, help="starts of each contender (default: 7)")
    parser.add_argument("--seconds", type=float, default=120.0, help="begin no further round after so long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    models = find_models(options.models or DEFAULT_MODELS, options.folder)
    found: dict[Contender, list[Start]] = {}
    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
        for model in models:
            found.update((contender, []) for contender in prepare(model, Path(folder), options.target))
        for contender in found:
            start_once(contender, options.threads)
        end = time.perf_counter() + options.seconds
        for number in range(max(1, options.runs)):
            if number and time.perf_counter() > end:
                break
            progress(f"run {number + 1} of {options.runs}")
            for contender, starts in found.items():
                starts.append(start_once(contender, options.threads))
    print(f"{processors()} processors, {options.threads} thread{'s' * (options.threads > 1)}\n")
    print(start_table(found))
    rows = [{"model": c.model, "contender": c.kind, "starts": starts} for c, starts in found.items()]
    save(options.json, {"processors": processors(), "threads": options.threads, "rows": rows})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
