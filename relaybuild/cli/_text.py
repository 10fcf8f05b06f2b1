"""Writes sizes, times and tables for people; knows nothing of what they are about."""

from __future__ import annotations

from collections.abc import Sequence

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_SIZE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size_text(count: int) -> str:
    """Bytes in decimal units: `1.2 MB`."""
    for unit, name in _SIZE_UNITS:
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def time_text(seconds: float) -> str:
    """Seconds with three significant digits in the unit that suits them: `1.23 ms`."""
    unit, name = next((entry for entry in _TIME_UNITS if seconds >= entry[0]), _TIME_UNITS[-1])
    value = seconds / unit
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f} {name}"


def shape_text(shape: Sequence[int]) -> str:
    """`(1, 3, 224, 224)`."""
    return f"({', '.join(map(str, shape))})"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], indent: str = "") -> list[str]:
    """Lines with aligned columns: to the right what reads as a number in every row, to the left the rest."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    is_right = [bool(rows) and all(_is_number(row[column]) for row in rows) for column in range(len(header))]
    return [
        (indent + "  ".join(_pad(cell, width, right) for cell, width, right in zip(row, widths, is_right))).rstrip()
        for row in (header, *rows)
    ]


def _pad(cell: str, width: int, is_right: bool) -> str:
    return cell.rjust(width) if is_right else cell.ljust(width)


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("", "-", "nan", "inf")
