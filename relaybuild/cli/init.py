"""`relaybuild init`: puts a config.cmake into a project; does not know what stands in it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import BinaryIO

import click

from relaybuild.build.files import make_folder, write_atomically
from relaybuild.build.share import share_dir
from relaybuild.cli._options import CONFIG_NAME, PATH
from relaybuild.errors import UserError


@click.command(name="init")
@click.argument("folder", type=PATH, default=Path("."), metavar="[DIR]")
@click.option("--force", is_flag=True, help="Replace a config.cmake that is there.")
def command(folder: Path, force: bool) -> None:
    """Write a config.cmake into DIR (default: the current folder), in which backends are switched on.

    Every flag is in it, off, with what it does and the values that it takes. One that is there already is left alone.
    """
    path = folder / CONFIG_NAME
    if path.exists() and not force:
        raise UserError(f"'{path}' is there already, and may have been edited; use --force to replace it")
    text = (share_dir() / CONFIG_NAME).read_bytes()
    make_folder(folder)
    write_atomically(path, lambda file: _write(file, text))
    click.echo(f"wrote {path}: edit it to switch backends on")
    click.echo(f"next: {_next_command(path)}")


def _next_command(path: Path) -> str:
    """How a model is compiled under the new configuration from the current folder."""
    option = "" if path.parent.resolve() == Path.cwd() else f" --config {shlex.quote(str(path))}"
    return f"relaybuild compile MODEL{option} -o model.so"


def _write(file: BinaryIO, text: bytes) -> None:
    file.write(text)
