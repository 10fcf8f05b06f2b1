"""Places buffers of known lifetimes into one arena; knows nothing of what they hold.

Largest first, each at the lowest offset where no buffer alive at the same time lies: the greedy-by-size strategy of
Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020).
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A buffer of `num_bytes`, alive from step `first` to step `last`, both included."""

    num_bytes: int
    first: int
    last: int

    def overlaps(self, other: Lifetime) -> bool:
        """Whether both are alive at some step."""
        return self.first <= other.last and other.first <= self.last


def plan(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """(offset of each buffer, bytes of the arena); offsets are multiples of 64."""
    offsets = [0] * len(lifetimes)
    placed: list[int] = []
    order = sorted(range(len(lifetimes)), key=lambda number: (-lifetimes[number].num_bytes, number))
    total = 0
    for number in order:
        mine = lifetimes[number]
        taken = sorted(
            (offsets[other], offsets[other] + _aligned(lifetimes[other].num_bytes))
            for other in placed
            if lifetimes[other].overlaps(mine)
        )
        offsets[number] = _first_gap(taken, _aligned(mine.num_bytes))
        placed.append(number)
        total = max(total, offsets[number] + _aligned(mine.num_bytes))
    return offsets, total


def _first_gap(taken: Sequence[tuple[int, int]], size: int) -> int:
    offset = 0
    for begin, end in taken:
        if begin - offset >= size:
            return offset
        offset = max(offset, end)
    return offset


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
