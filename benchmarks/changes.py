"""Measures what `relaybuild compile` costs after a change of the model: other weights, one layer of another width.

    python benchmarks/changes.py [MODEL]... [--rounds 3] [--json FILE]

Each figure is a process's wall time. In a round, the model is compiled without a cache ("no cache"), with an empty one
("cold"), then, in that cache, a model whose weights all differ ("weights") and one of which one convolution has more
channels ("layer"). "bytes" is what a run cannot do without that has to read the model and to make and keep the library:
a SHA-256 of the model, one of the library, and writing the library twice. A model without two convolutions in a row has
no "layer". A number behind a time is that of the kernels
and other units that were compiled. Ratios are those of a round, medians over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
from benchlib.edits import retrained, save, widened
from benchlib.models import Model, find_models
from benchlib.processes import compile_command, environment, timed
from benchlib.report import progress, run_benchmark, table
from benchlib.report import save as save_json

from relaybuild.build.cache.memo import RACY_SECONDS
from relaybuild.errors import UserError

DEFAULT_MODELS = ("resnet50",)
COLUMNS = ("no cache", "cold", "weights", "layer")

Round = dict[str, float]
"""Seconds by column, those of "bytes" too, and under "... units" how many units were compiled."""


def measure(model: Model, number: int, folder: Path) -> Round:
    """One round in an empty folder."""
    environ = environment(folder.parent / "bytecode", RELAYBUILD_CACHE_DIR=str(folder / "cache"))
    original = onnx.load(str(model.path))
    path = folder / f"{model.name}.onnx"
    versions = {"no cache": original, "cold": original, "weights": retrained(original, number)}
    with contextlib.suppress(UserError):
        versions["layer"], _ = widened(original)
    found: Round = {}
    for column, version in versions.items():
        save(version, str(path))
        # digests of files that were written just now are not remembered
        time.sleep(RACY_SECONDS + 0.5)
        output, summary = folder / "model.so", folder / "summary.json"
        command = compile_command([sys.executable], replace(model, path=path), output)
        command += ["--summary", str(summary), *(["--no-cache"] if column == "no cache" else [])]
        found[column], _ = timed(command, environ)
        found[f"{column} units"] = json.loads(summary.read_text())["executed"]["object"]
    found["bytes"] = bytes_seconds(path, output)
    return found


def bytes_seconds(model: Path, library: Path) -> float:
    """What hashing a model and a library, and writing the library twice takes."""
    data = library.read_bytes()
    begin = time.perf_counter()
    hashlib.sha256(model.read_bytes()).digest()
    hashlib.sha256(data).digest()
    for name in ("first", "second"):
        (library.parent / name).write_bytes(data)
    return time.perf_counter() - begin


def time_table(found: dict[str, list[Round]]) -> str:
    """A row for each model."""
    rows = []
    for name, rounds in found.items():
        there = [column for column in COLUMNS if column in rounds[0]]
        medians = {column: statistics.median(each[column] for each in rounds) for column in (*there, "bytes")}
        times = [f"{medians[column]:.2f} ({rounds[-1][f'{column} units']:.0f})" for column in there]
        times += ["-"] * (len(COLUMNS) - len(there))
        shares = [statistics.median(each[column] / each["cold"] for each in rounds) for column in there[2:]]
        beyond = statistics.median(each["weights"] - each["bytes"] for each in rounds)
        filling = statistics.median(each["cold"] / each["no cache"] for each in rounds)
        percents = [f"{100 * share:.0f} %" for share in shares] + ["-"] * (len(COLUMNS) - len(there))
        ratios = [f"{filling:.2f}", *percents, f"{beyond:.2f}"]
        rows.append((name, *times, f"{medians['bytes']:.2f}", *ratios))
    head = [f"{column} s" for column in (*COLUMNS, "bytes")]
    return table(("model", *head, "cold : no cache", "weights", "layer", "weights - bytes s"), rows)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure compilations after a change of the model.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="path or name")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--rounds", type=int, default=3, help="rounds for each model (default: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    found: dict[str, list[Round]] = {}
    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as place:
        for model in find_models(options.models or DEFAULT_MODELS, options.folder):
            progress(model.name)
            # the first process makes Python's compiled modules
            environ = environment(Path(place) / "bytecode")
            timed([*compile_command([sys.executable], model, Path(place) / "first.so"), "--no-cache"], environ)
            for number in range(max(1, options.rounds)):
                with tempfile.TemporaryDirectory(dir=place) as folder:
                    found.setdefault(model.name, []).append(measure(model, number, Path(folder)))
    print(time_table(found))
    save_json(options.json, {name: {"rounds": rounds} for name, rounds in found.items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
