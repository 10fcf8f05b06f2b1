"""Buffers alive at one time do not share memory; the arena is no larger than it must be where that is known."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.lower.memory_plan import ALIGNMENT, Lifetime, plan


@st.composite
def lifetimes(draw: Callable[..., int]) -> Lifetime:
    first = draw(st.integers(0, 20))
    return Lifetime(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 8)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(lifetimes(), max_size=25))
def test_live_buffers_do_not_overlap(found: list[Lifetime]) -> None:
    offsets, total = plan(found)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    for number, (a, start) in enumerate(zip(found, offsets)):
        assert start + a.num_bytes <= total
        for b, other in zip(found[:number], offsets):
            if a.first <= b.last and b.first <= a.last:
                assert start + a.num_bytes <= other or other + b.num_bytes <= start or 0 in (a.num_bytes, b.num_bytes)
    assert plan(found) == (offsets, total)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(lifetimes(), max_size=25))
def test_the_arena_is_between_the_largest_step_and_everything(found: list[Lifetime]) -> None:
    _, total = plan(found)
    sizes = [-(-each.num_bytes // ALIGNMENT) * ALIGNMENT for each in found]
    steps = [sum(size for size, each in zip(sizes, found) if each.first <= step <= each.last) for step in range(40)]
    assert max(steps, default=0) <= total <= sum(sizes)


def test_a_chain_needs_two_buffers() -> None:
    offsets, total = plan([Lifetime(1000, step, step + 1) for step in range(90)])
    assert total == 2 * 1024
    assert set(offsets) == {0, 1024}


def test_a_gap_is_used() -> None:
    offsets, total = plan([Lifetime(640, 0, 3), Lifetime(320, 0, 1), Lifetime(128, 2, 3)])
    assert offsets == [0, 640, 640]
    assert total == 960


def test_nothing_needs_nothing() -> None:
    assert plan([]) == ([], 0)
