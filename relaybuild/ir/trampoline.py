"""Runs mutually recursive generators on an explicit stack, so that depth is bounded by memory; knows no task."""

from __future__ import annotations

from collections.abc import Generator
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Step: TypeAlias = Generator[Any, Any, T]
"""A computation that yields the computations it needs, receives their results, and returns its own.

What it yields may also be a value, which it receives at once: a function may return a value or a step, and its caller
does not ask which.
"""


def run(start: Step[T]) -> T:
    """The result of `start`; an exception goes up through the steps that wait for the one that raised it."""
    stack: list[Step[Any]] = [start]
    value: Any = None
    failure: Exception | None = None
    while True:
        step = stack[-1]
        try:
            needed = step.send(value) if failure is None else step.throw(failure)
            while type(needed) is not GeneratorType:
                needed = step.send(needed)
        except StopIteration as end:
            value, failure = end.value, None
            stack.pop()
            if not stack:
                result: T = value
                return result
        except Exception as error:
            failure = error
            stack.pop()
            if not stack:
                raise
        else:
            value, failure = None, None
            stack.append(needed)


def done(value: T) -> Step[T]:
    """A step that needs nothing."""
    return value
    yield
