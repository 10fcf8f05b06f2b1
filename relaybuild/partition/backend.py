"""What a backend is, and how backends are found; knows no backend by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.entry_points import entry_points
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.registry import get_global_func, list_global_func_names
from relaybuild.target import Target

HOST = "default"
"""The tag of what no backend takes: it stays with the host."""

ENTRY_POINTS = "relaybuild.backends"
"""The entry point group by which an installed package brings a backend: each names a `Backend`."""

CODEGEN_PREFIX = "relay.ext."
"""What the name of a registered function begins with that is the code generator of the tag behind it."""

Supports: TypeAlias = Callable[[Call], "bool | str"]
"""Whether a backend takes a typed call of an operator: True, or why not, or False where there is nothing to say."""


Remember: TypeAlias = Callable[[str, Digest, Callable[[], bytes]], bytes]
"""Gives what was made of a piece of work before, by whomever, or makes it now: from the place where the work comes up,
for people, the digest of all that its result depends on beside the generator's code, and what does it."""


@dataclass(frozen=True)
class CodegenOptions:
    """What a code generator is told beside its function.

    `inputs` and `outputs` are the names of the tensors that the function's parameters and results are, the fields of a
    tuple one by one (`flat_types`); `module` holds the functions that it may call; `symbol` is a C identifier;
    `threads` is the library's default number of threads, 0 for the machine's. `precise` rules out algorithms that
    round differently from a plain sum of products. Inputs whose numbers are in `constants` are the same at every call
    of the function in its library: weights. `remember` is for generators whose work falls into parts that come up again
    in other functions; None where nothing is kept. For a target of several levels `levels` has the host's options for
    each, from the least on: the same but for target, flags and what is remembered; other generators see the least
    level only.
    """

    name: str
    symbol: str
    target: Target
    flags: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    threads: int = 0
    opt_level: int = 3
    precise: bool = False
    config: Mapping[str, object] = field(default_factory=dict)
    module: IRModule = field(default_factory=IRModule)
    constants: frozenset[int] = frozenset()
    remember: Remember | None = field(default=None, repr=False, compare=False)
    levels: tuple[CodegenOptions, ...] = ()


def flat_types(kind: Type) -> tuple[TensorType, ...]:
    """The tensors of a parameter's or a result's type, in order; what is neither tensor nor tuple is left out."""
    found: list[TensorType] = []
    stack = [kind]
    while stack:
        item = stack.pop()
        if isinstance(item, TensorType):
            found.append(item)
        elif isinstance(item, TupleType):
            stack.extend(reversed(item.fields))
    return tuple(found)


@dataclass(frozen=True)
class SourceUnit:
    """One translation unit, in `c` or `c++`; `hot` ones are compiled for the target with full optimisation: with
    `flags`, or those of the generator's options."""

    name: str
    text: str
    hot: bool
    language: str = "c"
    flags: tuple[str, ...] | None = None

    def compiler_flags(self, options: Sequence[str]) -> Sequence[str]:
        """The unit's flags, `options` being those of hot ones that have none of their own."""
        if not self.hot:
            return ()
        return options if self.flags is None else self.flags


@dataclass(frozen=True)
class Blob:
    """What a function became that is no code: bytes that the runtime of a type key reads, in a frame or without."""

    type_key: str
    data: bytes


@dataclass(frozen=True)
class GeneratedCode:
    """What a code generator makes of a function.

    Of a region's function, whose symbol is S: either `units` that define the packed function `__tvm_ffi_S` as
    `relaybuild/packed.h` describes it, or a `blob` that has a function S. Where the units are `stateful`, they also
    define

        RB_HIDDEN int32_t S_create(const RbRegion *region, void **self);
        RB_HIDDEN void S_destroy(void *self);

    for what each instance of the model keeps between calls: prepared weights, say. All of it is called by one thread at
    a time for each `self`.

    The host's code for the whole program brings the rest: the `@weights` function with the bytes and place of each of
    its results, the types of the program's results, and facts for the summary.
    """

    units: tuple[SourceUnit, ...] = ()
    blob: Blob | None = None
    stateful: bool = False
    weights: Function | None = None
    weight_offsets: tuple[int, ...] = ()
    weight_bytes: int = 0
    arena_bytes: int = 0
    kernels: tuple[Mapping[str, object], ...] = ()
    results: tuple[TensorType, ...] = ()


def supports_nothing(call: Call) -> bool:
    """The answer of a backend that takes whole patterns alone."""
    return False


