"""The context in which passes run: levels, names, configuration, who observes, how many rewrites; runs no pass."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr
from relaybuild.ir.module import IRModule
from relaybuild.passes._config import ConfigKey, checked_config, config_keys, get_config_key
from relaybuild.passes._reporter import ErrorReporter


@dataclass(frozen=True)
class PassInfo:
    """A pass's name, the least opt_level at which a Sequential runs it, and the names of passes to run before it."""

    name: str
    opt_level: int = 0
    required: tuple[str, ...] = ()


class PassInstrument:
    """Base of what observes passes. A hook that is not overridden does nothing."""

    def enter_pass_ctx(self) -> None:
        """The context is about to be entered."""

    def exit_pass_ctx(self) -> None:
        """The context has been left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether a pass may run; a pass in `required_pass` is not asked about."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """A pass is about to run on `mod`."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """A pass has returned `mod`."""

    def pass_failed(self, mod: IRModule, info: PassInfo) -> None:
        """A pass this instrument was told of before has raised; `run_after_pass` is not called for it."""


def pass_instrument(cls: type[Any]) -> type[Any]:
    """Turn a class with some of the hooks of PassInstrument into an instrument."""
    return type(cls.__name__, (cls, PassInstrument), {"__module__": cls.__module__, "__doc__": cls.__doc__})


@dataclass(frozen=True)
class Rewrite:
    """One change of the program: its number, from 1, the pass that made it, what it was and where."""

    number: int
    pass_name: str
    what: str
    where: str | None

    def __str__(self) -> str:
        place = f" at {self.where}" if self.where else ""
        return f"rewrite {self.number}, {self.pass_name}: {self.what}{place}"


class RewriteCounter:
    """Counts the rewrites that passes ask for, and allows the first `limit` of them (all where it is None)."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.asked = 0
        self.last_allowed: Rewrite | None = None

    @property
    def allowed(self) -> int:
        """How many rewrites were allowed."""
        return self.asked if self.limit is None else min(self.asked, self.limit)

    def allow(self, pass_name: str, what: str, node: Expr | None) -> bool:
        """Whether the next rewrite may be made."""
        self.asked += 1
        if self.limit is None:
            return True
        if self.asked > self.limit:
            return False
        where = str(node.span) if node is not None and node.span else None
        self.last_allowed = Rewrite(self.asked, pass_name, what, where)
        return True


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[PassContext] = []
        self.default = PassContext()


class PassContext:
    """The settings under which passes run; `with PassContext(...):` makes them current in this thread.

    `instruments` observe; `fallback_device` is where what has no device runs; `config` holds registered keys only;
    `max_rewrites` allows that many changes of the program, for bisecting. An inner context takes nothing from the
    outer one.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] = (),
        disabled_pass: Sequence[str] = (),
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, object] | None = None,
        fallback_device: str = "cpu",
        error_reporter: ErrorReporter | None = None,
        max_rewrites: int | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = _names("required_pass", required_pass)
        self.disabled_pass = _names("disabled_pass", disabled_pass)
        self.instruments: list[PassInstrument] = list(instruments or ())
        self.config = checked_config(config or {})
        self.fallback_device = fallback_device
        self.error_reporter = error_reporter or ErrorReporter()
        self.rewrites = RewriteCounter(max_rewrites)
        self.running: list[str] = []
        self._results: dict[str, weakref.ref[IRModule]] = {}

    @staticmethod
    def current() -> PassContext:
        """The innermost context of this thread, or the thread's default one."""
        return _stack.contexts[-1] if _stack.contexts else _stack.default

    @staticmethod
    def entered() -> PassContext | None:
        """The innermost context entered in this thread, None outside of all."""
        return _stack.contexts[-1] if _stack.contexts else None

    @staticmethod
    def list_configs() -> dict[str, ConfigKey]:
        """Every registered key of `config`."""
        return config_keys()

    def get_config(self, name: str) -> Any:
        """The value of a registered key."""
        return self.config[name] if name in self.config else get_config_key(name).default

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a Sequential runs the pass: not disabled, and required or within the opt_level."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def allow_rewrite(self, what: str, node: Expr | None = None) -> bool:
        """Whether a pass may make the change it is about to make; asked once for each, before it is made.

        `what` names the kind of change, `node` is what it replaces.
        """
        return self.rewrites.allow(self.running[-1] if self.running else "", what, node)

    def derived(
        self,
        *,
        opt_level: int | None = None,
        disabled_pass: Sequence[str] = (),
        config: Mapping[str, object] | None = None,
    ) -> PassContext:
        """This context with another level, further disabled passes or further config.

        It shares instruments, reporter and rewrites with this one; it is handed to passes and never entered.
        """
        other = copy.copy(self)
        other.opt_level = self.opt_level if opt_level is None else opt_level
        other.disabled_pass = (*self.disabled_pass, *disabled_pass)
        other.config = {**self.config, **checked_config(config or {})}
        return other

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Leave the present instruments and enter others."""
        self._exit_instruments()
        self.instruments = list(instruments or ())
        self._enter_instruments()

    def may_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether the instruments let a pass run; every one is asked, also after one has said no."""
        if info.name in self.required_pass:
            return True
        answers = [instrument.should_run(mod, info) for instrument in self.instruments]
        return all(answers)

    def remember(self, name: str, result: IRModule) -> None:
        """Note that a pass left the module as it is now."""
        # a subclass may be changed in place, which identity does not show
        if type(result) is IRModule:
            self._results[name] = weakref.ref(result)

    def holds(self, name: str, mod: IRModule) -> bool:
        """Whether a pass has run, and the module has not changed since."""
        known = self._results.get(name)
        return known is not None and known() is mod

    def __enter__(self) -> PassContext:
        self._enter_instruments()
        _stack.contexts.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stack.contexts.pop()
        self._exit_instruments()

    def _enter_instruments(self) -> None:
        entered: list[PassInstrument] = []
        try:
            for instrument in self.instruments:
                instrument.enter_pass_ctx()
                entered.append(instrument)
        except BaseException:
            self.instruments = []
            for instrument in entered:
                instrument.exit_pass_ctx()
            raise

    def _exit_instruments(self) -> None:
        try:
            for instrument in self.instruments:
                instrument.exit_pass_ctx()
        except BaseException:
            self.instruments = []
            raise


def _names(what: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not all(isinstance(name, str) for name in given):
        raise TypeError(f"'{what}' must be a list or tuple of names, found {given!r}")
    return tuple(given)


_stack = _Stack()
