"""Tells whoever runs a step at which weights' values it looked; knows no step.

What a step makes depends on the types of all weights, and on the values of those alone that it asked for.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from relaybuild.ir.expr import Constant

Listener: TypeAlias = "Callable[[Constant], None]"


class _Listeners(threading.local):
    def __init__(self) -> None:
        self.all: tuple[Listener, ...] = ()


listeners = _Listeners()
"""Who listens in this thread."""


def tell(weight: Constant) -> None:
    """Call all who listen in this thread."""
    for listener in listeners.all:
        listener(weight)


@contextlib.contextmanager
def asked_values(listener: Listener) -> Iterator[None]:
    """Call `listener` with each weight whose value is asked for in this thread while the block runs."""
    before = listeners.all
    listeners.all = (*before, listener)
    try:
        yield
    finally:
        listeners.all = before


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Let nobody hear of values that are asked for in this thread while the block runs: they do not count."""
    before = listeners.all
    listeners.all = ()
    try:
        yield
    finally:
        listeners.all = before
