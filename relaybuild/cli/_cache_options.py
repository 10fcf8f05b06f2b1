"""The options that say which cache a command uses, and what it tells of it; knows no command by name."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from relaybuild.build.cache.journal import Journal, MissReason
from relaybuild.build.cache.settings import CacheSettings, Mode
from relaybuild.build.cache.store import Cache
from relaybuild.build.cache_config import MODES, CacheFlags, chosen_settings, parse_mode
from relaybuild.cli import _options
from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])

_TEXT, _JSON = "text", "json"


@dataclass(frozen=True)
class CacheOptions:
    """What was asked for; `explain` is `text`, `json` or None."""

    settings: CacheSettings
    explain: str | None
    require_hit: bool

    @property
    def is_json(self) -> bool:
        """Whether what is told is to be read by a program: it is then all that stands on stderr."""
        return self.explain == _JSON

    @contextlib.contextmanager
    def told(self, cache: Cache) -> Iterator[Cache]:
        """Close the cache at the end of the block, and say on stderr what was found there and what was not."""
        try:
            with cache:
                yield cache
        finally:
            self._explain(cache.journal)
        if not self.is_json and _has_news(cache.journal):
            click.echo(f"cache: {cache.journal.line()}", err=True)

    def _explain(self, journal: Journal) -> None:
        if self.explain is None:
            return
        from relaybuild.build.cache.explain import explain

        explanation = explain(journal)
        lines = [json.dumps(explanation.to_json())] if self.is_json else explanation.lines()
        for line in lines:
            click.echo(line, err=True)


def _has_news(journal: Journal) -> bool:
    """Whether a run found something, or failed to for another reason than that it was the first of its kind."""
    expected = (MissReason.NEVER_SEEN, MissReason.BYPASSED)
    return bool(journal.failed) or any(event.reason not in expected for event in journal.looked)


class CacheCommand(click.Command):
    """A command whose option `--explain` has a value behind `=`, or none: click would take the next word for it."""

    def make_parser(self, ctx: click.Context) -> Any:
        """A parser that knows short options at once: click's would first look for similar long ones, for 4 ms."""
        parser: Any = super().make_parser(ctx)
        parser._long_opt.update(parser._short_opt)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        spelled = [f"--explain={_TEXT}" if arg == "--explain" else arg for arg in args[:end]]
        return super().parse_args(ctx, [*spelled, *args[end:]])


_OPTIONS = (
    click.option(
        "--cache-dir",
        type=_options.FOLDER,
        metavar="DIR",
        help="Folder of the cache; else RELAYBUILD_CACHE_DIR's, pyproject.toml's, the user's.",
    ),
    click.option(
        "--cache-mode",
        type=click.Choice(MODES),
        metavar="MODE",
        help=f"{', '.join(MODES)}: 'verify' executes everything and compares.  [default: readwrite]",
    ),
    click.option("--shared", is_flag=True, help="The cache's folder is one that several users write to."),
    click.option("--no-cache", is_flag=True, help="Look nothing up, and keep nothing."),
    click.option("--recache", is_flag=True, help="Look nothing up; what is made replaces what is there."),
    click.option(
        "--explain",
        type=click.Choice((_TEXT, _JSON)),
        metavar="[=json]",
        help="Say why something was not in the cache: a line for each cause, or JSON.",
    ),
    click.option("--require-hit", is_flag=True, help="Compile nothing: fail, and say why, if it is not cached."),
    click.option(
        "--remote-cache",
        metavar="URL",
        help="A cache on another machine; else RELAYBUILD_REMOTE_CACHE's, pyproject.toml's, none.",
    ),
    click.option(
        "--remote-mode", type=click.Choice(MODES), metavar="MODE", help="The same for it.  [default: readwrite]"
    ),
    click.option("--offline", is_flag=True, help="Ask no other machine for anything."),
)


def cache_options(command: F) -> F:
    """Add the options, as the argument `caching`: CacheOptions. The command has to be a CacheCommand."""

    @functools.wraps(command)
    def bundled(
        *,
        cache_dir: Path | None,
        cache_mode: str | None,
        shared: bool,
        no_cache: bool,
        recache: bool,
        explain: str | None,
        require_hit: bool,
        remote_cache: str | None,
        remote_mode: str | None,
        offline: bool,
        **others: Any,
    ) -> Any:
        mode = _mode(cache_mode, no_cache=no_cache, recache=recache, require_hit=require_hit)
        folder: Path | Literal[False] | None = False if no_cache else cache_dir
        flags = CacheFlags(folder, mode, remote_cache, remote_mode, is_shared=shared, is_offline=offline)
        return command(caching=CacheOptions(chosen_settings(flags), explain, require_hit), **others)

    decorated: Any = bundled
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    result: F = decorated
    return result


def _mode(cache_mode: str | None, *, no_cache: bool, recache: bool, require_hit: bool) -> Mode:
    """The mode that the options say; raises UserError for options that exclude each other."""
    mode = Mode.RECACHE if recache else parse_mode(cache_mode or Mode.READ_WRITE.value, "--cache-mode")
    _check_exclusive(
        {
            "--no-cache": no_cache,
            "--recache": recache,
            "--require-hit": require_hit,
            f"--cache-mode {cache_mode}": cache_mode is not None and not (require_hit and mode.may_look_up),
        }
    )
    return mode


def _check_exclusive(options: Mapping[str, bool]) -> None:
    """Raise UserError where more than one of some options is given."""
    given = [name for name, is_given in options.items() if is_given]
    if len(given) > 1:
        raise UserError(f"the options '{given[0]}' and '{given[1]}' exclude each other: give one of them")
