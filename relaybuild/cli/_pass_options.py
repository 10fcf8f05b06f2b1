"""The options that decide which passes run, what is printed of them and when they stop; knows no pass by name."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from relaybuild.build.files import write_if_changed
from relaybuild.cli import _options
from relaybuild.dataclass import dataclass

if TYPE_CHECKING:
    from relaybuild.passes.infra import PassContext, PassInstrument
    from relaybuild.passes.instruments import PassTimingInstrument

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class PassOptions:
    """What was asked for; names are those of registered passes."""

    disabled: tuple[str, ...]
    required: tuple[str, ...]
    print_after: tuple[str, ...]
    print_changed: bool
    verify_each: bool
    max_rewrites: int | None
    timing: Path | None

    @property
    def are_given(self) -> bool:
        """Whether anything was asked for."""
        values = [getattr(self, item.name) for item in fields(self)]
        return any(value is not None and value is not False and value != () for value in values)

    @contextlib.contextmanager
    def context(self, opt_level: int) -> Iterator[None]:
        """Make a context of the options the current one; at its end the times are written, the last rewrite named.

        Without options there is no context: it would have to be imported, with all that passes need.
        """
        if not self.are_given:
            yield
            return
        from relaybuild.passes.infra import PassContext
        from relaybuild.passes.instruments import PassTimingInstrument

        timing = PassTimingInstrument()
        context = PassContext(
            opt_level,
            self.required,
            self.disabled,
            instruments=[*self._observers(), timing] if self.timing else self._observers(),
            max_rewrites=self.max_rewrites,
        )
        try:
            with context:
                yield
        finally:
            self._tell(context, timing)

    def _observers(self) -> list[PassInstrument]:
        from relaybuild.passes.instruments import PrintAfter, PrintChanged, VerifyEach

        found: list[PassInstrument] = [PrintAfter(self.print_after)] if self.print_after else []
        found += [PrintChanged()] if self.print_changed else []
        # last, so that what a pass broke is printed before it is reported
        return [*found, VerifyEach()] if self.verify_each else found

    def _tell(self, context: PassContext, timing: PassTimingInstrument) -> None:
        if self.timing and timing.timings:
            write_if_changed(self.timing, json.dumps(timing.to_json(), indent=2) + "\n")
        rewrites = context.rewrites
        if rewrites.limit is None:
            return
        if rewrites.asked <= rewrites.limit:
            click.echo(f"all {rewrites.asked} rewrites were made, fewer than --stop-after-rewrite allows", err=True)
        else:
            click.echo(f"stopped after {rewrites.last_allowed or 'no rewrite'}", err=True)


def pass_options(command: F) -> F:
    """Add the options, as the argument `passes`: PassOptions."""

    @functools.wraps(command)
    def bundled(
        *,
        disable_pass: tuple[str, ...],
        require_pass: tuple[str, ...],
        print_after: tuple[str, ...],
        print_changed: bool,
        verify_each: bool,
        stop_after_rewrite: int | None,
        pass_timing: Path | None,
        **others: Any,
    ) -> Any:
        passes = PassOptions(
            disable_pass, require_pass, print_after, print_changed, verify_each, stop_after_rewrite, pass_timing
        )
        return command(passes=passes, **others)

    options = (
        _names("--disable-pass", "Leave out a pass; repeat it for further ones."),
        _names("--require-pass", "Run a pass of the pipeline at any --opt-level; repeat it for further ones."),
        _names("--print-after", "Print the program after each run of a pass; repeat it for further ones."),
        click.option("--print-changed", is_flag=True, help="Print what each pass changed, as a diff."),
        click.option("--verify-each", is_flag=True, help="Check the program after each pass."),
        click.option(
            "--stop-after-rewrite",
            type=click.IntRange(min=0),
            metavar="N",
            help="Allow N changes of the program, and name the last: for bisecting.",
        ),
        click.option("--pass-timing", type=_options.PATH, metavar="FILE", help="Write how long passes took: JSON."),
    )
    decorated: Any = bundled
    for option in reversed(options):
        decorated = option(decorated)
    result: F = decorated
    return result


def _names(option: str, help_text: str) -> Callable[[Any], Any]:
    return click.option(
        option,
        multiple=True,
        metavar="PASS",
        callback=lambda _ctx, _param, names: _pass_names(names),
        help=help_text,
    )


def _pass_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The registered names of passes; the passes are imported where there are any."""
    if not names:
        return ()
    from relaybuild.passes.infra import pass_name

    return tuple(pass_name(name) for name in names)
