"""Fingerprints: equal for equal content, other ones for other content, refused where content cannot be told."""

from __future__ import annotations

import functools
import math
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from relaybuild.artifact.fingerprint import NoFingerprint, fingerprint
from relaybuild.passes.infra import module_pass


def defined(text: str, **names: object) -> Callable[..., object]:
    """The function `f` of a text, in a module of a user's."""
    space: dict[str, object] = {"__name__": "users_module", **names}
    exec(text, space)
    found: Callable[..., object] = space["f"]  # type: ignore[assignment]
    return found


def made(base: int) -> Callable[[int], int]:
    def add(value: int, step: int = 1) -> int:
        return base + step + value

    return add


@dataclass(frozen=True)
class Pair:
    left: object
    right: object = 0


ONE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (defined(ONE), defined("\n\n" + ONE)),
        (defined(ONE), defined(ONE, unused=object())),
        (made(1), made(1)),
        (Pair({"a": [1, 2.0]}), Pair({"a": [1, 2.0]})),
        (np.arange(3), np.arange(3)),
        (functools.partial(made(1), step=2), functools.partial(made(1), step=2)),
        ({1, 2, 3}, {3, 2, 1}),
    ],
)
def test_equal_content(first: object, second: object) -> None:
    assert fingerprint(first) == fingerprint(second)


HELPED = "def f(x):\n    return helper.go(x)\n"


def helper_module(text: str) -> types.ModuleType:
    module = types.ModuleType("users_helper")
    exec(text, module.__dict__)
    return module


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (defined(ONE), defined(ONE.replace("1", "2"))),
        (defined(ONE), defined(ONE.replace("+", "-"))),
        (defined("def f(x):\n    return x + y\n", y=1), defined("def f(x):\n    return x + y\n", y=2)),
        (
            defined("def f(x):\n    return [x + y for _ in x]\n", y=1),
            defined("def f(x):\n    return [x + y for _ in x]\n", y=2),
        ),
        (
            defined(HELPED, helper=helper_module("def go(x): return 1")),
            defined(HELPED, helper=helper_module("def go(x): return 2")),
        ),
        (defined("def f(x, y=1): return x"), defined("def f(x, y=2): return x")),
        (made(1), made(2)),
        (Pair(1), Pair(1.0)),
        (Pair(0.0), Pair(-0.0)),
        (Pair(1), Pair(2)),
        ([1, [2]], [1, 2]),
        (np.arange(3), np.arange(3.0)),
        (np.arange(4), np.arange(4).reshape(2, 2)),
        (functools.partial(made(1), step=2), functools.partial(made(1), step=3)),
        (
            module_pass(lambda mod, ctx: mod, opt_level=1, name="P"),
            module_pass(lambda mod, ctx: mod.with_functions({}), opt_level=1, name="P"),
        ),
    ],
)
def test_other_content(first: object, second: object) -> None:
    assert fingerprint(first) != fingerprint(second)


@pytest.mark.parametrize(
    "value",
    [
        threading.Lock(),
        iter([1]),
        defined("def f(): return lock\n", lock=threading.Lock()),
        [object()].append,
        {object()},
    ],
)
def test_what_has_no_content(value: object) -> None:
    with pytest.raises(NoFingerprint):
        fingerprint(value)


def test_cycles_end() -> None:
    first: list[object] = [1]
    first.append(first)
    second: list[object] = [2]
    second.append(second)
    assert fingerprint(first) != fingerprint(second)


def test_what_is_installed_is_named() -> None:
    assert fingerprint(math.sin) != fingerprint(math.cos)
    assert fingerprint(np.linalg) == fingerprint(np.linalg)


def test_an_identity_of_ones_own() -> None:
    class Own:
        def __init__(self, text: object) -> None:
            self.text = text
            self.lock = threading.Lock()

        def cache_id(self) -> object:
            return self.text

    assert fingerprint(Own("a")) == fingerprint(Own("a"))
    assert fingerprint(Own("a")) != fingerprint(Own("b"))
    with pytest.raises(NoFingerprint, match="expected a text"):
        fingerprint(Own(None))
