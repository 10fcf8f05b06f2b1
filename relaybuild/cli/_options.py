"""Parses the options that several commands share; knows no model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from relaybuild.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

PATH = click.Path(path_type=Path)


class _Folder(click.Path):
    """A path that has to be named: an empty one would be the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            raise UserError(f"option '{param.opts[0] if param is not None else 'DIR'}': expected a folder, found ''")
        return super().convert(value, param, ctx)


FOLDER = _Folder(path_type=Path)

MOST_EXTENT = 1 << 48
"""Elements that no tensor has."""

CONFIG_NAME = "config.cmake"
"""The configuration that is read where none is named, if it is in the current folder."""


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`NAME=D,D,...` texts as shapes by name; nothing after the equals sign is a scalar's shape.

    Raises UserError for a text of another form and for a name given twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, equals, extents = text.rpartition("=")
        parts = [part.strip() for part in extents.split(",")] if extents.strip() else []
        if not name or not equals or not all(part.isascii() and part.isdigit() for part in parts):
            raise UserError(f"option '--shape {text}': expected NAME=D,D,..., as in '--shape image=1,3,224,224'")
        if name in shapes:
            raise UserError(f"option '--shape {text}': a shape for '{name}' is given already, expected one")
        shapes[name] = tuple(map(int, parts))
        if any(extent > MOST_EXTENT for extent in shapes[name]):
            raise UserError(f"option '--shape {text}': an extent is larger than any machine's memory")
    return shapes


def parse_files(texts: Sequence[str]) -> dict[str, Path]:
    """`NAME=FILE` texts as files by name. Raises UserError for a text of another form and for a name given twice."""
    files: dict[str, Path] = {}
    for text in texts:
        name, equals, file = text.partition("=")
        if not name or not equals or not file:
            raise UserError(f"option '--input {text}': expected NAME=FILE.npy")
        if name in files:
            raise UserError(f"option '--input {text}': a file for '{name}' is given already, expected one")
        files[name] = Path(file)
    return files


def parse_defines(texts: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` or `NAME:TYPE=VALUE` texts as values by name; of two for one name the last counts, as in CMake.

    Raises UserError for a text of another form.
    """
    defines: dict[str, str] = {}
    for text in texts:
        declared, equals, value = text.partition("=")
        name = declared.partition(":")[0].strip()
        if not name or not equals:
            raise UserError(f"option '-D {text}': expected NAME=VALUE, as in '-D USE_DNNL=ON'")
        defines[name] = value
    return defines


def shape_option(command: F) -> F:
    """Add `--shape`, as the argument `shapes`: a dict from input name to extents, or None."""
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=D,D,...",
        callback=lambda _ctx, _param, texts: parse_shapes(texts) or None,
        help="Shape of an input to compile for; repeat it for further inputs.",
    )(command)


def input_option(command: F) -> F:
    """Add `--input`, as the argument `inputs`: a dict from input name to file."""
    return click.option(
        "--input",
        "inputs",
        multiple=True,
        metavar="NAME=FILE.npy",
        callback=lambda _ctx, _param, texts: parse_files(texts),
        help="Array for an input; repeat it for further inputs.",
    )(command)


def config_options(command: F) -> F:
    """Add what switches backends on: `--config`, as the argument `config`, a path or None, which is the current
    folder's config.cmake by default; and `-D`, as the argument `defines`, a dict from name to value."""
    options = (
        click.option(
            "--config",
            type=PATH,
            metavar="FILE",
            callback=lambda _ctx, _param, path: path or _config_here(),
            help=f"CMake script that switches backends on; by default {CONFIG_NAME} of the current folder, if any.",
        ),
        click.option(
            "-D",
            "defines",
            multiple=True,
            metavar="NAME=VALUE",
            callback=lambda _ctx, _param, texts: parse_defines(texts),
            help="Set a flag such as USE_DNNL, over the script; repeat it for further flags.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _config_here() -> Path | None:
    path = Path(CONFIG_NAME)
    return path if path.is_file() else None


def threads_option(command: F) -> F:
    """Add `--threads`, as the argument `threads`: a positive int or None."""
    return click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads that one inference uses.")(
        command
    )


def compiler_options(command: F) -> F:
    """Add what decides the code that is made: `target`, `opt_level`, `cc`, `jobs`, `precise`."""
    options = (
        click.option(
            "--target", metavar="NAME", help="x86-64-v2, -v3, -v4, x86-64-multi, native, aarch64, c; +FEATURE."
        ),
        click.option(
            "--opt-level", type=click.IntRange(0, 4), default=3, show_default=True, help="Which passes may run."
        ),
        click.option("--cc", metavar="COMMAND", help="C compiler; else CC of the environment, else the one found."),
        click.option("--jobs", "-j", type=click.IntRange(min=1), metavar="N", help="Compiler processes at a time."),
        click.option("--precise", is_flag=True, help="Rule out what rounds more, such as Winograd's convolution."),
    )
    for option in reversed(options):
        command = option(command)
    return command
