"""`relaybuild cache`: looks at the artifact cache and looks after it; builds nothing."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from relaybuild.build.cache import archive, runs, upkeep
from relaybuild.build.cache.action import FORMAT
from relaybuild.build.cache.folder import CacheFolder, has_cache
from relaybuild.build.cache.gc import GcReport, collect
from relaybuild.build.cache.settings import CacheSettings
from relaybuild.build.cache.store import Cache, open_cache
from relaybuild.build.cache_config import CacheFlags, chosen_settings, parse_size
from relaybuild.build.files import writing
from relaybuild.cli import _options
from relaybuild.cli._github import add_to_summary
from relaybuild.cli._text import size_text, table, time_text
from relaybuild.digest import Hasher
from relaybuild.errors import UserError

_MIN_PREFIX = 4
_COLUMNS = ("layer", "entries", "cached", "executed")


def _place_options() -> list[click.Parameter]:
    """What says which cache is meant: before a command's name or behind it."""
    return [
        click.Option(
            ["--cache-dir"], type=_options.FOLDER, metavar="DIR", help="The folder; else RELAYBUILD_CACHE_DIR's."
        ),
        click.Option(["--shared"], is_flag=True, help="The folder is one that several users write to."),
        click.Option(["--namespace"], metavar="NAME", help="Whose results; else RELAYBUILD_CACHE_NAMESPACE's, 'main'."),
        click.Option(["--remote-cache"], metavar="URL", help="The remote cache that 'doctor' looks at."),
    ]


def _settings(cache_dir: Path | None, shared: bool, namespace: str | None, remote_cache: str | None) -> CacheSettings:
    return chosen_settings(CacheFlags(cache_dir, remote=remote_cache, namespace=namespace, is_shared=shared))


class _Verb(click.Command):
    """A command that also takes the options of its group, which then count instead of those given there."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.params.extend(_place_options())

    def invoke(self, ctx: click.Context) -> Any:
        assert ctx.parent is not None
        given = dict(ctx.parent.params)
        for name in given:
            given[name] = ctx.params.pop(name) or given[name]
        ctx.obj = _settings(**given)
        return super().invoke(ctx)


@click.group(name="cache", params=_place_options())
def command(**_place: Any) -> None:
    """Look at the artifact cache, and look after it."""


command.command_class = _Verb


@command.command(name="dir")
@click.pass_obj
def print_dir(settings: CacheSettings) -> None:
    """Print the cache's folder."""
    click.echo(_folder(settings))


@command.command()
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
@click.option("--last", is_flag=True, help="Of the last run only.")
@click.option("--zero", is_flag=True, help="Begin to count anew, after printing.")
@click.option("--github", is_flag=True, help="Add it to the summary of the job of GitHub that this runs in, too.")
@click.pass_obj
def stats(settings: CacheSettings, as_json: bool, last: bool, zero: bool, github: bool) -> None:
    """Print what is in the cache, and what the last runs found there."""
    with _opened(settings) as (cache, folder):
        found = runs.read_runs(folder)
        facts = {**upkeep.count(cache), **runs.totals(found[-1:] if last else found)}
    if github:
        first, *others = _stats_lines(facts, with_layers=False)
        add_to_summary(f"Cache of relaybuild: {first}", _COLUMNS, _layer_rows(facts), others)
    if zero:
        runs.forget_runs(folder)
    click.echo(json.dumps(facts, indent=2) if as_json else "\n".join(_stats_lines(facts)))


@command.command()
@click.argument("key")
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
@click.pass_obj
def show(settings: CacheSettings, key: str, as_json: bool) -> None:
    """Print what went into the entry KEY (or the beginning of one), and what came out."""
    if not re.fullmatch(rf"[0-9a-f]{{{_MIN_PREFIX},64}}", key):
        raise UserError(f"'{key}' is no key, expected {_MIN_PREFIX} to 64 digits of one, in lower-case hexadecimal")
    with _opened(settings) as (cache, _):
        found = [stored.to_json() for stored in upkeep.entries(cache) if stored.key.startswith(key)]
    if not found:
        raise UserError(f"the cache has no entry '{key}'")
    if len(found) > 1:
        raise UserError(f"{len(found)} entries begin with '{key}': give more digits")
    click.echo(json.dumps(found[0], indent=2) if as_json else "\n".join(_entry_lines(found[0])))


