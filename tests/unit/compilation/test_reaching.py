"""What a function can reach."""

from __future__ import annotations

import pytest

from relaybuild.compilation.reaching import reached_module
from relaybuild.ir.parser import parse

TEXT = """
def @main(%x: float32) -> float32 { @b(@a(%x)) }
def @a(%x: float32) -> float32 { let %f = @c; %f(%x) }
def @b(%x: float32) -> float32 { if (True) { @b(%x) } else { %x } }
def @c(%x: float32) -> float32 { %x }
def @alone(%x: float32) -> float32 { @c(%x) }
"""


@pytest.mark.parametrize(
    ("names", "reached"),
    [
        (["main"], ["main", "a", "b", "c"]),
        (["a"], ["a", "c"]),
        (["b"], ["b"]),
        (["alone", "b"], ["b", "c", "alone"]),
        (["absent"], []),
    ],
)
def test_functions_that_are_reached(names: list[str], reached: list[str]) -> None:
    module = parse(TEXT)
    found = reached_module(module, names)
    assert set(found.functions) == set(reached)
    assert list(found.functions) == [name for name in module.functions if name in reached]
    assert all(found[name] is module[name] for name in reached)
