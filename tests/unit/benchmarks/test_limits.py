"""The least time of a kernel on a machine of round numbers."""

from __future__ import annotations

import pytest
from benchlib.limits import Curve, Limits, Work, falling

SIZES = (1000, 100_000)
LIMITS = Limits(1e9, Curve(SIZES, (2e6, 2e6)), Curve(SIZES, (1e6, 1e6)), Curve(SIZES, (4e6, 1e6)))


def test_a_curve_is_linear_in_the_logarithm_of_the_size_and_flat_beyond_its_ends() -> None:
    curve = Curve((1000, 100_000), (30.0, 10.0))
    assert curve.at(10_000) == pytest.approx(20.0)
    assert curve.at(1) == 30.0
    assert curve.at(100_000) == 10.0
    assert curve.at(1e9) == 10.0


def test_no_larger_working_set_is_faster_on_a_falling_curve() -> None:
    assert falling((1, 2, 3, 4), (5.0, 9.0, 3.0, 4.0)).rates == (9.0, 9.0, 4.0, 4.0)


def test_reads_beside_writes_are_copied_and_the_rest_is_read_or_written_alone() -> None:
    assert LIMITS.memory_seconds(Work(0, 600, 400)) == pytest.approx(800 / 4e6 + 200 / 2e6)
    assert LIMITS.memory_seconds(Work(0, 400, 600)) == pytest.approx(800 / 4e6 + 200 / 1e6)


def test_the_limit_is_the_slower_of_arithmetic_and_memory() -> None:
    assert LIMITS.seconds(Work(1e9, 500, 500)) == pytest.approx(1.0)
    assert LIMITS.seconds(Work(1.0, 500, 500)) == pytest.approx(1000 / 4e6)


def test_what_is_moved_is_read_written_or_both() -> None:
    assert Work(0, 600, 400).moved == (200, 0, 800)
    assert Work(0, 400, 600).moved == (0, 200, 800)
