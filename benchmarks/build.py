"""Measures what `relaybuild compile` costs that finds everything in the cache, beside Python's start.

    python benchmarks/build.py [MODEL]... [--rounds 20] [--json FILE]

Each figure is a process's wall time. "floor" is `python -c "import click, sqlite3"`, what such a command line costs
that does nothing; "in place" writes to the library that is there already; "elsewhere" to a new one, which is copied and
verified; "first" is the compilation that fills an empty cache. Within a round all take turns, so that a disturbance of
the machine slows down each of them; the ratio is that of a round, its median over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchlib.models import Model, find_models
from benchlib.processes import compile_command, environment, timed
from benchlib.report import progress, run_benchmark, save, table

from relaybuild.build.cache.memo import RACY_SECONDS

DEFAULT_MODELS = ("mlp_mnist", "resnet50")
FLOOR = (sys.executable, "-c", "import click, sqlite3")
COLUMNS = ("floor", "in place", "elsewhere")

Round = dict[str, float]
"""Seconds by column."""


def measure(model: Model, rounds: int, folder: Path) -> tuple[float, list[Round]]:
    """The seconds of the first compilation, and the rounds of those that find it."""
    environ = environment(folder / "bytecode", RELAYBUILD_CACHE_DIR=str(folder / "cache"))
    in_place = compile_command([sys.executable], model, folder / "model.so")
    other = folder / "other" / "model.so"
    timed(FLOOR, environ)
    first, _ = timed(in_place, environ)
    # digests of files that were written just now are not remembered
    time.sleep(RACY_SECONDS + 0.5)
    timed(in_place, environ)
    found: list[Round] = []
    for _ in range(rounds):
        other.parent.mkdir(exist_ok=True)
        other.unlink(missing_ok=True)
        commands = (FLOOR, in_place, compile_command([sys.executable], model, other))
        found.append({name: timed(each, environ)[0] for name, each in zip(COLUMNS, commands)})
    return first, found


def time_table(found: dict[str, tuple[float, list[Round]]]) -> str:
    """A row for each model: medians in milliseconds, and ratios to the floor."""
    rows = []
    for name, (first, rounds) in found.items():
        medians = [f"{1000 * statistics.median(each[column] for each in rounds):.0f}" for column in COLUMNS]
        least = [f"{1000 * min(each[column] for each in rounds):.0f}" for column in COLUMNS[:2]]
        ratios = [statistics.median(each[column] / each["floor"] for each in rounds) for column in COLUMNS[1:]]
        rows.append((name, f"{1000 * first:.0f}", *medians, *least, *(f"{ratio:.2f}" for ratio in ratios)))
    header = (
        "model",
        "first ms",
        *(f"{column} ms" for column in COLUMNS),
        "least floor",
        "least in place",
        "in place : floor",
        "elsewhere : floor",
    )
    return table(header, rows)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure compilations that find everything in the cache.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="path or name")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--rounds", type=int, default=20, help="rounds for each model (default: 20)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    found: dict[str, tuple[float, list[Round]]] = {}
    for model in find_models(options.models or DEFAULT_MODELS, options.folder):
        progress(model.name)
        with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
            found[model.name] = measure(model, max(1, options.rounds), Path(folder))
    print(time_table(found))
    save(options.json, {name: {"first": first, "rounds": rounds} for name, (first, rounds) in found.items()})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
