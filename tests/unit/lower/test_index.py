"""Simplified index arithmetic against Python's integers, and the C text against both."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.lower.index import Axis, Index, delinearize, linearize

EXTENTS = (1, 2, 3, 7, 16, 17, 48)
AXES = tuple(Axis(f"a{number}", extent - 1) for number, extent in enumerate(EXTENTS))
POINTS = 20


class Grown:
    """An index beside the values it must have at some points."""

    def __init__(self, index: Index, values: list[int]) -> None:
        self.index = index
        self.values = values

    def apply(self, function: Callable[..., object], *others: Grown | int) -> Grown:
        index = function(self.index, *(other.index if isinstance(other, Grown) else other for other in others))
        columns = [other.values if isinstance(other, Grown) else [other] * POINTS for other in others]
        assert isinstance(index, Index)
        return Grown(index, [int(str(function(*row))) for row in zip(self.values, *columns)])


def points(seed: int) -> list[dict[str, int]]:
    generator = random.Random(seed)
    corners = [{axis.name: 0 for axis in AXES}, {axis.name: axis.last or 0 for axis in AXES}]
    drawn = [{axis.name: generator.randint(0, axis.last or 0) for axis in AXES} for _ in range(POINTS - 2)]
    return corners + drawn


@st.composite
def indices(draw: Callable[..., int], at: list[dict[str, int]]) -> Grown:
    """Sums, multiples, differences that stay non-negative, quotients and remainders of loop variables."""
    pool = [Grown(Index.of(axis), [point[axis.name] for point in at]) for axis in AXES]
    for _ in range(draw(st.integers(1, 7))):
        first, second = (pool[draw(st.integers(0, len(pool) - 1))] for _ in range(2))
        number = draw(st.sampled_from([1, 2, 3, 4, 8, 16, 21, 48]))
        kind = draw(st.integers(0, 6))
        if kind == 0:
            pool.append(first.apply(operator.add, second))
        elif kind == 1:
            pool.append(first.apply(operator.mul, number))
        elif kind == 2:
            pool.append(first.apply(operator.floordiv, number))
        elif kind == 3:
            pool.append(first.apply(operator.mod, number))
        elif kind == 4:
            pool.append(first.apply(operator.add, number))
        elif kind == 5 and first.index.upper is not None:
            pool.append(first.apply(operator.mul, -1).apply(operator.add, first.index.upper + number))
        elif kind == 6:
            whole = first.apply(operator.floordiv, number).apply(operator.mul, number)
            pool.append(whole.apply(operator.add, first.apply(operator.mod, number)))
    return pool[-1]


def evaluate(text: str, point: dict[str, int]) -> int:
    """The value of C text over non-negative quotients."""
    return int(eval(text.replace("/", "//"), {"__builtins__": {}}, point))


class Checked(int):
    """An integer that refuses the divisions in which C and mathematics differ."""

    def __add__(self, other: int) -> Checked:
        return Checked(int(self) + int(other))

    __radd__ = __add__

    def __sub__(self, other: int) -> Checked:
        return Checked(int(self) - int(other))

    def __rsub__(self, other: int) -> Checked:
        return Checked(int(other) - int(self))

    def __mul__(self, other: int) -> Checked:
        return Checked(int(self) * int(other))

    __rmul__ = __mul__

    def __neg__(self) -> Checked:
        return Checked(-int(self))

    def __floordiv__(self, other: int) -> Checked:
        assert int(self) >= 0
        return Checked(int(self) // int(other))

    def __mod__(self, other: int) -> Checked:
        assert int(self) >= 0
        return Checked(int(self) % int(other))


AT = points(5)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(indices(AT))
def test_text_has_the_value(grown: Grown) -> None:
    for point, value in zip(AT, grown.values):
        checked = {name: Checked(number) for name, number in point.items()}
        assert int(eval(str(grown.index).replace("/", "//"), {"__builtins__": {}}, checked)) == value, grown.index


@settings(max_examples=200, deadline=None, derandomize=True)
@given(indices(AT))
def test_bounds_hold(grown: Grown) -> None:
    lower, upper = grown.index.lower, grown.index.upper
    assert lower is None or lower <= min(grown.values)
    assert upper is None or upper >= max(grown.values)
    if grown.index.constant is not None:
        assert set(grown.values) == {grown.index.constant}


@settings(max_examples=200, deadline=None, derandomize=True)
@given(indices(AT), st.integers(0, 6), st.integers(0, 47))
def test_substitution_is_evaluation(grown: Grown, which: int, number: int) -> None:
    axis = AXES[which]
    number = min(number, axis.last or 0)
    replaced = grown.index.substitute({axis: number})
    assert not replaced.mentions(axis)
    for point in AT:
        moved = {**point, axis.name: number}
        assert evaluate(str(replaced), moved) == evaluate(str(grown.index), moved)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(2, 9), min_size=1, max_size=5))
def test_a_position_taken_apart_and_put_together_is_the_position(extents: list[int]) -> None:
    total = 1
    for extent in extents:
        total *= extent
    position = Index.of(Axis("p", total - 1))
    assert linearize(delinearize(position, extents), extents) == position
    axes = [Index.of(Axis(f"i{number}", extent - 1)) for number, extent in enumerate(extents)]
    assert delinearize(linearize(axes, extents), extents) == axes


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda i, j: (i * 16 + j) // 16, "i"),
        (lambda i, j: (i * 16 + j) % 16, "j"),
        (lambda i, j: (i // 4) // 8, "(i / 32)"),
        (lambda i, j: (i % 32) % 8, "(i % 8)"),
        (lambda i, j: (i // 8) * 8 + i % 8, "i"),
        (lambda i, j: (i * 32 + j) // 16, "i * 2"),
        (lambda i, j: (63 - i) // 16, "((-i + 63) / 16)"),
        (lambda i, j: (i + 16) // 16, "(i / 16) + 1"),
        (lambda i, j: i - i, "0"),
    ],
)
def test_rules(made: Callable[[Index, Index], Index], text: str) -> None:
    i, j = Index.of(Axis("i", 63)), Index.of(Axis("j", 15))
    assert str(made(i, j)) == text


def test_no_range_is_known_of_what_is_read_at_run_time() -> None:
    at = Index.opaque("at")
    assert at.upper is None
    assert str((16 - at * 3) // 16) == "((-at * 3 + 16) / 16)"
    assert (at + 5).run_time_names() == {"at"}
