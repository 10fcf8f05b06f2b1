"""`relaybuild bench`: the time of an inference, beside that of peers in the same run; knows no way to speed it up."""

from __future__ import annotations

import dataclasses
import json
import platform
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from relaybuild.build.files import check_writable, write_if_changed
from relaybuild.cli import _arrays, _library, _measure, _options, _peers, _reproducer
from relaybuild.cli._measure import Spread
from relaybuild.cli._progress import progress
from relaybuild.cli._text import table, time_text
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError


@dataclass(frozen=True)
class Result:
    """The times of one contender, in seconds, and of ours over its (None for ours)."""

    name: str
    version: str
    calls: int
    seconds: Spread
    ratio: Spread | None


@click.command(name="bench")
@click.argument("file", metavar="MODEL", type=_options.PATH)
@click.option("--against", default="", metavar="PEER,...", help=f"Peers: {', '.join(_peers.PEERS)}.")
@click.option("--model", type=_options.PATH, metavar="FILE.onnx", help="What peers run where MODEL is a library.")
@click.option("--json", "json_file", type=_options.PATH, metavar="FILE", help="Write the figures as JSON.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Measuring time for each contender.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Of random inputs.")
@_options.threads_option
@_options.input_option
@_options.shape_option
@_options.compiler_options
def command(
    file: Path,
    against: str,
    model: Path | None,
    json_file: Path | None,
    seconds: float,
    seed: int,
    threads: int | None,
    inputs: dict[str, Path],
    **compiler: Any,
) -> None:
    """Measure the time of one inference of MODEL, a library or an ONNX file (which is compiled first).

    Ours and the peers' runs alternate, all on the same number of threads, with inputs and outputs in place. A ratio is
    our time over the peer's, pair by pair: below 1, relaybuild is faster.
    """
    peers = _chosen_peers(against)
    if json_file is not None:
        check_writable(json_file)
    is_library = _library.is_library(file)
    source = model or (None if is_library else file)
    if peers and source is None:
        raise UserError(f"'{file}' is a library: give --model FILE.onnx, so that peers have something to run")
    with _library_of(file, is_library, threads, compiler) as library:
        module = _library.load_model(library, threads)
        values = _library.gather_inputs(module, inputs, seed)
        ours = _library.LibraryRunner(module, values, _reproducer.version())
        runners: list[_peers.Runner] = [ours]
        runners += [peer.open(source, values, module.num_threads) for peer in peers if source is not None]
        results = _measure_all(runners, seconds, module.num_threads)
        _warn_of_differences(runners)
        facts = {
            "model": str(file),
            "target": module.target,
            "threads": module.num_threads,
            "machine": platform.machine(),
            "processor": _processor(),
        }
    for line in _report(facts, results):
        click.echo(line)
    if json_file is not None:
        contenders = [dataclasses.asdict(result) for result in results]
        write_if_changed(json_file, json.dumps({**facts, "contenders": contenders}, indent=2) + "\n")


def _chosen_peers(text: str) -> list[_peers.Peer]:
    """The peers that the user names and that are there; the others are named on stderr with what brings them."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    unknown = [name for name in names if name not in _peers.PEERS]
    if unknown:
        raise UserError(f"option '--against': unknown '{unknown[0]}', expected some of: {', '.join(_peers.PEERS)}")
    for name in names:
        if not _peers.PEERS[name].is_installed:
            click.echo(f"note: {_peers.PEERS[name].missing_message}", err=True)
    return [_peers.PEERS[name] for name in names if _peers.PEERS[name].is_installed]


@contextmanager
def _library_of(file: Path, is_library: bool, threads: int | None, compiler: Mapping[str, Any]) -> Iterator[Path]:
    """The library to measure: `file` itself, or what it is compiled to, which is there until the block ends."""
    if is_library:
        given = sorted(name for name, value in compiler.items() if value and name != "opt_level")
        if given:
            flags = ", ".join("--shape" if name == "shapes" else f"--{name}" for name in given)
            raise UserError(f"'{file}' is compiled already: {flags} can only be given with an ONNX file")
        yield file
        return
    from relaybuild import driver

    with tempfile.TemporaryDirectory(prefix="relaybuild-bench-") as folder:
        with progress() as report:
            artifact = driver.compile(file, threads=threads, on_event=report, **compiler)
        path = Path(folder) / "model.so"
        artifact.export_library(path)
        yield path


def _measure_all(runners: Sequence[_peers.Runner], seconds: float, threads: int) -> list[Result]:
    pause = _measure.pause_between(threads, len(runners))
    times = _measure.measure([runner.run for runner in runners], seconds, pause=pause)
    return [
        Result(
            runner.name,
            runner.version,
            sum(map(len, blocks)),
            _measure.spread([call for block in blocks for call in block]),
            _measure.spread(_measure.ratios(times[0], blocks)) if index else None,
        )
        for index, (runner, blocks) in enumerate(zip(runners, times))
    ]


def _warn_of_differences(runners: Sequence[_peers.Runner]) -> None:
    """Say so where a peer computes something else: then the comparison of times means nothing."""
    ours, *others = runners
    found = list(ours.outputs().values())
    for other in others:
        for name, (mine, theirs) in zip(ours.outputs(), zip(found, other.outputs().values())):
            result = _arrays.compare(name, mine, theirs, _arrays.Tolerance(rtol=1e-3, atol=1e-5))
            if not result.is_within:
                reason = result.problem or f"by {result.max_rel:.2g} of its magnitude"
                click.echo(f"warning: output '{name}' differs from {other.name}'s: {reason}", err=True)


def _report(facts: Mapping[str, Any], results: Sequence[Result]) -> list[str]:
    count = facts["threads"]
    title = f"{facts['model']}, {facts['target']}, {count} thread{'' if count == 1 else 's'}, {facts['processor']}"
    header = ("", "median", "p10", "p90", "calls", "ratio", "p10", "p90")
    return [title, *table(header, [_row(result) for result in results])]


def _row(result: Result) -> tuple[str, ...]:
    ratio = ("", "", "")
    if result.ratio is not None:
        ratio = (f"{result.ratio.median:.3f}", f"{result.ratio.p10:.3f}", f"{result.ratio.p90:.3f}")
    times = (time_text(value) for value in (result.seconds.median, result.seconds.p10, result.seconds.p90))
    return f"{result.name} {result.version}", *times, str(result.calls), *ratio


def _processor() -> str:
    """What the processor calls itself, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
