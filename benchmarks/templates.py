"""Measures every kernel template against the machine's limit, on random shapes and one thread.

    python benchmarks/templates.py [--template NAME]... [--shapes 30] [--seconds 60] [--json FILE]

For each template, shapes are drawn (seeded) whose sizes spread from microseconds to milliseconds. Each becomes one
kernel, generated and compiled as for a model, and is timed alone: warm (its data lie in whatever cache holds them), in
blocks of calls, in several rounds over all kernels, so that a disturbance does not fall on one of them alone. The
machine's limit is measured in the same process by a few lines of C with the same vectors: multiply-adds in registers,
and bandwidth over working sets of every size. Beyond a core's own caches, what is left for it of a shared one changes
from second to second: there bandwidth is measured for each kernel by itself, over as many bytes, next to each of its
rounds and for as long. `benchlib/limits.py` has the formula. The share is limit / time, where both are the least that
were seen (`--statistic median`: the median of times).

Convolutions count the multiply-adds of the direct algorithm, so Winograd's can exceed 100 %. Bytes are those of the
logical tensors: pad lanes and halos are a kernel's own loss. "Large" are kernels whose limit is `--large` microseconds
or more.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from benchlib.cases import TEMPLATES, Case, draw_cases
from benchlib.kernels import TimedKernel, Timer, build_timer, kernel_of
from benchlib.limits import KINDS, Curve, Limits, falling
from benchlib.report import percent, progress, run_benchmark, save, table
from numpy.typing import NDArray

from relaybuild.build.toolchain import probe
from relaybuild.target import Target

ROUNDS = 3
CASES_BETWEEN_LIMITS = 60
SIZES = tuple(1 << power for power in range(14, 29))
"""Working sets for which bandwidth is measured: 16 KiB to 256 MiB."""
SECONDS_EACH = 0.01
SHARED_BYTES = 1 << 20
"""Working sets from here on come from memory that a core shares with others."""
BANDWIDTH_MULTIPLE = 1 << 14
"""What bandwidth is measured over is a multiple of this."""


@dataclass(frozen=True)
class Result:
    """One shape: seconds of a call (least and median), the machine's limit, and how the limit was found."""

    case: Case
    least: float
    median: float
    limit: float
    is_arithmetic: bool

    def share(self, statistic: str) -> float:
        """The part of the machine's limit that is reached."""
        return self.limit / (self.median if statistic == "median" else self.least)

    def rate(self, statistic: str) -> str:
        """Arithmetic or bytes a second, whichever the limit comes from."""
        seconds = self.median if statistic == "median" else self.least
        if self.is_arithmetic:
            return f"{self.case.work.operations / seconds / 1e9:.0f} GFLOP/s"
        return f"{self.case.work.num_bytes / seconds / 1e9:.0f} GB/s"


def measure_bandwidths(timer: Timer, memory: NDArray[np.float32]) -> list[list[float]]:
    """Bytes a second by kind and size."""
    return [[timer.bandwidth(kind, memory, size, SECONDS_EACH) for size in SIZES] for kind in range(len(KINDS))]


