"""The machinery of passes: what a pass is, in which context it runs, and who is told; knows no pass by name.

A pass maps a module to a module. `disabled_pass` is honoured wherever a pass runs; `opt_level` gates the children of a
Sequential, at any depth, while a pass that is called runs. What a pass requires is run before it, transitively, and not
again while the module it left is unchanged.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import TracebackType
from typing import Any, ClassVar, TextIO, cast

from relaybuild.errors import InternalError, RelayBuildError, UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.module import IRModule

_NOT_OURS = ("Compiler", "Extern", "SkipOptimization")


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
        """A pass has raised, which no other hook is told."""


def pass_instrument(cls: type[Any]) -> type[Any]:
    """Turn a class with some of the hooks of PassInstrument into an instrument."""
    return type(cls.__name__, (cls, PassInstrument), {"__module__": cls.__module__, "__doc__": cls.__doc__})


class ErrorReporter:
    """Collects what passes find wrong with a program, so that one run reports all of it."""

    def __init__(self) -> None:
        self.errors: list[UserError] = []

    def report(self, message: str, where: str | None = None) -> None:
        """Record a mistake and go on."""
        self.errors.append(UserError(message, where=where))

    def raise_all(self) -> None:
        """Raise what was recorded, if anything, and forget it."""
        errors, self.errors = self.errors, []
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise UserError(f"{len(errors)} errors:\n" + "\n".join(f"  {error}" for error in errors))


@dataclass(frozen=True)
class ConfigKey:
    """An entry a context's `config` may have: its type and its value where it is not given."""

    name: str
    kind: type
    default: object
    doc: str


_config_keys: dict[str, ConfigKey] = {}


def register_config_key(name: str, kind: type, default: object, doc: str) -> ConfigKey:
    """Make a key known to every context; the module that reads the key registers it."""
    _config_keys[name] = ConfigKey(name, kind, default, doc)
    return _config_keys[name]


class _Stack(threading.local):
    def __init__(self) -> None:
        self.contexts: list[PassContext] = []
        self.default = PassContext()


class PassContext:
    """The settings under which passes run; `with PassContext(...):` makes them current in this thread.

    `instruments` observe; `fallback_device` is where what has no device runs; `config` holds registered keys only.
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
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = tuple(required_pass)
        self.disabled_pass = tuple(disabled_pass)
        self.instruments: list[PassInstrument] = list(instruments or ())
        self.config = {name: _checked_config(name, value) for name, value in (config or {}).items()}
        self.fallback_device = fallback_device
        self.error_reporter = error_reporter or ErrorReporter()
        self._results: dict[str, weakref.ref[IRModule]] = {}

    @staticmethod
    def current() -> PassContext:
        """The innermost context of this thread, or the thread's default one."""
        return _stack.contexts[-1] if _stack.contexts else _stack.default

    @staticmethod
    def list_configs() -> dict[str, ConfigKey]:
        """Every registered key of `config`."""
        return dict(sorted(_config_keys.items()))

    def get_config(self, name: str) -> Any:
        """The value of a registered key."""
        return self.config[name] if name in self.config else _config_key(name).default

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a Sequential runs the pass: not disabled, and required or within the opt_level."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Leave the present instruments and enter others."""
        self._exit_instruments()
        self.instruments = list(instruments or ())
        self._enter_instruments()

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

    def _may_run(self, mod: IRModule, info: PassInfo) -> bool:
        if info.name in self.required_pass:
            return True
        # every instrument is asked, also after one has said no
        answers = [instrument.should_run(mod, info) for instrument in self.instruments]
        return all(answers)

    def _remember(self, name: str, result: IRModule) -> None:
        self._results[name] = weakref.ref(result)

    def _holds(self, name: str, mod: IRModule) -> bool:
        """Whether a pass was the reason, or no obstacle, for the module as it is."""
        known = self._results.get(name)
        return known is not None and known() is mod


