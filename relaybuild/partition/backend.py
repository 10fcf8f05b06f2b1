"""What a backend is, and how backends are found; knows no backend by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from relaybuild.ir.expr import Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.target import Target


@dataclass(frozen=True)
class CodegenOptions:
    """What a code generator is told beside its function.

    `inputs` and `outputs` are the names of the tensors that the function's parameters and results are, the fields of a
    tuple one by one (`flat_types`); `module` holds the functions that it may call; `symbol` is a C identifier;
    `threads` is the library's default number of threads, 0 for the machine's. `precise` rules out algorithms that
    round differently from a plain sum of products.
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
    """One translation unit in C; `hot` ones are compiled for the target with full optimisation."""

    name: str
    text: str
    hot: bool


@dataclass(frozen=True)
class GeneratedCode:
    """What a code generator returns: sources, the `@weights` function with the bytes and place of each of its results,
    and facts for the summary."""

    units: tuple[SourceUnit, ...]
    weights: Function
    weight_offsets: tuple[int, ...]
    weight_bytes: int
    arena_bytes: int
    kernels: tuple[Mapping[str, object], ...]


@dataclass(frozen=True)
class Backend:
    """A backend as a value: `tag` stands in a function's `Compiler` attribute, `cmake_flag` switches it on.

    The host is a backend like any other: complete over all operators, always on, last in priority.
    """

    name: str
    tag: str
    cmake_flag: str
    codegen: Callable[[Function, CodegenOptions], GeneratedCode]
    priority: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)


@cache
def all_backends() -> Mapping[str, Backend]:
    """Every backend by tag, collected from the folders of `relaybuild.contrib`."""
    package = importlib.import_module("relaybuild.contrib")
    found: dict[str, Backend] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        backend: Backend = importlib.import_module(f"relaybuild.contrib.{entry.name}").BACKEND
        found[backend.tag] = backend
    return found
