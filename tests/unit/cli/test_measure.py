"""Interleaving, counting and statistics, on a clock that the contenders move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from relaybuild.cli._measure import MAX_ROUNDS, MIN_ROUNDS, Spread, measure, ratios, spread


@dataclass
class World:
    """Time passes only while a contender runs; `log` says who ran."""

    now: float = 0.0
    log: list[str] = field(default_factory=list)

    def contender(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.log.append(name)
            self.now += seconds

        return run


def test_contenders_alternate_and_take_turns_in_going_first() -> None:
    world = World()
    times = measure([world.contender("a", 0.5), world.contender("b", 0.25)], 3.0, lambda: world.now)
    assert set(world.log[:6]) == {"a", "b"}
    blocks = [world.log[start] for start in range(6, len(world.log), 2)]
    assert blocks[:8] == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert world.log[6::2] == world.log[7::2], "a block is a call that does not count and one that does"
    assert all(call == pytest.approx(0.5) for block in times[0] for call in block)
    assert all(call == pytest.approx(0.25) for block in times[1] for call in block)
    assert len(times[0]) == len(times[1])


def test_fast_contenders_are_called_often_in_a_block() -> None:
    world = World()
    (blocks,) = measure([world.contender("a", 1e-3)], 2.0, lambda: world.now)
    assert {len(block) for block in blocks} == {20}
    assert sum(sum(block) for block in blocks) == pytest.approx(2.0, rel=0.1)


def test_rounds_are_limited() -> None:
    world = World()
    (slow,) = measure([world.contender("a", 100.0)], 1.0, lambda: world.now)
    assert len(slow) == MIN_ROUNDS
    (fast,) = measure([world.contender("a", 1e-3)], 1e6, lambda: world.now)
    assert len(fast) == MAX_ROUNDS


def test_a_clock_that_stands_still() -> None:
    (blocks,) = measure([lambda: None], 1.0, lambda: 0.0)
    assert blocks[0][0] == 0.0


def test_spread() -> None:
    assert spread([5.0]) == Spread(5.0, 5.0, 5.0)
    assert spread([float(n) for n in range(10, -1, -1)]) == Spread(5.0, 1.0, 9.0)
    assert spread([1.0, 2.0]).median == 1.5


def test_ratios_pair_rounds() -> None:
    assert ratios([[1.0, 3.0, 1.0], [8.0]], [[2.0], [4.0, 4.0]]) == [0.5, 2.0]
