"""Measures how long `relaybuild compile` takes as a process, with nothing cached.

    python benchmarks/build_time.py [MODEL]... [--runs 5] [--json FILE]

Each run is a new process with an empty folder for temporary files: start of Python, imports, probe of the toolchain,
all stages. One run of each model goes before and does not count, so that compiler and model come from the page cache,
and Python has its compiled modules; the runs of the models then take turns, each without a cache and through an empty
one, which the second table compares. The stages come from `--summary`; "rest" is what the process
did beside them (start, imports, probe). "compiler" is the share of the wall time in which ninja and the compiler ran,
the stages `object` and `link`; "cpu" the seconds of all processes together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchlib.models import Model, find_models, processors
from benchlib.processes import compile_command, environment, timed
from benchlib.report import percent, progress, run_benchmark, save, table

DEFAULT_MODELS = ("mlp_mnist", "kws_dscnn", "mobilenet_v2", "resnet18", "resnet50")
STAGES = ("import", "pass", "partition", "codegen", "object", "link")

Run = dict[str, float]
"""Seconds: `wall`, `cpu`, and each stage."""


def compile_once(model: Model, bytecode: Path, *, has_cache: bool = False) -> Run:
    """One run, without a cache or through an empty one. Raises ToolError, with the output, where it fails."""
    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
        summary = Path(folder) / "summary.json"
        command = compile_command([sys.executable], model, Path(folder) / "model.so")
        command += ["--summary", str(summary), *([] if has_cache else ["--no-cache"])]
        places = dict.fromkeys(("TMPDIR", "XDG_CACHE_HOME", "RELAYBUILD_CACHE_DIR"), folder)
        wall, cpu = timed(command, environment(bytecode, **places))
        stages = json.loads(summary.read_text(encoding="utf-8"))["seconds"]
        return {"wall": wall, "cpu": cpu, **{stage: stages[stage] for stage in STAGES}}


def median_run(runs: Sequence[Run]) -> Run:
    """The median of each of the figures."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def rest_of(run: Run) -> float:
    """Seconds outside all stages."""
    return run["wall"] - sum(run[stage] for stage in STAGES)


def compiler_share(run: Run) -> float:
    """The part of the wall time in which ninja and the compiler ran."""
    return (run["object"] + run["link"]) / run["wall"]


def time_table(found: dict[str, list[Run]]) -> str:
    """A row for each model."""
    header = ("model", "wall s", "least", *STAGES, "rest", "compiler", "cpu s")
    rows = []
    for name, runs in found.items():
        middle = median_run(runs)
        stages = [f"{middle[stage]:.2f}" for stage in STAGES]
        ends = f"{rest_of(middle):.2f}", percent(compiler_share(middle)), f"{middle['cpu']:.2f}"
        rows.append((name, f"{middle['wall']:.2f}", f"{min(run['wall'] for run in runs):.2f}", *stages, *ends))
    return table(header, rows)


def cache_table(found: dict[str, list[Run]], through: dict[str, list[Run]]) -> str:
    """What an empty cache adds, by model: the ratio of a pair of runs, its median, and that of the least times."""
    rows = []
    for name, runs in found.items():
        clock = [(other["wall"], run["wall"]) for other, run in zip(through[name], runs)]
        processor = [(other["cpu"], run["cpu"]) for other, run in zip(through[name], runs)]
        medians = [f"{statistics.median(a / b for a, b in pairs):.2f}" for pairs in (clock, processor)]
        least = [f"{min(a for a, _ in pairs) / min(b for _, b in pairs):.2f}" for pairs in (clock, processor)]
        middle = median_run(through[name])
        rows.append((name, f"{middle['wall']:.2f}", f"{middle['cpu']:.2f}", *medians, *least))
    header = ("through an empty cache", "wall s", "cpu s", "wall ratio", "cpu ratio", "least wall", "least cpu")
    return table(header, rows)


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure `relaybuild compile` as a process.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="path or name")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--runs", type=int, default=5, help="runs of each model (default: 5)")
    parser.add_argument("--seconds", type=float, default=300.0, help="begin no further round after so long")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    models = find_models(options.models or DEFAULT_MODELS, options.folder)
    found: dict[str, list[Run]] = {model.name: [] for model in models}
    through: dict[str, list[Run]] = {model.name: [] for model in models}
    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
        bytecode = Path(folder)
        for model in models:
            progress(f"{model.name}: warming up")
            compile_once(model, bytecode)
        end = time.perf_counter() + options.seconds
        for number in range(max(1, options.runs)):
            if number and time.perf_counter() > end:
                break
            progress(f"run {number + 1} of {options.runs}")
            for model in models:
                for has_cache in (False, True) if number % 2 else (True, False):
                    runs = through if has_cache else found
                    runs[model.name].append(compile_once(model, bytecode, has_cache=has_cache))
    print(f"{processors()} processors, nothing cached\n")
    print(time_table(found))
    print(f"\n{cache_table(found, through)}")
    save(options.json, {"processors": processors(), "runs": found, "through_an_empty_cache": through})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