@command.command()
@click.option(
    "--sample",
    type=click.FloatRange(0.0, 100.0, min_open=True),
    default=100.0,
    show_default=True,
    metavar="PERCENT",
    help="How many of the entries, chosen at random.",
)
@click.pass_obj
def verify(settings: CacheSettings, sample: float) -> None:
    """Read entries and compare them with their digests; what is damaged is removed, and the exit code is 1."""
    if not sample > 0.0:
        raise UserError("option '--sample': expected a number above 0")
    with _opened(settings) as (cache, _):
        found = upkeep.verify(cache, sample / 100.0)
    for line in found.damaged:
        click.echo(f"removed {line}", err=True)
    click.echo(f"{found.verified} entries verified, {len(found.damaged)} damaged")
    if found.damaged:
        sys.exit(1)


@command.command()
@click.option(
    "--max-size",
    metavar="SIZE",
    help="Bytes to stay below, as '5GB', '1GiB'.  [default: 5GB, or what pyproject.toml says]",
)
@click.pass_obj
def gc(settings: CacheSettings, max_size: str | None) -> None:
    """Remove what was used longest ago, if the cache is larger than its limit, and what is of no use."""
    limit = parse_size(max_size) if max_size is not None else settings.max_size
    with _opened(settings, must_write=True) as (cache, folder):
        report = collect(folder, cache.records, cache.blobs, limit)
        if not report.is_busy:
            runs.write_usage(folder, report.bytes_after)
    click.echo(_gc_line(report))


@command.command(name="export")
@click.argument("file", type=_options.PATH)
@click.option("--key", "keys", multiple=True, help="Only this entry; repeat it for further ones.")
@click.pass_obj
def export_file(settings: CacheSettings, file: Path, keys: Sequence[str]) -> None:
    """Write the entries to FILE, a tar file: equal entries give equal bytes."""
    with _opened(settings) as (cache, _):
        done = archive.export_entries(cache.records, cache.blobs, settings.namespace, file, keys or None)
    _tell_refused(done)
    click.echo(f"{done.entries} entries with {done.blobs} blobs written to '{file}'")


@command.command(name="import")
@click.argument("file", type=_options.PATH)
@click.pass_obj
def import_file(settings: CacheSettings, file: Path) -> None:
    """Take over the entries in FILE, which 'export' has written, each one verified."""
    with _opened(settings, must_write=True) as (cache, folder), writing(folder.root):
        done = archive.import_entries(cache.records, cache.blobs, settings.namespace, file)
    _tell_refused(done)
    click.echo(f"{done.entries} entries with {done.blobs} blobs imported, {done.known} were there already")
    if done.refused:
        sys.exit(1)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="All of it, as JSON.")
@click.pass_obj
def doctor(settings: CacheSettings, as_json: bool) -> None:
    """Find out what may keep the cache from working; the exit code is 1 if anything does."""
    folder = settings.folder
    if folder is None or has_cache(folder):
        facts = upkeep.examine(open_cache(settings))
    else:
        facts = upkeep.examine_absent(settings, folder)
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        for line in _fact_lines(facts):
            click.echo(line)
        for problem in facts["problems"]:
            click.echo(f"problem: {problem}")
    if facts["problems"]:
        sys.exit(1)


@command.command()
@click.pass_obj
def clear(settings: CacheSettings) -> None:
    """Remove everything in the cache."""
    with _opened(settings, must_write=True) as (_, folder):
        pass
    with writing(folder.root):
        upkeep.clear(folder)


