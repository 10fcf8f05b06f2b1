"""What a pass is, in what order passes run, and how one is found by its name; knows no pass by name but PrintIR."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from functools import cache
from typing import ClassVar, TextIO, cast

from relaybuild.dataclass import dataclass
from relaybuild.diagnostics import nearest
from relaybuild.errors import RelayBuildError, UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.module import IRModule
from relaybuild.passes._context import PassContext, PassInfo, PassInstrument

_NOT_OURS = ("Compiler", "Extern", "SkipOptimization")
_FOLDERS = ("relaybuild.passes", "relaybuild.partition")


class Pass(ABC):
    """A map from module to module. Subclasses are frozen dataclasses whose fields are the pass's options."""

    kind: ClassVar[str] = "Module"

    counts_as_rewrite: ClassVar[bool] = True
    """Whether a result that the pass never asked for counts as one rewrite, which the context may refuse."""

    @property
    def info(self) -> PassInfo:
        """Name, level and requirements; a class variable in most passes."""
        raise NotImplementedError

    def __call__(self, mod: IRModule, ctx: PassContext | None = None) -> IRModule:
        """Run what the pass requires, then the pass; a disabled pass leaves the module as it is."""
        ctx = ctx or PassContext.current()
        if self.info.name in ctx.disabled_pass:
            return mod
        return self._observed(run_required(self.info, mod, ctx), ctx)

    @abstractmethod
    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The pass itself, without requirements and instruments."""

    def _observed(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if not ctx.may_run(mod, self.info):
            return mod
        waiting: list[PassInstrument] = []
        instruments = tuple(ctx.instruments)
        ctx.running.append(self.info.name)
        try:
            for instrument in instruments:
                instrument.run_before_pass(mod, self.info)
                waiting.append(instrument)
            result = self._checked(self.run(mod, ctx))
            ctx.error_reporter.raise_all()
            for instrument in instruments:
                waiting.pop(0)
                instrument.run_after_pass(result, self.info)
        except BaseException as error:
            # all are told, also where one of them raises
            with ExitStack() as told:
                for instrument in reversed(waiting):
                    told.callback(instrument.pass_failed, mod, self.info)
            ctx.error_reporter.attach_to(error)
            if isinstance(error, RelayBuildError):
                error.with_note(f"while running {self.info.name}")
            raise
        finally:
            ctx.running.pop()
        ctx.remember(self.info.name, result)
        return result

    def _checked(self, result: object) -> IRModule:
        if not isinstance(result, IRModule):
            found = type(result).__name__
            raise UserError(f"pass '{self.info.name}' returned a value of type '{found}', expected a module")
        return result

    def __repr__(self) -> str:
        return f"Run {self.kind} pass: {self.info.name} at the optimization level {self.info.opt_level}"


class ModulePass(Pass):
    """A pass that sees the whole module, and may add and remove functions."""

    @abstractmethod
    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """The transformed module; `mod` itself where nothing changes."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        asked = ctx.rewrites.asked
        result = self.transform_module(mod, ctx)
        unasked = self.counts_as_rewrite and result is not mod and ctx.rewrites.asked == asked
        return mod if unasked and not ctx.allow_rewrite("the module") else result


class FunctionPass(Pass):
    """A pass over one function at a time; leaves functions of other compilers and those marked SkipOptimization."""

    kind: ClassVar[str] = "Function"

    @abstractmethod
    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        """The transformed function; `func` itself where nothing changes."""

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        done = {name: self._transformed(name, function, mod, ctx) for name, function in mod.functions.items()}
        return mod.with_functions(done)

    def run_on(self, name: str, mod: IRModule, ctx: PassContext) -> Function:
        """One function of a module transformed, without requirements and instruments; raises what was reported."""
        result = self._transformed(name, mod[name], mod, ctx)
        ctx.error_reporter.raise_all()
        return result

    def _transformed(self, name: str, function: Function, mod: IRModule, ctx: PassContext) -> Function:
        if is_left_alone(function):
            return function
        asked = ctx.rewrites.asked
        result = self.transform_function(function, mod, ctx)
        if not isinstance(result, Function):
            found = type(result).__name__
            raise UserError(f"pass '{self.info.name}' returned a value of type '{found}', expected a function")
        unasked = self.counts_as_rewrite and result is not function and ctx.rewrites.asked == asked
        return function if unasked and not ctx.allow_rewrite(f"the function '@{name}'", function) else result


def is_left_alone(function: Function) -> bool:
    """Whether passes leave a function as it is: another compiler's, or marked SkipOptimization."""
    return any(function.attrs.get(name) for name in _NOT_OURS)


class Sequential(Pass):
    """Passes one after the other, each if the context enables it and `disabled` does not name it, at any depth."""

    kind: ClassVar[str] = "Sequential"

    def __init__(
        self,
        passes: Sequence[Pass] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Sequence[str] = (),
        disabled: Sequence[str] = (),
    ) -> None:
        for each in passes:
            if not isinstance(each, Pass):
                raise TypeError(f"Sequential '{name}' got {each!r} among its passes: make it a pass first")
        self.passes = tuple(passes)
        self.disabled = tuple(disabled)
        self._info = PassInfo(name, opt_level, tuple(required))

    @property
    def info(self) -> PassInfo:
        return self._info

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        inner = ctx.derived(disabled_pass=self.disabled) if self.disabled else ctx
        for child in self.passes:
            if inner.pass_enabled(child.info):
                mod = child(mod, inner)
        return mod

    def __repr__(self) -> str:
        names = " ".join(child.info.name for child in self.passes)
        return f"{super().__repr__()}. The passes will be executed are: [{names}]"


