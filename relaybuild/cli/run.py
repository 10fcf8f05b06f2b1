"""`relaybuild run`: one inference of a library on arrays from files; knows nothing of compiling."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from relaybuild.build.files import make_folder
from relaybuild.cli import _arrays, _library, _options
from relaybuild.cli._arrays import Array
from relaybuild.cli._text import shape_text

_SHOWN = 6


@click.command(name="run")
@click.argument("library", type=_options.PATH)
@_options.input_option
@click.option(
    "--random", "seed", type=click.IntRange(min=0), metavar="SEED", help="Random arrays for the other inputs."
)
@click.option("--output", type=_options.PATH, metavar="DIR", help="Write each output to a file NAME.npy in DIR.")
@_options.threads_option
def command(library: Path, inputs: dict[str, Path], seed: int | None, output: Path | None, threads: int | None) -> None:
    """Run LIBRARY once and print what its outputs hold."""
    module = _library.load_model(library, threads)
    outputs = module.run(_library.gather_inputs(module, inputs, seed))
    for name, array in outputs.items():
        click.echo(describe(name, array))
    if output is not None:
        make_folder(output)
        for path in _arrays.save_outputs(outputs, output):
            click.echo(f"wrote {path}")


def describe(name: str, array: Array) -> str:
    """One line on an array: dtype, shape, range, the first values."""
    head = f"{name}: {array.dtype} {shape_text(array.shape)}"
    if array.size == 0:
        return f"{head}  empty"
    values = " ".join(_number(value) for value in array.reshape(-1)[:_SHOWN])
    more = " ..." if array.size > _SHOWN else ""
    return f"{head}  min {_number(np.min(array))}  max {_number(np.max(array))}  [{values}{more}]"


def _number(value: np.generic) -> str:
    return f"{value:.6g}" if isinstance(value, np.floating) else str(value)
