"""Divides the time of a build among its steps; does not know what they do."""

from __future__ import annotations

import time

STEPS = ("write", "weights", "object", "link", "publish")


class StepClock:
    """Wall-clock seconds by step, since the clock was made; steps that never came took none."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(STEPS, 0.0)
        self._last = time.perf_counter()

    def step(self, name: str) -> None:
        """All that was since the last step belongs to this one."""
        now = time.perf_counter()
        self.seconds[name] += now - self._last
        self._last = now

    def split_last(self, name: str, earlier: str, seconds: float) -> None:
        """Of the time of a step, `seconds` (at most all of it) belong to an earlier one."""
        moved = min(max(seconds, 0.0), self.seconds[name])
        self.seconds[name] -= moved
        self.seconds[earlier] += moved