class Pass(ABC):
    """A map from module to module. Subclasses are frozen dataclasses whose fields are the pass's options."""

    @property
    def info(self) -> PassInfo:
        """Name, level and requirements; a class variable in most passes."""
        raise NotImplementedError

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        """Run what the pass requires, then the pass; a disabled pass leaves the module as it is."""
        ctx = ctx or PassContext.current()
        if self.info.name in ctx.disabled_pass:
            return mod
        for name in required_order(self.info):
            mod = _run_required(name, self.info, mod, ctx)
        return self._observed(mod, ctx)

    @abstractmethod
    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The pass itself, without requirements and instruments."""

    def _observed(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if not ctx._may_run(mod, self.info):
            return mod
        for instrument in ctx.instruments:
            instrument.run_before_pass(mod, self.info)
        try:
            result = self.run(mod, ctx)
            ctx.error_reporter.raise_all()
        except BaseException as error:
            for instrument in ctx.instruments:
                instrument.pass_failed(mod, self.info)
            if isinstance(error, RelayBuildError):
                error.with_note(f"while running {self.info.name}")
            raise
        if not isinstance(result, IRModule):
            found = type(result).__name__
            raise InternalError(f"pass '{self.info.name}' returned a value of type '{found}', expected a module")
        for instrument in ctx.instruments:
            instrument.run_after_pass(result, self.info)
        ctx._remember(self.info.name, result)
        return result

    def __repr__(self) -> str:
        return f"Run {self._kind} pass: {self.info.name} at the optimization level {self.info.opt_level}"

    _kind: ClassVar[str] = "Module"


class ModulePass(Pass):
    """A pass that sees the whole module, and may add and remove functions."""

    @abstractmethod
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The transformed module; `mod` itself where nothing changes."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.transform_module(mod, ctx)


class FunctionPass(Pass):
    """A pass over one function at a time; leaves functions of other compilers and those marked SkipOptimization."""

    _kind: ClassVar[str] = "Function"

    @abstractmethod
    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """The transformed function; `func` itself where nothing changes."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        done = {name: self._transformed(function, mod, ctx) for name, function in mod.functions.items()}
        return mod.with_functions(done)

    def _transformed(self, function: Function, mod: IRModule, ctx: PassContext) -> Function:
        if is_left_alone(function):
            return function
        result = self.transform_function(function, mod, ctx)
        if not isinstance(result, Function):
            found = type(result).__name__
            raise InternalError(f"pass '{self.info.name}' returned a value of type '{found}', expected a function")
        return result


def is_left_alone(function: Function) -> bool:
    """Whether passes leave a function as it is: another compiler's, or marked SkipOptimization."""
    return any(function.attrs.get(name) for name in _NOT_OURS)


class Sequential(Pass):
    """Passes one after the other, each if the context enables it."""

    _kind: ClassVar[str] = "Sequential"

    def __init__(
        self, passes: Sequence[Pass], opt_level: int = 0, name: str = "sequential", required: Sequence[str] = ()
    ) -> None:
        self.passes = tuple(passes)
        self._info = PassInfo(name, opt_level, tuple(required))

    @property
    def info(self) -> PassInfo:
        return self._info

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for child in self.passes:
            if ctx.pass_enabled(child.info):
                mod = child(mod, ctx)
        return mod

    def __repr__(self) -> str:
        names = " ".join(child.info.name for child in self.passes)
        return f"{super().__repr__()}. The passes will be executed are: [{names}]"


@dataclass(frozen=True, repr=False)
class PrintIR(ModulePass):
    """Writes the module's text, weights by digest, to `stream` (standard error where it is None)."""

    info: ClassVar[PassInfo] = PassInfo("PrintIR", 0)
    header: str = ""
    stream: TextIO | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        from relaybuild.ir.printer import print_module

        head = f"{self.header}\n" if self.header else ""
        (self.stream or sys.stderr).write(f"{head}{print_module(mod, weights='digest')}")
        return mod


# Passes by name


def required_order(info: PassInfo) -> list[str]:
    """Names of all passes that must run before one, each once, requirements first; a cycle is an error."""
    order: list[str] = []
    path = [info.name]
    stack: list[Iterator[str]] = [iter(info.required)]
    while stack:
        name = next(stack[-1], None)
        if name is None:
            stack.pop()
            order.append(path.pop())
        elif name in path:
            raise UserError(f"passes require each other in a cycle: {' -> '.join((*path[path.index(name) :], name))}")
        elif name not in order:
            path.append(name)
            stack.append(iter(get_pass(name).info.required))
    return order[:-1]


def _run_required(name: str, wanted_by: PassInfo, mod: IRModule, ctx: PassContext) -> IRModule:
    if name in ctx.disabled_pass:
        raise UserError(
            f"pass '{wanted_by.name}' requires '{name}', which is disabled: enable '{name}', or disable both"
        )
    return mod if ctx._holds(name, mod) else get_pass(name)._observed(mod, ctx)


def register_pass(factory: Callable[[], Pass], name: str | None = None) -> None:
    """Make a pass known by name, so that others can require it; the latest of a name holds.

    `factory` is a class of passes or a function; a name of relaybuild's own passes cannot be taken.
    """
    info = getattr(factory, "info", None)
    known_as = name or (info.name if isinstance(info, PassInfo) else factory().info.name)
    if known_as in builtin_passes():
        raise UserError(f"'{known_as}' is a pass of relaybuild: choose another name")
    _user_passes[known_as] = factory


