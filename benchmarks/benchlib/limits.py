"""What a machine allows: arithmetic peak, bandwidth by working set, and the least time of a kernel; knows no kernel.

    limit = max(operations / peak, moved)
    moved = 2 * min(r, w) / copy + max(r - w, 0) / read + max(w - r, 0) / write

`r` and `w` are the bytes that must be read and written at least once, and `copy`, `read` and `write` the bandwidths
that one core reaches over a working set of r + w bytes, which says which cache it comes from. Reads and writes are
measured mixed as well as alone because a core does some of both at a time.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("read", "write", "copy")


@dataclass(frozen=True)
class Work:
    """What a kernel must do whatever its algorithm: operations (an addition, a maximum or a multiplication takes the
    slot of a multiply-add and counts two), and bytes to be read and written at least once."""

    operations: float
    read_bytes: float
    write_bytes: float

    @property
    def num_bytes(self) -> float:
        return self.read_bytes + self.write_bytes

    @property
    def moved(self) -> tuple[float, float, float]:
        """Bytes that are read alone, written alone, and read or written while others are written or read (`KINDS`)."""
        both = 2 * min(self.read_bytes, self.write_bytes)
        rest = self.read_bytes - self.write_bytes
        return max(rest, 0.0), max(-rest, 0.0), both


@dataclass(frozen=True)
class Curve:
    """Bandwidth in bytes a second over working sets of `sizes` bytes, ascending."""

    sizes: tuple[int, ...]
    rates: tuple[float, ...]

    def at(self, size: float) -> float:
        """The rate for a working set, linear in its logarithm between the sizes measured."""
        if size <= self.sizes[0]:
            return self.rates[0]
        if size >= self.sizes[-1]:
            return self.rates[-1]
        above = bisect.bisect_right(self.sizes, size)
        low, high = self.sizes[above - 1], self.sizes[above]
        share = math.log(size / low) / math.log(high / low)
        return self.rates[above - 1] + (self.rates[above] - self.rates[above - 1]) * share


def falling(sizes: Sequence[int], rates: Sequence[float]) -> Curve:
    """A curve that no larger working set exceeds: what a larger one reaches, a smaller one can reach too."""
    best, falls = 0.0, []
    for rate in reversed(rates):
        best = max(best, rate)
        falls.append(best)
    return Curve(tuple(sizes), tuple(reversed(falls)))


@dataclass(frozen=True)
class Limits:
    """One core's peak in operations a second, and its bandwidths."""

    peak: float
    read: Curve
    write: Curve
    copy: Curve

    def arithmetic_seconds(self, work: Work) -> float:
        return work.operations / self.peak

    def memory_seconds(self, work: Work) -> float:
        """The least time in which the bytes can be moved."""
        size = work.num_bytes
        return sum(part / curve.at(size) for part, curve in zip(work.moved, (self.read, self.write, self.copy)))

    def seconds(self, work: Work) -> float:
        """The least time in which the machine can do the work."""
        return max(self.arithmetic_seconds(work), self.memory_seconds(work))
