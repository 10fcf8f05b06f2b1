"""`relaybuild compile`: a model becomes a library; knows the options and the outputs, not how it is done."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from relaybuild import driver
from relaybuild.artifact.request import Request
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.depfile import write_depfile
from relaybuild.build.files import check_replaceable, check_writable, make_folder, write_if_changed
from relaybuild.build.forms import Form
from relaybuild.build.toolchain import Toolchain
from relaybuild.cli import _options
from relaybuild.cli._cache_options import CacheCommand, CacheOptions, cache_options
from relaybuild.cli._pass_options import PassOptions, pass_options
from relaybuild.cli._progress import no_progress, progress
from relaybuild.cli._text import size_text
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.identifier import c_identifier


@click.command(name="compile", cls=CacheCommand)
@click.argument("model", type=_options.PATH)
@click.option("-o", "--output", type=_options.PATH, required=True, metavar="FILE", help="The library to write.")
@_options.shape_option
@_options.threads_option
@_options.compiler_options
@_options.config_options
@pass_options
@cache_options
@click.option("--soname", default="", metavar="NAME", help="What programs linked to the library look for.")
@click.option("--depfile", type=_options.PATH, metavar="FILE", help="Write a make rule: what the library is made from.")
@click.option("--depfile-target", type=_options.PATH, metavar="FILE", help="What that rule is for; by default OUTPUT.")
@click.option(
    "--emit",
    multiple=True,
    type=click.Choice([*(form.value for form in Form), "header"]),
    help="What to make: a shared library (the default), a static one, or an object, both with FILE's C header beside; "
    "or a folder FILE with a CMake project, or with C sources alone. header adds that to a shared library.",
)
@click.option("--name", metavar="NAME", help="What the functions' names begin with; by default from FILE's name.")
@click.option(
    "--link-file",
    type=_options.PATH,
    metavar="FILE",
    help="Write what a linker needs beside a static library or an object, as it reads it: -Wl,@FILE.",
)
@click.option(
    "--link-bound",
    is_flag=True,
    help="Print what a linker may need beside a static library with this configuration, and compile nothing.",
)
@click.option("--summary", type=_options.PATH, metavar="FILE", help="Write what was done, and how long it took: JSON.")
@click.option("--save-temps", type=_options.PATH, metavar="DIR", help="Keep the generated sources and objects here.")
def command(
    model: Path,
    output: Path,
    emit: Sequence[str],
    depfile: Path | None,
    depfile_target: Path | None,
    name: str | None,
    link_file: Path | None,
    link_bound: bool,
    summary: Path | None,
    save_temps: Path | None,
    jobs: int | None,
    passes: PassOptions,
    caching: CacheOptions,
    opt_level: int,
    defines: dict[str, str],
    **options: Any,
) -> None:
    """Compile MODEL, an ONNX or Relay file, to a library."""
    begin = time.monotonic()
    if link_bound:
        click.echo(_link_bound(options["config"], defines, caching), nl=False)
        return
    form = _form(emit)
    header = output.with_suffix(".h") if _has_header(form, emit) else None
    outputs = _Outputs(output, form, header, depfile, depfile_target, link_file, summary, passes.timing)
    outputs.check(model)
    if save_temps is not None:
        make_folder(save_temps)
    with caching.told(open_cache(caching.settings)) as cache, passes.context(opt_level):
        request = driver.make_request(
            model,
            name=c_identifier(name or form.model_name(output)),
            opt_level=opt_level,
            flags=defines,
            form=form,
            **options,
        )
        with no_progress() if caching.is_json else progress() as report:
            artifact = driver.compile_request(
                request,
                cache,
                jobs=jobs,
                save_temps=save_temps,
                on_event=report,
                must_hit=caching.require_hit,
            )
            read = () if depfile is None else _files_read(request, cache, artifact.toolchain, outputs.files)
            artifact.export_library(output, move=True)
            outputs.write_rule(read)
    for warning in artifact.warnings:
        click.echo(f"warning: {warning}", err=True)
    outputs.write_beside(artifact)
    click.echo(f"{output}  {size_text(artifact.summary['size'])}  {time.monotonic() - begin:.1f} s")


@dataclass(frozen=True)
class _Outputs:
    """The library or the folder, and what else is written: None where nobody asked for it."""

    main: Path
    form: Form
    header: Path | None
    depfile: Path | None
    depfile_target: Path | None
    link_file: Path | None
    summary: Path | None
    timing: Path | None

    @property
    def files(self) -> list[Path]:
        """All files but those of a folder."""
        main = None if self.form.is_folder else self.main
        files = (main, self.header, self.depfile, self.link_file, self.summary, self.timing)
        return [path for path in files if path is not None]

    def check(self, model: Path) -> None:
        """Raise UserError, before time is spent, for an output that cannot be written or would replace another file."""
        self.form.check_name(self.main)
        check_replaceable(self.main)
        if self.form.is_folder:
            _check_folder(self.main)
        _check_outputs(model, self.files)

    def write_rule(self, read: Sequence[Path]) -> None:
        """Write the make rule for what was read."""
        if self.depfile is not None:
            write_depfile(self.depfile, self.depfile_target or self.main, read)

    def write_beside(self, artifact: driver.Artifact) -> None:
        """Write what is known of the library once it is there."""
        if self.header is not None:
            write_if_changed(self.header, artifact.header)
        if self.link_file is not None:
            write_if_changed(self.link_file, _linker_text(artifact.summary["link"]))
        if self.summary is not None:
            write_if_changed(self.summary, json.dumps(artifact.summary, indent=2) + "\n")


def _form(emit: Sequence[str]) -> Form:
    """The one form that is asked for; raises UserError for several."""
    names = list(dict.fromkeys(name for name in emit if name != "header")) or [Form.SHARED.value]
    if len(names) > 1:
        raise UserError(f"--emit: {' and '.join(names)} are two forms of a model, expected one")
    return Form(names[0])


def _link_bound(config: Path | None, defines: Mapping[str, str], caching: CacheOptions) -> str:
    """What models that are compiled with a configuration are linked with at most, as `_linker_text` has it."""
    from relaybuild.stages import link_bound

    return _linker_text(link_bound(config, defines, caching.settings.folder))


def _files_read(request: Request, cache: Cache, toolchain: Toolchain, outputs: Sequence[Path]) -> Sequence[Path]:
    """What a library is made from, without folders that change because it is put there."""
    from relaybuild.artifact.read_files import files_read

    changing = {path.absolute().parent for path in outputs}
    return [path for path in files_read(request, cache, toolchain) if path not in changing]


def _linker_text(words: Sequence[str]) -> str:
    """Words for a compiler that links, as a file that the linker itself reads: one in a line, escaped."""
    parts = [part for word in words for part in _linker_words(word)]
    return "".join(re.sub(r"([\s\\'\"])", r"\\\1", part) + "\n" for part in parts)


def _linker_words(word: str) -> Sequence[str]:
    return word.split(",")[1:] if word.startswith("-Wl,") else (word,)


def _has_header(form: Form, emit: Sequence[str]) -> bool:
    """Whether a header is written beside the output; raises UserError where it would be a folder's."""
    if form.is_folder and "header" in emit:
        raise UserError(f"--emit: header is a part of the folder that {form.value} makes, expected the form alone")
    return "header" in emit or form.is_relocatable


def _check_folder(path: Path) -> None:
    from relaybuild.build.bundle import check_folder

    check_folder(path)


def _check_outputs(model: Path, outputs: Sequence[Path]) -> None:
    """Raise UserError, before time is spent, for an output that cannot be written or would replace another file."""
    taken = {model.absolute(): "the model and an output"}
    for path in outputs:
        location = path.absolute()
        if location in taken:
            raise UserError(f"'{path}' is {taken[location]}, expected a file for each")
        taken[location] = "two outputs"
        check_writable(path)
