"""Reports a failure of relaybuild itself: the traceback, and a folder with what repeats it; does not know the cause."""

from __future__ import annotations

import importlib.metadata
import platform
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

# A larger file stands in the report by name and size: a crash must not fill the disk.
_MAX_COPY_BYTES = 64 << 20
_PACKAGES = ("numpy", "onnx", "ninja", "click", "rich")


def version() -> str:
    """The version of the installed relaybuild, or `unknown` in a checkout that is not installed."""
    return _version_of("relaybuild")


def report(error: BaseException, arguments: Sequence[str]) -> None:
    """Print the traceback of `error` to stderr and write a folder with what repeats it, naming the folder."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    click.echo(text, err=True, nl=False)
    click.echo("error: this is a fault of relaybuild, not of your model", err=True)
    try:
        folder = _write(text, arguments)
    except OSError as failure:
        click.echo(f"  no reproducer could be written: {failure}", err=True)
        return
    click.echo(f"  '{folder}' holds what repeats it: please attach it to a report of the fault", err=True)


def _write(text: str, arguments: Sequence[str]) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="relaybuild-failure-"))
    lines = [f"command: relaybuild {shlex.join(arguments)}", f"folder: {Path.cwd()}", *_versions()]
    for path in _files(arguments):
        size = path.stat().st_size
        is_copied = size <= _MAX_COPY_BYTES
        if is_copied:
            shutil.copy(path, folder)
        lines.append(f"file: {path} ({size} bytes{'' if is_copied else ', too large to be copied here'})")
    (folder / "report.txt").write_text("\n".join([*lines, "", text]), encoding="utf-8")
    return folder


def _files(arguments: Sequence[str]) -> Iterator[Path]:
    """The files that arguments of the form `FILE`, `NAME=FILE` or `--flag=FILE` name."""
    for argument in arguments:
        path = Path(argument.rpartition("=")[2])
        if path.is_file():
            yield path


def _versions() -> list[str]:
    packages = ", ".join(f"{name} {_version_of(name)}" for name in ("relaybuild", *_PACKAGES))
    return [f"versions: {packages}", f"python: {sys.version}", f"machine: {platform.platform()}"]


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