@dataclass(frozen=True, repr=False)
class PrintIR(ModulePass):
    """Writes the module's text, weights by digest, to `stream` (standard error where it is None).

    `header` says where in a sequence it stands.
    """

    info: ClassVar[PassInfo] = PassInfo("PrintIR", 0)
    header: str = ""
    stream: TextIO | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        from relaybuild.ir.printer import print_module

        head = f"// PrintIR {self.header}".rstrip()
        (self.stream or sys.stderr).write(f"{head}\n{print_module(mod, weights='digest')}")
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


def run_required(info: PassInfo, mod: IRModule, ctx: PassContext) -> IRModule:
    """A module after what a pass requires; raises UserError where that is disabled."""
    for name in required_order(info):
        mod = _run_required(name, info, mod, ctx)
    return mod


def _run_required(name: str, wanted_by: PassInfo, mod: IRModule, ctx: PassContext) -> IRModule:
    if name in ctx.disabled_pass:
        raise UserError(
            f"pass '{wanted_by.name}' requires '{name}', which is disabled: enable '{name}', or disable both"
        )
    return mod if ctx.holds(name, mod) else get_pass(name)._observed(mod, ctx)


PassFactory = Callable[..., Pass]

_user_passes: dict[str, PassFactory] = {}


def register_pass(factory: PassFactory | Pass, name: str | None = None) -> None:
    """Make a pass known by name, so that others can require it; the latest of a name holds.

    `factory` is a class of passes, a function that makes one, or a pass; a name of relaybuild's own cannot be taken.
    """
    make = _maker(factory) if isinstance(factory, Pass) else factory
    known_as = name or pass_info(make).name
    if known_as in builtin_passes():
        raise UserError(f"'{known_as}' is a pass of relaybuild: choose another name")
    _user_passes[known_as] = make


def _maker(made: Pass) -> PassFactory:
    return lambda: made


def pass_info(factory: PassFactory) -> PassInfo:
    """What a factory's passes say of themselves; made without options where the class does not say it."""
    info = getattr(factory, "info", None)
    return info if isinstance(info, PassInfo) else factory().info


def all_passes() -> dict[str, PassFactory]:
    """Every pass by name, relaybuild's own and those registered by users."""
    return dict(sorted({**_user_passes, **builtin_passes()}.items()))


def pass_name(text: str) -> str:
    """The registered name that a text such as `FoldConstant` or `fold-constant` spells; an unknown one is an error."""
    known = all_passes()
    camel = "".join(word[:1].upper() + word[1:] for word in text.split("-"))
    found = text if text in known else next((name for name in known if name.lower() == camel.lower()), None)
    if found is None:
        near = nearest(camel, known, 3)
        hint = f"the nearest are {', '.join(near)}" if near else f"known are {', '.join(known)}"
        raise UserError(f"unknown pass '{text}'; {hint}")
    return found


def get_pass(name: str, **options: object) -> Pass:
    """A pass by its name, as in `FoldConstant` or `fold-constant`, with options; an unknown name is an error."""
    factory = _user_passes.get(name) or _in_own_file(name) or all_passes()[pass_name(name)]
    try:
        # raises TypeError for options that do not fit, before anything of the pass itself can
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        known = ", ".join(item.name for item in fields(factory)) if is_dataclass(factory) else ""
        raise UserError(f"pass '{name}' cannot be made: {error}; its options are {known or 'none'}") from None
    return factory(**options)


def _in_own_file(name: str) -> PassFactory | None:
    """The pass whose file has its name, found without importing the others; None where there is none."""
    module = _pass_modules().get(name.replace("-", "").lower())
    return _passes_in(module).get(name) if module is not None else None


@cache
def _pass_modules() -> Mapping[str, str]:
    """The modules of the folders of passes, by their last names in one word."""
    return {
        entry.name.replace("_", ""): f"{folder}.{entry.name}"
        for folder in _FOLDERS
        for entry in sorted(pkgutil.iter_modules(importlib.import_module(folder).__path__), key=lambda each: each.name)
        if not entry.name.startswith("_")
    }


def _passes_in(module: str) -> dict[str, PassFactory]:
    values = vars(importlib.import_module(module)).values()
    return {pass_info(value).name: cast(PassFactory, value) for value in values if _is_pass_of(module, value)}


@cache
def builtin_passes() -> Mapping[str, PassFactory]:
    """Every pass of the folders of passes by name."""
    found: dict[str, PassFactory] = {"PrintIR": PrintIR}
    for module in _pass_modules().values():
        found.update(_passes_in(module))
    return found


def _is_pass_of(module: str, value: object) -> bool:
    if not isinstance(value, type) or not issubclass(value, Pass) or value.__module__ != module:
        return False
    return not inspect.isabstract(value) and not value.__name__.startswith("_")