def measure(timer: Timer, cases: Sequence[Case], seconds: float) -> tuple[list[list[float]], list[Limits], Limits]:
    """Times of each case, its own limits, and those of the machine in general, from rounds over all of them."""
    memory = np.ones(SIZES[-1] // 4 + 16, np.float32)
    times: list[list[float]] = [[] for _ in cases]
    peak = 0.0
    rates = np.zeros((len(KINDS), len(SIZES)))
    own = np.zeros((len(cases), len(KINDS)))
    each = seconds / max(1, len(cases)) / ROUNDS
    for number in range(ROUNDS):
        progress(f"round {number + 1} of {ROUNDS}")
        for index, case in enumerate(cases):
            if index % CASES_BETWEEN_LIMITS == 0:
                peak = max(peak, timer.fma_peak(SECONDS_EACH))
                rates = np.maximum(rates, measure_bandwidths(timer, memory))
            times[index] += timer.time(index, each)
            if case.work.num_bytes >= SHARED_BYTES:
                own[index] = np.maximum(own[index], own_bandwidths(timer, memory, case, each))
    general = Limits(peak, *(falling(SIZES, row.tolist()) for row in rates))
    return times, [own_limits(general, case, row.tolist()) for case, row in zip(cases, own)], general


def own_bandwidths(timer: Timer, memory: NDArray[np.float32], case: Case, seconds: float) -> list[float]:
    """Bytes a second by kind over the working set of one case; 0 for a kind of which it needs less than a tenth."""
    size = round(case.work.num_bytes / BANDWIDTH_MULTIPLE) * BANDWIDTH_MULTIPLE
    needed = [part >= 0.1 * case.work.num_bytes for part in case.work.moved]
    return [timer.bandwidth(kind, memory, size, seconds) if needed[kind] else 0.0 for kind in range(len(KINDS))]


def own_limits(general: Limits, case: Case, rates: Sequence[float]) -> Limits:
    """Limits with the bandwidths that were measured beside a case, where they were."""
    curves = (general.read, general.write, general.copy)
    size = case.work.num_bytes
    return Limits(general.peak, *(Curve((size,), (rate,)) if rate else curve for rate, curve in zip(rates, curves)))


def results_of(cases: Sequence[Case], times: Sequence[Sequence[float]], limits: Sequence[Limits]) -> list[Result]:
    """Times beside limits."""
    return [
        Result(
            case,
            min(found),
            statistics.median(found),
            own.seconds(case.work),
            own.arithmetic_seconds(case.work) >= own.memory_seconds(case.work),
        )
        for case, found, own in zip(cases, times, limits)
    ]


def summary_rows(results: Sequence[Result], large: float, statistic: str) -> list[tuple[str, ...]]:
    """A row for each template: worst, median and best share, and the worst of the large ones with its shape."""
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(result.case.template for result in results):
        own = sorted((r for r in results if r.case.template == name), key=lambda r: r.share(statistic))
        shares = [result.share(statistic) for result in own]
        big = [result for result in own if result.limit >= large]
        worst = (percent(big[0].share(statistic)), big[0].case.label) if big else ("", "")
        marks = percent(shares[0]), percent(statistics.median(shares)), percent(shares[-1])
        rows.append((name, *marks, str(len(big)), *worst))
    return rows


def shape_rows(results: Sequence[Result], statistic: str) -> list[tuple[str, ...]]:
    """A row for each shape."""
    return [
        (
            f"{r.case.template}: {r.case.label}",
            f"{r.least * 1e6:.1f}",
            f"{r.median * 1e6:.1f}",
            f"{r.limit * 1e6:.1f}",
            r.rate(statistic),
            percent(r.share(statistic)),
        )
        for r in results
    ]


def limit_lines(limits: Limits) -> list[str]:
    """What the machine can do, in words and a table."""
    columns = [14, 16, 18, 20, 22, 24, 26, 28]
    header = ("GB/s of one core, by working set", *(_size_text(1 << power) for power in columns))
    curves = zip(KINDS, (limits.read, limits.write, limits.copy))
    rows = [(kind, *(f"{curve.at(1 << power) / 1e9:.0f}" for power in columns)) for kind, curve in curves]
    return [f"multiply-adds in registers: {limits.peak / 1e9:.0f} GFLOP/s", "", table(header, rows)]


def _size_text(num_bytes: int) -> str:
    return f"{num_bytes >> 20} MiB" if num_bytes >= 1 << 20 else f"{num_bytes >> 10} KiB"


def worst_line(results: Sequence[Result], large: float, statistic: str) -> str:
    """The overall worst of the large kernels."""
    big = sorted((r for r in results if r.limit >= large), key=lambda r: r.share(statistic))
    if not big:
        return f"no kernel has a limit of {large * 1e6:.0f} µs or more"
    worst = big[0]
    return (
        f"worst of {len(big)} large kernels (limit {large * 1e6:.0f} µs or more): "
        f"{percent(worst.share(statistic))}, {worst.case.template}: {worst.case.label}"
    )


def report(results: Sequence[Result], limits: Limits, options: argparse.Namespace) -> None:
    """Print the tables."""
    large, statistic = options.large * 1e-6, options.statistic
    print("\n".join(limit_lines(limits)), end="\n\n")
    shape_header = ("least µs", "median µs", "limit µs", "rate", "share")
    if options.verbose:
        print(table(("shape", *shape_header), shape_rows(results, statistic)), end="\n\n")
    header = ("template", "worst", "median", "best", "large", "worst large", "its shape")
    print(table(header, summary_rows(results, large, statistic)), end="\n\n")
    below = sorted(
        (r for r in results if r.limit >= large and r.share(statistic) < options.goal), key=lambda r: r.share(statistic)
    )
    if below:
        first = f"large and below {percent(options.goal)}"
        print(table((first, *shape_header), shape_rows(below, statistic)), end="\n\n")
    print(worst_line(results, large, statistic))


def to_json(results: Sequence[Result], limits: Limits, target: Target) -> dict[str, object]:
    """Everything that was measured."""
    return {
        "target": target.name,
        "peak_flops": limits.peak,
        "bandwidth": {
            kind: {str(size): curve.at(size) for size in SIZES}
            for kind, curve in zip(KINDS, (limits.read, limits.write, limits.copy))
        },
        "shapes": [
            {
                "template": r.case.template,
                "shape": r.case.label,
                "least_seconds": r.least,
                "median_seconds": r.median,
                "limit_seconds": r.limit,
                "operations": r.case.work.operations,
                "bytes": r.case.work.num_bytes,
            }
            for r in results
        ],
    }


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Measure kernel templates against the machine's limit.")
    parser.add_argument("--template", action="append", metavar="NAME", help="only templates whose name contains NAME")
    parser.add_argument("--shapes", type=int, default=30, help="shapes of each template (default: 30)")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other shapes")
    parser.add_argument("--target", help="what to compile for (default: the level of this machine)")
    parser.add_argument("--seconds", type=float, default=60.0, help="time to measure for, in all (default: 60)")
    parser.add_argument("--large", type=float, default=50.0, help="microseconds from which a limit is large")
    parser.add_argument("--goal", type=float, default=0.4, help="share below which large kernels are listed")
    parser.add_argument("--statistic", choices=("least", "median"), default="least", help="the time shares are made of")
    parser.add_argument("--jobs", type=int, help="compilers that run at a time")
    parser.add_argument("--verbose", action="store_true", help="print every shape")
    parser.add_argument("--build", type=Path, metavar="DIR", help="keep what is compiled, for the next run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    options = parser.parse_args(arguments)
    wanted = options.template or [""]
    options.names = [name for name in TEMPLATES if any(part in name for part in wanted)]
    if not options.names:
        parser.error(f"no template is named {' or '.join(wanted)}; there are: {', '.join(TEMPLATES)}")
    return options


def generate(cases: Sequence[Case], target: Target) -> list[TimedKernel]:
    """The kernel of each case."""
    return [
        kernel_of(case.build(), case.op, f"bench_{number}", target, precise=case.precise)
        for number, case in enumerate(cases)
    ]


def run(options: argparse.Namespace) -> None:
    """Draw, generate, compile, time and report."""
    target = Target.parse(options.target) if options.target else Target.host()
    toolchain = probe()
    cases = draw_cases(options.names, options.shapes, options.seed)
    kernels = generate(cases, target)
    with ExitStack() as stack:
        folder = options.build or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="relaybuild-bench-")))
        progress(f"compiling {len(kernels)} kernels")
        timer = build_timer(kernels, target, toolchain, folder, options.jobs)
        times, own, general = measure(timer, cases, options.seconds)
    results = results_of(cases, times, own)
    report(results, general, options)
    save(options.json, to_json(results, general, target))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; the exit code."""
    return run_benchmark(lambda: run(parse_arguments(arguments)))


if __name__ == "__main__":
    sys.exit(main())
