"""The time of a build is divided among its steps without a rest."""

from __future__ import annotations

import pytest

from relaybuild.build import step_clock
from relaybuild.build.step_clock import STEPS, StepClock


def test_times_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 11.0, 14.0, 20.0])
    monkeypatch.setattr(step_clock.time, "perf_counter", lambda: next(moments))
    clock = StepClock()
    for step in ("write", "link", "write"):
        clock.step(step)
    assert clock.seconds == dict.fromkeys(STEPS, 0.0) | {"write": 7.0, "link": 3.0}
    clock.split_last("link", "object", 2.0)
    assert (clock.seconds["object"], clock.seconds["link"]) == (2.0, 1.0)
    clock.split_last("link", "object", 5.0)
    clock.split_last("link", "object", -1.0)
    assert (clock.seconds["object"], clock.seconds["link"]) == (3.0, 0.0)
