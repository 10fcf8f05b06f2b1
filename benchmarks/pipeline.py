"""Measures the passes of the default pipeline on models, and how much of the time is type inference.

    python benchmarks/pipeline.py [MODEL]... [--runs 5] [--opt-level 3] [--json FILE]

Every run is on a module imported anew, whose nodes have the types the importer gave them. Times are the process's own
(what other programs take does not count); that of a pass is the least of all runs. Type inference is the pass InferType
and the type relation of every operator that a pass builds: it is measured in further runs, as a share of their time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchlib.models import Model, find_models
from benchlib.report import percent, progress, run_benchmark, save, table

from relaybuild.frontend.onnx import import_model
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.visitor import post_order
from relaybuild.passes import infer_type
from relaybuild.passes.infra import PassContext
from relaybuild.passes.instruments import PassTiming, PassTimingInstrument
from relaybuild.passes.pipelines import default_pipeline

DEFAULT_MODELS = ("mlp_mnist", "mobilenet_v2", "resnet50")


class TypeClock:
    """Sums the time spent in type inference, what is nested counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time added."""

        def run(*arguments: Any, **options: Any) -> Any:
            if self.depth:
                return function(*arguments, **options)
            self.depth = 1
            begin = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.process_time() - begin
                self.depth = 0

        return run

    @contextmanager
    def running(self) -> Iterator[None]:
        """Time type inference meanwhile."""
        check, infer = Op.check, infer_type.infer_types  # type: ignore[attr-defined]
        Op.check = self.timed(check)  # type: ignore[method-assign]
        infer_type.infer_types = self.timed(infer)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            Op.check, infer_type.infer_types = check, infer  # type: ignore[method-assign,attr-defined]


def optimize(module: IRModule, opt_level: int) -> PassTiming:
    """The times of one run of the pipeline."""
    timing = PassTimingInstrument(time.process_time)
    with PassContext(opt_level, instruments=[timing]):
        default_pipeline()(module)
    return timing.timings[0]


def least(runs: Sequence[PassTiming]) -> list[tuple[str, float]]:
    """(name by depth, seconds) of every pass in order, the least of the runs."""
    walks = [list(run.walk()) for run in runs]
    return [
        (f"{'  ' * depth}{timing.name}", min(walk[place][1].seconds for walk in walks))
        for place, (depth, timing) in enumerate(walks[0])
    ]


def type_share(model: Model, opt_level: int, runs: int) -> float:
    """The part of the pipeline's time that is type inference: the least that was seen."""
    shares = []
    for _ in range(runs):
        module, clock = import_model(model.path, model.shapes).module, TypeClock()
        with clock.running():
            whole = optimize(module, opt_level).seconds
        shares.append(clock.seconds / whole)
    return min(shares)


def measure(model: Model, opt_level: int, runs: int) -> dict[str, Any]:
    """Nodes, seconds per pass, and the share of type inference, of one model."""
    progress(f"{model.name}: {runs} runs")
    modules = [import_model(model.path, model.shapes).module for _ in range(runs)]
    nodes = sum(1 for _ in post_order(*modules[0].functions.values()))
    rows = least([optimize(module, opt_level) for module in modules])
    return {"nodes": nodes, "passes": rows, "type_share": type_share(model, opt_level, runs)}


def report(name: str, measured: dict[str, Any]) -> str:
    """A model's table."""
    whole = measured["passes"][0][1]
    rows = [(label, f"{seconds * 1e3:.1f}", percent(seconds / whole)) for label, seconds in measured["passes"]]
    head = f"{name}: {measured['nodes']} nodes, type inference {percent(measured['type_share'])}"
    return f"{head}\n\n{table(('pass', 'ms', 'share'), rows)}\n"


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", default=DEFAULT_MODELS, metavar="MODEL")
    parser.add_argument("--models", dest="folder", type=Path, metavar="DIR", help="where models lie that are named")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--opt-level", type=int, default=3)
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    """Measure and report."""
    models = find_models(options.models, options.folder)
    results = {model.name: measure(model, options.opt_level, options.runs) for model in models}
    print("\n".join(report(name, measured) for name, measured in results.items()))
    save(options.json, results)


def main(arguments: Sequence[str]) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
