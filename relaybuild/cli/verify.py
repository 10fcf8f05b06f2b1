"""`relaybuild verify`: a library's results beside those of its model run by other means; knows nothing of compiling."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from relaybuild.cli import _library, _options, _peers
from relaybuild.cli._arrays import Comparison, Tolerance, compare
from relaybuild.cli._text import table
from relaybuild.errors import UserError


@click.command(name="verify")
@click.argument("model", type=_options.PATH)
@click.argument("library", type=_options.PATH)
@click.option(
    "--against",
    type=click.Choice(["onnxruntime", "reference"]),
    default=None,
    help="What runs the model: onnxruntime (default for ONNX files), or reference, the semantics of relaybuild's "
    "operators in numpy (the one for Relay programs).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Of random inputs.")
@_options.input_option
@click.option("--rtol", type=click.FloatRange(min=0), default=Tolerance.rtol, show_default=True)
@click.option("--atol", type=click.FloatRange(min=0), default=Tolerance.atol, show_default=True)
@_options.threads_option
def command(
    model: Path,
    library: Path,
    against: str | None,
    seed: int,
    inputs: dict[str, Path],
    rtol: float,
    atol: float,
    threads: int | None,
) -> None:
    """Compare the outputs of LIBRARY with those of MODEL, from which it was compiled.

    An output agrees when max|Δ| is at most RTOL · max|y| + ATOL, with y what MODEL gives; integers have to be equal.
    The relative error is max|Δ| / max|y|. The exit code is 1 when an output does not agree.
    """
    against = _runner_of(model, against)
    module = _library.load_model(library, threads)
    values = _library.gather_inputs(module, inputs, seed)
    shapes = {spec.name: spec.shape for spec in module.signature.inputs}
    found = module.run(values)
    expected = _peers.expected_outputs(against, model, values, shapes)
    if list(found) != list(expected):
        raise UserError(
            f"the model has the outputs {_quoted(list(expected))}, the library {_quoted(list(found))}; "
            "was it compiled from this?",
            where=str(model),
        )
    results = [compare(name, found[name], expected[name], Tolerance(rtol, atol)) for name in expected]
    for line in _report(results):
        click.echo(line)
    failures = sum(not result.is_within for result in results)
    if failures:
        click.echo(f"error: {failures} of {len(results)} outputs differ from {against}", err=True)
        raise click.exceptions.Exit(1)


def _runner_of(model: Path, against: str | None) -> str:
    """What runs a model: as asked, else by its kind."""
    from relaybuild.compilation.sources import is_relay_file

    if not is_relay_file(model):
        return against or "onnxruntime"
    if against == "onnxruntime":
        raise UserError("is a Relay program, which onnxruntime does not run: use --against reference", where=str(model))
    return "reference"


def _report(results: Sequence[Comparison]) -> list[str]:
    header = ("output", "max abs error", "max rel error", "allowed abs", "")
    return table(header, [_row(result) for result in results])


def _row(result: Comparison) -> tuple[str, str, str, str, str]:
    verdict = "ok" if result.is_within else f"FAILED: {result.problem or 'beyond the tolerance'}"
    return result.name, f"{result.max_abs:.3g}", f"{result.max_rel:.3g}", f"{result.limit:.3g}", verdict


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
