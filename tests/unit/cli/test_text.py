"""Sizes, times and tables as they are printed."""

from __future__ import annotations

import pytest

from relaybuild.cli._text import shape_text, size_text, table, time_text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_230_000, "1.2 MB"), (2_500_000_000, "2.5 GB")]
)
def test_sizes(count: int, text: str) -> None:
    assert size_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0.00 ns"), (5e-8, "50.0 ns"), (1.234e-6, "1.23 µs"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (3.0, "3.00 s")],
)
def test_times(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


def test_shapes() -> None:
    assert [shape_text(shape) for shape in ((), (1,), (1, 3))] == ["()", "(1)", "(1, 3)"]


def test_tables_align_numbers_to_the_right() -> None:
    assert table(("name", "n", "said"), [("a", "1", "x"), ("bcdef", "100", "")], "  ") == [
        "  name     n  said",
        "  a        1  x",
        "  bcdef  100",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert table(("a", "b"), []) == ["a  b"]
