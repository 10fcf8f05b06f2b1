"""Which functions RemoveUnusedFunctions keeps: what several entries reach, and types whatever becomes of functions."""

from __future__ import annotations

import pytest

from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.passes.remove_unused_functions import RemoveUnusedFunctions

FUNCTIONS = """
def @main(%x: int32) -> int32 { @shared(%x) }
def @second(%x: int32) -> int32 { @own(@shared(%x)) }
def @shared(%x: int32) -> int32 { %x + 1 }
def @own(%x: int32) -> int32 { %x + 2 }
def @unused(%x: int32) -> int32 { @own(%x) }
"""
TYPES = """
type Inner[A] { Empty, One(A) }
type Outer { Wrap(Inner[int32]) }
def @main(%x: Outer) -> Outer { %x }
def @unused(%x: Inner[int32]) -> Inner[int32] { %x }
"""


def kept(text: str, *entries: str) -> IRModule:
    return RemoveUnusedFunctions(entries)(parse(text))


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        (("main",), ["main", "shared"]),
        (("second",), ["own", "second", "shared"]),
        (("main", "second"), ["main", "own", "second", "shared"]),
        (("main", "absent"), ["main", "shared"]),
    ],
)
def test_several_entries(entries: tuple[str, ...], names: list[str]) -> None:
    """RU04: what any of the entries reaches stays; one that is not there reaches nothing."""
    assert list(kept(FUNCTIONS, *entries)) == names


def test_without_an_entry_nothing_is_removed() -> None:
    mod = parse(FUNCTIONS)
    assert RemoveUnusedFunctions(("absent",))(mod) is mod


def test_types_stay() -> None:
    """RU03: a type that a function of another type's fields needs is there afterwards."""
    after = kept(TYPES, "main")
    assert list(after) == ["main"]
    assert set(after.type_definitions) == {"Inner", "Outer"}
