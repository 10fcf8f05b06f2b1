"""`relaybuild fmt`: lays out files of the text format; knows no layout."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import click

from relaybuild.build.files import write_atomically
from relaybuild.errors import UserError

_STANDARD_INPUT = "-"


@click.command(name="fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--check", is_flag=True, help="Write nothing; list the files that would change, and exit 1 if there are.")
def command(files: Sequence[str], check: bool) -> None:
    """Lay out Relay programs in the one way of the text format, comments kept.

    A file is replaced whole, or left alone if nothing changes. FILE may be - for standard input, which is laid out to
    standard output. Every file is looked at before the first error is reported.
    """
    changed: list[str] = []
    errors: list[UserError] = []
    for name in files:
        try:
            if _format(name, check):
                changed.append(name)
        except UserError as error:
            errors.append(error)
    for name in changed if check else ():
        click.echo("<stdin>" if name == _STANDARD_INPUT else name)
    if errors:
        raise UserError("\n".join(str(error) for error in errors))
    if check and changed:
        raise click.exceptions.Exit(1)


def _format(name: str, check: bool) -> bool:
    """Lay out one file; whether that changes it."""
    from relaybuild.ir.formatter import format_text

    if name == _STANDARD_INPUT:
        text = _decoded(sys.stdin.buffer.read(), "<stdin>")
        laid_out = format_text(text, "<stdin>")
        if not check:
            click.echo(laid_out, nl=False)
        return laid_out != text
    path = Path(name)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror}") from None
    laid_out = format_text(_decoded(data, name), name)
    if laid_out.encode() == data:
        return False
    if not check:
        _replace(path.resolve(), laid_out.encode())
    return True


def _decoded(data: bytes, name: str) -> str:
    """A text with lines that end by a newline alone."""
    try:
        return data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UserError(f"cannot read '{name}': it is not UTF-8 at byte {error.start}") from None


def _replace(path: Path, data: bytes) -> None:
    mode = stat.S_IMODE(path.stat().st_mode)

    def write(file: BinaryIO) -> None:
        file.write(data)
        os.fchmod(file.fileno(), mode)

    write_atomically(path, write)