@command.command(name="ci-key")
@click.option("--cc", metavar="COMMAND", help="C compiler, as for 'relaybuild compile'.")
def ci_key(cc: str | None) -> None:
    """Print a key for the cache of a CI service: another one for another compiler, machine or relaybuild."""
    from relaybuild.build.toolchain import probe
    from relaybuild.cli._reproducer import version

    toolchain = probe(cc)
    hasher = Hasher("ci-key.1").field("format", FORMAT).field("relaybuild", version())
    hasher.field("toolchain", toolchain.digest).field("machine", toolchain.machine)
    click.echo(f"relaybuild-{toolchain.machine}-{hasher.digest().short()}")


def _folder(settings: CacheSettings) -> Path:
    if settings.folder is None:
        raise UserError("this user has no cache folder; name one with --cache-dir or RELAYBUILD_CACHE_DIR")
    return settings.folder


@contextlib.contextmanager
def _opened(settings: CacheSettings, *, must_write: bool = False) -> Iterator[tuple[Cache, CacheFolder]]:
    """The cache and its folder, which is made where it must be written, and else must be there: raises UserError. What
    could not be done is told at the end."""
    place = _folder(settings)
    if not must_write and not has_cache(place):
        raise UserError(f"there is no cache in '{place}'")
    cache = open_cache(settings)
    assert cache.folder is not None
    if must_write and not cache.folder.is_writable:
        raise UserError(f"the cache folder '{cache.folder.root}' cannot be written")
    try:
        yield cache, cache.folder
    finally:
        cache.flush()
        for failed in cache.journal.failed:
            click.echo(f"warning: {failed.reason}: {failed.detail}", err=True)


def _stats_lines(facts: Mapping[str, Any], with_layers: bool = True) -> Iterator[str]:
    yield f"{facts['entries']} entries, {facts['blobs']} blobs, {size_text(facts['bytes'])}"
    saved = f", {time_text(facts['seconds_saved'])} saved" if facts["seconds_saved"] else ""
    yield f"{facts['runs']} runs{saved}"
    if with_layers and (rows := _layer_rows(facts)):
        yield from table(_COLUMNS, rows, "  ")
    if remote := facts["remote"]:
        sizes = {name: remote[name] for name in ("bytes_read", "bytes_written") if name in remote}
        counts = [f"{count} {word.replace('_', ' ')}" for word, count in remote.items() if word not in sizes]
        moved = [f"{size_text(size)} {name.removeprefix('bytes_')}" for name, size in sizes.items()]
        yield f"remote cache: {', '.join((*counts, *moved))}"
    for title in ("misses", "storing", "errors"):
        if facts[title]:
            yield f"{title}: {', '.join(f'{count} {word}' for word, count in facts[title].items())}"
    if facts["conflicts"]:
        yield f"not deterministic: {facts['conflicts']}"


def _layer_rows(facts: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """What there is and what was found, by layer."""
    counts = [facts[name] for name in ("layers", "cached", "executed")]
    return [(layer, *(str(each.get(layer, 0)) for each in counts)) for layer in sorted(set().union(*counts))]


def _fact_lines(facts: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in facts.items():
        title = f"{prefix}{name.replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _fact_lines(value, f"{title} ")
        elif name != "problems":
            yield f"{title}: {'unknown' if value is None else value}"


def _entry_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    yield f"{facts['layer']}/{facts['name']}"
    yield f"key: {facts['key']} (namespace '{facts['namespace']}')"
    ended = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(facts["ended"]))
    yield f"made: {ended} UTC on {facts['origin']}, in {time_text(facts['seconds'])}"
    yield "inputs:"
    yield from (f"  {name}: {value}" for name, value in sorted(facts["inputs"].items()))
    yield "outputs:"
    yield from (f"  {each['name']}: {each['digest']} ({size_text(each['size'])})" for each in facts["outputs"])


def _gc_line(report: GcReport) -> str:
    if report.is_busy:
        return "another process is at it; nothing was done"
    held = f", {report.entries_held} kept for running builds" if report.entries_held else ""
    sizes = f"{size_text(report.bytes_before)} before, {size_text(report.bytes_after)} after"
    return f"{sizes}: {report.entries_removed} entries and {report.blobs_removed} blobs removed{held}"


def _tell_refused(done: archive.Transfer) -> None:
    for reason in done.refused:
        click.echo(f"refused {reason}", err=True)
