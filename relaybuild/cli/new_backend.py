"""`relaybuild new-backend`: makes the package of a new backend out of templates; does not know what stands in them.

A template is a file of `_new_backend/` whose name ends in `.in`. In its path and in its text `@name@` and `@NAME@`
stand for the backend's name.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from relaybuild.build.files import make_folder, temporary_beside, writing
from relaybuild.cli._options import PATH
from relaybuild.errors import UserError
from relaybuild.partition.backend import HOST, all_backends

_TEMPLATES = Path(__file__).parent / "_new_backend"
_SUFFIX = ".in"
_WORD = re.compile(r"@(\w+)@")

# Part of the names of a distribution, a package, C functions and a flag.
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_MAX_LENGTH = 32


@click.command(name="new-backend")
@click.argument("name")
@click.option("--out", "folder", type=PATH, metavar="DIR", help="Folder to make; by default relaybuild-NAME.")
def command(name: str, folder: Path | None) -> None:
    """Make a package that brings a backend NAME, to begin one from.

    It is complete: a code generator, patterns, a CMake module, tests that pass. Once it is installed, -D USE_NAME=ON
    switches it on.
    """
    _check_name(name)
    project = folder or Path(f"relaybuild-{name}")
    _write_project(project, {"name": name, "NAME": name.upper()})
    place, tested = shlex.quote(str(project)), shlex.quote(f"{project}[test]")
    click.echo(f"wrote {project}: a package that brings the backend '{name}'; its README.md says what to change")
    click.echo(f"next: pip install -e {tested}")
    click.echo(f"      python -m pytest {place}")
    click.echo(f"      relaybuild compile MODEL -D USE_{name.upper()}=ON -o model.so")


def _check_name(name: str) -> None:
    """Raise UserError for a name that cannot be a backend's, or is one already."""
    if not _NAME.fullmatch(name) or len(name) > _MAX_LENGTH:
        raise UserError(
            f"found the name '{name}', expected lower-case letters, digits and single underscores between them, with a "
            f"letter first, at most {_MAX_LENGTH}, as in 'my_npu'"
        )
    flag = f"USE_{name.upper()}"
    for backend in all_backends().values():
        if name in (backend.name, backend.tag) or flag == backend.cmake_flag:
            raise UserError(
                f"the name '{name}' is taken: there is a backend '{backend.name}' with the tag '{backend.tag}' and the "
                f"flag '{backend.cmake_flag}'; choose another"
            )
    if name == HOST or importlib.util.find_spec(f"relaybuild_{name}") is not None:
        owner = "a mark for the host" if name == HOST else f"the installed package 'relaybuild_{name}'"
        raise UserError(f"the name '{name}' is taken by {owner}; choose another")


def _write_project(project: Path, words: Mapping[str, str]) -> None:
    """Make the folder with all files, or nothing; raises UserError, also where something is in its place."""
    if os.path.lexists(project):
        raise UserError(f"'{project}' is there already, and is left alone; name another folder with --out")
    make_folder(project.parent)
    temporary = temporary_beside(project)
    with writing(project):
        try:
            for path, text in _files(words):
                (temporary / path).parent.mkdir(parents=True, exist_ok=True)
                (temporary / path).write_text(text, encoding="utf-8")
            os.rename(temporary, project)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def _files(words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Path and text of every file."""
    for template in sorted(_TEMPLATES.rglob(f"*{_SUFFIX}")):
        path = template.relative_to(_TEMPLATES).as_posix().removesuffix(_SUFFIX)
        yield _filled(path, words), _filled(template.read_text(encoding="utf-8"), words)


def _filled(template: str, words: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: words[match[1]], template)