def get_pass(name: str, **options: object) -> Pass:
    """A pass by its name, as in `FoldConstant` or `fold-constant`, with options; an unknown name is an error."""
    factories = {**_user_passes, **builtin_passes()}
    found = factories.get(name) or factories.get("".join(word.capitalize() for word in name.split("-")))
    if found is None:
        near = get_close_matches(name, factories, 3)
        hint = f"the nearest are {', '.join(near)}" if near else f"known are {', '.join(sorted(factories))}"
        raise UserError(f"unknown pass '{name}'; {hint}")
    try:
        return cast(Callable[..., Pass], found)(**options)
    except TypeError as error:
        known = ", ".join(item.name for item in fields(found)) if is_dataclass(found) else ""
        raise UserError(f"pass '{name}' cannot be made: {error}; its options are {known or 'none'}") from None


@cache
def builtin_passes() -> Mapping[str, Callable[[], Pass]]:
    """Every pass of this folder by name, which its class gives without options."""
    found: dict[str, Callable[[], Pass]] = {"PrintIR": PrintIR}
    package = importlib.import_module("relaybuild.passes")
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        if entry.name == "infra" or entry.name.startswith("_"):
            continue
        module = importlib.import_module(f"relaybuild.passes.{entry.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Pass) and value.__module__ == module.__name__:
                found[value().info.name] = value
    return found


# Passes from functions and classes


def module_pass(
    pass_func: Any = None, opt_level: int | None = None, name: str | None = None, required: Sequence[str] | None = None
) -> Any:
    """Make a ModulePass of a function `(mod, ctx) -> mod`, or of a class that has `transform_module`.

    Used as a decorator with keywords; `opt_level` must be given, `name` is the function's or class's own by default.
    A decorated function is a pass; a decorated class makes one from its constructor's arguments.
    """
    return _pass_decorator(pass_func, ModulePass, "transform_module", opt_level, name, required)


def function_pass(
    pass_func: Any = None, opt_level: int | None = None, name: str | None = None, required: Sequence[str] | None = None
) -> Any:
    """Make a FunctionPass of a function `(func, mod, ctx) -> func`, or of a class that has `transform_function`."""
    return _pass_decorator(pass_func, FunctionPass, "transform_function", opt_level, name, required)


def _pass_decorator(
    pass_func: Any,
    base: Any,
    method: str,
    opt_level: int | None,
    name: str | None,
    required: Sequence[str] | None,
) -> Any:
    if opt_level is None:
        raise ValueError("a pass needs an opt_level")
    if required is not None and not isinstance(required, (list, tuple)):
        raise TypeError(f"'required' must be a list or tuple of names, found {type(required).__name__}")

    def decorate(target: Any) -> Any:
        info = PassInfo(name or target.__name__, opt_level, tuple(required or ()))
        made = _from_class(target, base, method, info) if isinstance(target, type) else None
        result = made or _from_function(target, base, method, info)
        if info.name not in builtin_passes():
            _user_passes[info.name] = made if made else lambda: cast(Pass, result)
        return result

    return decorate if pass_func is None else decorate(pass_func)


def _from_function(target: Callable[..., Any], base: Any, method: str, info: PassInfo) -> Pass:
    body = {method: lambda self, *args: target(*args), "info": info, "__doc__": target.__doc__}
    made: Pass = type(target.__name__, (base,), body)()
    return made


def _from_class(target: type[Any], base: Any, method: str, info: PassInfo) -> type[Pass]:
    if not hasattr(target, method):
        raise TypeError(f"class '{target.__name__}' has no method '{method}'")
    return type(target.__name__, (target, base), {"info": info, "__doc__": target.__doc__})


def _config_key(name: str) -> ConfigKey:
    if name not in _config_keys:
        known = ", ".join(sorted(_config_keys)) or "none"
        raise UserError(f"unknown config key '{name}'; the keys are {known}")
    return _config_keys[name]


def _checked_config(name: str, value: object) -> object:
    kind = _config_key(name).kind
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise UserError(f"config key '{name}' got a {type(value).__name__}, expected a {kind.__name__}")
    return value


_user_passes: dict[str, Callable[[], Pass]] = {}
_stack = _Stack()

PRECISE = register_config_key(
    "relaybuild.precise", bool, False, "keep the order of floating-point operations: no scale or sum is moved"
)
