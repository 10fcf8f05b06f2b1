"""Measures whole models against onnxruntime, and OpenVINO where it is installed.

    python benchmarks/models.py [MODEL]... [--threads 1,2] [--against onnxruntime,openvino] [--beside TARGET,...]
                                [--cpu-time] [--json FILE]

A MODEL is a path or a name that `tools/fetch_models.py` fetches. Each is compiled once; then, for each number of
threads, relaybuild and its peers run in turns on the same input within one process. A round gives each of them a block
of calls of about 20 ms, whose first is not counted. The table has the median and the least time of a call, and the
median of the round-by-round ratios, relaybuild's time over the peer's: below 1 where relaybuild is faster. Libraries
for the targets beside are further peers. A result that differs from a peer's is told on stderr. On a machine that does
other work meanwhile, the processor's time of one thread says more than the time that passes.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlib.models import Model, find_models, processors
from benchlib.report import progress, run_benchmark, save, table

from relaybuild import driver
from relaybuild.cli import _arrays, _library, _measure, _peers
from relaybuild.errors import UserError
from relaybuild.runtime import load_module

DEFAULT_MODELS = ("mlp_mnist", "kws_dscnn", "mobilenet_v2", "resnet18", "resnet50")
TOLERANCE = _arrays.Tolerance(rtol=1e-3, atol=1e-5)
"""Beyond it a peer computes something else, and the comparison of times means nothing."""


@dataclass(frozen=True)
class Row:
    """One contender on one model: seconds of a call, and relaybuild's time over its own (None for relaybuild)."""

    model: str
    threads: int
    contender: str
    version: str
    calls: int
    median: float
    least: float
    ratio: _measure.Spread | None


def measure_model(model: Model, threads: Sequence[int], peers: Sequence[_peers.Peer], options: Any) -> list[Row]:
    """Rows of one model, for each number of threads."""
    beside = [] if options.beside is None else split_targets(options.beside)
    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
        libraries: dict[str, Path] = {}
        for target in (options.target, *beside):
            progress(f"{model.name}: compiling")
            version = target if target in beside else ""
            libraries[version] = Path(folder) / f"model{len(libraries)}.so"
            driver.compile(model.path, shapes=model.shapes, target=target).export_library(libraries[version])
        rows: list[Row] = []
        for count in threads:
            progress(f"{model.name}: {count} thread{'s' * (count > 1)}")
            rows += _measure_threads(model, libraries, count, peers, options)
        return rows


def split_targets(text: str) -> list[str]:
    """The targets of a list, in which one may have commas in brackets."""
    return [part.strip() for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", text)]


def _measure_threads(
    model: Model, libraries: Mapping[str, Path], threads: int, peers: Sequence[_peers.Peer], options: Any
) -> list[Row]:
    modules = {version: load_module(library, threads=threads) for version, library in libraries.items()}
    inputs = _arrays.random_inputs(modules[""].signature.inputs, 0)
    runners: list[_peers.Runner] = [
        *(_library.LibraryRunner(module, inputs, version) for version, module in modules.items()),
        *(peer.open(model.path, inputs, threads) for peer in peers),
    ]
    pause = _measure.pause_between(threads, len(runners))
    clock = time.thread_time if options.cpu_time else time.perf_counter
    times = _measure.measure([runner.run for runner in runners], options.seconds, clock, pause=pause)
    _warn(model, runners)
    rows = []
    for number, (runner, blocks) in enumerate(zip(runners, times)):
        calls = [call for block in blocks for call in block]
        ratio = _measure.spread(_measure.ratios(times[0], blocks)) if number else None
        median = _measure.spread(calls).median
        rows.append(Row(model.name, threads, runner.name, runner.version, len(calls), median, min(calls), ratio))
    return rows


def _warn(model: Model, runners: Sequence[_peers.Runner]) -> None:
    ours, *others = runners
    for other in others:
        pairs = zip(ours.outputs().items(), other.outputs().values())
        for (name, mine), theirs in pairs:
            result = _arrays.compare(name, mine, theirs, TOLERANCE)
            if not result.is_within:
                reason = result.problem or f"by {result.max_rel:.2g} of its magnitude"
                progress(f"warning: {model.name}: output '{name}' differs from {other.name}'s, {reason}")


def model_table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table, a line for each model, number of threads and contender."""
    header = ("model", "threads", "contender", "median ms", "least ms", "ratio", "p10", "p90")
    return table(header, [_cells(row) for row in rows])


def _cells(row: Row) -> tuple[str, ...]:
    ratio = ("", "", "")
    if row.ratio is not None:
        ratio = (f"{row.ratio.median:.2f}", f"{row.ratio.p10:.2f}", f"{row.ratio.p90:.2f}")
    times = f"{row.median * 1e3:.3f}", f"{row.least * 1e3:.3f}"
    return row.model, str(row.threads), f"{row.contender} {row.version}".strip(), *times, *ratio


def chosen_peers(names: str) -> list[_peers.Peer]:
    """Those that are installed; what brings the others is said on stderr."""
    peers = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name not in _peers.PEERS:
            raise UserError(f"unknown peer '{name}', expected some of: {', '.join(_peers.PEERS)}")
        if _peers.PEERS[name].is_installed:
            peers.append(_peers.PEERS[name])
        else:
            progress(f"note: {_peers.PEERS[name].missing_message}")
    return peers


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure whole models against peers.")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="path or name")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (default: 1,2)")
    parser.add_argument("--against", default="onnxruntime,openvino", metavar="PEER,...")
    parser.add_argument("--target", help="what to compile for (default: the level of this machine)")
    parser.add_argument("--beside", metavar="TARGET,...", help="further targets to compare with")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time of each contender (default: 5)")
    parser.add_argument("--cpu-time", action="store_true", help="processor time of the calling thread, for one thread")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    threads = [int(part) for part in options.threads.split(",")]
    if options.cpu_time and threads != [1]:
        raise UserError("--cpu-time counts one thread: give --threads 1")
    peers = chosen_peers(options.against)
    rows: list[Row] = []
    for model in find_models(options.models or DEFAULT_MODELS, options.folder):
        rows += measure_model(model, threads, peers, options)
    print(f"{processors()} processors\n")
    print(model_table(rows))
    save(options.json, {"processors": processors(), "rows": [dataclasses.asdict(row) for row in rows]})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