@dataclass(frozen=True)
class Backend:
    """A backend as a value: `tag` stands in a function's `Compiler` attribute, `cmake_flag` switches it on.

    `supports` is asked about each call of an operator; `patterns` are tuples of a name, a pattern and perhaps a check,
    by priority, or a function that makes them, and a pattern's name begins with the tag and a point. Of several
    backends the one of the highest `priority` is asked first. `optimize` runs over a module of one region, its function
    `main`, before code is generated for it, and keeps that function's type.

    `runtime_sources` are the C and C++ files, relative to `folder`, that its code needs in a library, each library
    once; `folder` is on the include path of its units. `type_key` is that of the blobs which they read, empty where
    they read none. `cmake_module` is the file, relative to `folder`, or the name of
    one in `cmake/modules/contrib`, that finds what else it needs; None where the flag alone decides.

    The host is a backend like any other: complete over all operators, always on, last in priority.
    """

    name: str
    tag: str
    cmake_flag: str
    codegen: Callable[[Function, CodegenOptions], GeneratedCode]
    priority: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    patterns: Sequence[Any] | Callable[[], Sequence[Any]] = ()
    supports: Supports = supports_nothing
    optimize: Callable[[IRModule], IRModule] | None = None
    runtime_sources: Sequence[str] = ()
    type_key: str = ""
    folder: Path | None = None
    cmake_module: str | None = None


_registered: dict[str, Backend] = {}
_predicates: dict[tuple[str, str], Supports] = {}


def register_backend(backend: Backend) -> None:
    """Make a backend known to this process, in place of any other of its tag."""
    _registered[backend.tag] = backend


def register_supports(tag: str, op_name: str) -> Callable[[Supports], Supports]:
    """Decorator: what decides whether the compiler of a tag takes a call of one operator, whatever its backend says.

    There need be no backend of that tag.
    """

    def register(predicate: Supports) -> Supports:
        _predicates[tag, op_name] = predicate
        return predicate

    return register


def supports(tag: str, call: Call) -> bool | str:
    """Whether the compiler of a tag takes a typed call of an operator; a text is the reason why not."""
    predicate = _predicates.get((tag, call.op_name))
    if predicate is None:
        backend = all_backends().get(tag)
        if backend is None:
            return False
        predicate = backend.supports
    return predicate(call)


def all_backends() -> Mapping[str, Backend]:
    """Every backend by tag: registered ones, those of installed packages, and the folders of `relaybuild.contrib`.

    A registered function `relay.ext.<tag>` is the code generator of its tag, whether there is a backend of that tag or
    not, and `relay.ext.<tag>.optimize` runs before it.
    """
    known = {**_found_backends(), **_registered} if _registered else _found_backends()
    names = list_global_func_names(CODEGEN_PREFIX)
    return {**known, **_with_functions(known, names)} if names else known


def _with_functions(known: Mapping[str, Backend], names: Sequence[str]) -> Mapping[str, Backend]:
    """Backends by tag whose code generators are registered functions."""
    found: dict[str, Backend] = {}
    for name in names:
        tag, _, hook = name.removeprefix(CODEGEN_PREFIX).partition(".")
        codegen = RegisteredCodegen(name)
        if tag and not hook:
            backend = known.get(tag) or Backend(tag, tag, "", codegen)
            optimize = get_global_func(f"{name}.optimize", allow_missing=True) or backend.optimize
            found[tag] = replace(backend, codegen=codegen, optimize=optimize)
    return found


@dataclass(frozen=True)
class RegisteredCodegen:
    """The code generator that is a registered function `name`.

    The function takes a region's function, whose `global_symbol` is the symbol S, and returns a module: one of C or C++
    text that defines `__tvm_ffi_S`, or one of another type key that has a function S, whose bytes become a blob. It may
    also return a GeneratedCode. Raises UserError where it returns anything else.
    """

    name: str

    def __call__(self, function: Function, options: CodegenOptions) -> GeneratedCode:
        made = get_global_func(self.name)(function.with_attr("global_symbol", options.symbol))
        if isinstance(made, GeneratedCode):
            return made
        type_key = getattr(made, "type_key", None)
        if type_key == "c":
            return self._source(made.get_source(), made.language, options.symbol)
        if isinstance(type_key, str) and hasattr(made, "save_to_binary"):
            return GeneratedCode(blob=Blob(type_key, made.save_to_binary()))
        raise UserError(
            f"'{self.name}' returned a {type(made).__name__} for region '{options.symbol}', expected a module, such as "
            "relaybuild.runtime.csource_module_create(code)"
        )

    def _source(self, text: str, language: str, symbol: str) -> GeneratedCode:
        # a macro may put the function's whole name together
        if symbol not in text:
            raise UserError(
                f"the text that '{self.name}' made for region '{symbol}' does not define '__tvm_ffi_{symbol}', whose "
                "symbol is the attribute 'global_symbol' of the function"
            )
        return GeneratedCode(units=(SourceUnit(symbol, text, hot=True, language=language),))


@cache
def _found_backends() -> Mapping[str, Backend]:
    package = importlib.import_module("relaybuild.contrib")
    found: dict[str, Backend] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        backend: Backend = importlib.import_module(f"relaybuild.contrib.{entry.name}").BACKEND
        found[backend.tag] = backend
    for point in sorted(entry_points(ENTRY_POINTS), key=lambda point: point.name):
        backend = point.load()
        if not isinstance(backend, Backend):
            kind = type(backend).__name__
            raise UserError(f"entry point '{point.name}' of group '{ENTRY_POINTS}' is a {kind}, expected a Backend")
        if backend.tag in found:
            raise UserError(f"entry point '{point.name}' brings a second backend of the tag '{backend.tag}'")
        found[backend.tag] = backend
    return found
