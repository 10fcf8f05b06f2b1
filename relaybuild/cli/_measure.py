"""Times several ways to do the same thing side by side, and what follows from the times; knows no model.

Each round runs every contender for one block of calls, in an order that rotates; the first call of a block is not
counted, since the caches then hold what the contender before has left. Ratios compare blocks of one round, so that a
machine that slows down for a while slows down both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from relaybuild.dataclass import dataclass

BLOCK_SECONDS = 0.02
WARM_UP_SECONDS = 0.3
MIN_ROUNDS, MAX_ROUNDS = 5, 500
MAX_BLOCK_CALLS = 2000


@dataclass(frozen=True)
class Spread:
    """Median and tenth and ninetieth percentile of something."""

    median: float
    p10: float
    p90: float


def pause_between(threads: int, contenders: int) -> float:
    """Seconds to wait between blocks: the threads of a runtime may spin for tens of milliseconds after a call."""
    return 0.1 if threads > 1 and contenders > 1 else 0.0


def measure(
    contenders: Sequence[Callable[[], object]],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
    *,
    pause: float = 0.0,
) -> list[list[list[float]]]:
    """Seconds of each call, by contender, round and call, within about `seconds` for each contender.

    Before each block nothing runs for `pause` seconds.
    """
    blocks = [_block_calls(run, clock) for run in contenders]
    round_seconds = sum(per_call * (calls + 1) + pause for calls, per_call in blocks)
    rounds = round(seconds * len(contenders) / max(round_seconds, 1e-9))
    times: list[list[list[float]]] = [[] for _ in contenders]
    for number in range(min(max(rounds, MIN_ROUNDS), MAX_ROUNDS)):
        for place in range(len(contenders)):
            index = (number + place) % len(contenders)
            if pause:
                time.sleep(pause)
            times[index].append(_block(contenders[index], blocks[index][0], clock))
    return times


def spread(values: Sequence[float]) -> Spread:
    """Median and percentiles, between the two nearest values where none is there. `values` is not empty."""
    ordered = sorted(values)
    return Spread(*(_quantile(ordered, share) for share in (0.5, 0.1, 0.9)))


def ratios(mine: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    """Per round, the median time of mine over that of theirs: below 1 where mine is faster."""
    return [statistics.median(a) / statistics.median(b) for a, b in zip(mine, theirs)]


def _block(run: Callable[[], object], calls: int, clock: Callable[[], float]) -> list[float]:
    run()
    times = []
    for _ in range(calls):
        begin = clock()
        run()
        times.append(clock() - begin)
    return times


def _block_calls(run: Callable[[], object], clock: Callable[[], float]) -> tuple[int, float]:
    """How many calls fill a block, and the seconds of one, from calls that warm it up."""
    times: list[float] = []
    while len(times) < 3 or (sum(times) < WARM_UP_SECONDS and len(times) < MAX_BLOCK_CALLS):
        begin = clock()
        run()
        times.append(clock() - begin)
    per_call = max(statistics.median(times), 1e-9)
    return min(max(round(BLOCK_SECONDS / per_call), 1), MAX_BLOCK_CALLS), per_call


def _quantile(ordered: Sequence[float], share: float) -> float:
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
