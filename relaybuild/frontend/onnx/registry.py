"""Finds the converter of an ONNX operator by folder and version; knows no operator by name."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from relaybuild.ir.expr import Expr

if TYPE_CHECKING:
    from relaybuild.frontend.onnx.node import Node

Converter: TypeAlias = "Callable[[Node], Expr | Sequence[Expr]]"
F = TypeVar("F", bound="Callable[[Node], Expr | Sequence[Expr]]")
_MARK = "__onnx_operators__"


def converter(*op_types: str, since: int = 1, domain: str = "") -> Callable[[F], F]:
    """Mark a function as the converter of these operators from opset `since` on, until a newer one takes over."""

    def mark(function: F) -> F:
        marked = getattr(function, _MARK, ())
        setattr(function, _MARK, (*marked, *((domain, op_type, since) for op_type in op_types)))
        return function

    return mark


@cache
def all_converters() -> Mapping[tuple[str, str], tuple[tuple[int, Converter], ...]]:
    """(domain, operator) to (since, converter), newest first, collected from the files of the `ops` folder."""
    package = importlib.import_module("relaybuild.frontend.onnx.ops")
    found: dict[tuple[str, str], dict[int, Converter]] = {}
    for entry in sorted(pkgutil.iter_modules(package.__path__), key=lambda entry: entry.name):
        module = importlib.import_module(f"{package.__name__}.{entry.name}")
        for function in vars(module).values():
            if getattr(function, "__module__", None) != module.__name__:
                continue
            for domain, op_type, since in getattr(function, _MARK, ()):
                versions = found.setdefault((domain, op_type), {})
                if since in versions:
                    raise ValueError(f"operator '{op_type}' has two converters since opset {since}")
                versions[since] = function
    return {key: tuple(sorted(versions.items(), reverse=True)) for key, versions in found.items()}


def find_converter(domain: str, op_type: str, opset: int) -> Converter | None:
    """The newest converter whose version is not above `opset`, or None."""
    for since, function in all_converters().get((domain, op_type), ()):
        if since <= opset:
            return function
    return None
