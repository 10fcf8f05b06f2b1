"""Runs mutually recursive generators on an explicit stack, so that depth is bounded by memory; knows no task."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Step: TypeAlias = Generator["Step[Any]", Any, T]
"""A computation that yields the computations it needs, receives their results, and returns its own."""


def run(start: Step[T]) -> T:
    """The result of `start`; an exception of any step ends the whole run."""
    stack: list[Step[Any]] = [start]
    value: Any = None
    while stack:
        try:
            needed = stack[-1].send(value)
        except StopIteration as done:
            stack.pop()
            value = done.value
        else:
            stack.append(needed)
            value = None
    result: T = value
    return result


def done(value: T) -> Step[T]:
    """A step that needs nothing."""
    return value
    yield
