"""Sliding windows over the last two axes of arrays, for convolutions and pooling; knows no operator.

Padding is (top, left, bottom, right).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import EllipsisType

import numpy as np

from relaybuild.ir.ops._shapes import Array


def pad_spatial(data: Array, padding: Sequence[int], value: float | int, extra: Sequence[int] = (0, 0)) -> Array:
    """The data with its last two axes padded; `extra` rows and columns follow at the end."""
    top, left, bottom, right = padding
    widths = [(0, 0)] * (data.ndim - 2) + [(top, bottom + extra[0]), (left, right + extra[1])]
    if not any(map(any, widths)):
        return data
    return np.pad(data, widths, constant_values=value)


def taps(
    window: Sequence[int], places: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> Iterator[tuple[int, int, tuple[EllipsisType, slice, slice]]]:
    """For each element (y, x) of the window: the part of padded data that it meets at all places."""
    for y in range(window[0]):
        for x in range(window[1]):
            rows = slice(y * dilation[0], y * dilation[0] + (places[0] - 1) * strides[0] + 1, strides[0])
            columns = slice(x * dilation[1], x * dilation[1] + (places[1] - 1) * strides[1] + 1, strides[1])
            yield y, x, (..., rows, columns)


def overhang(
    shape: Sequence[int],
    window: Sequence[int],
    places: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
) -> tuple[int, int]:
    """How many rows and columns the last windows reach beyond the padded data."""
    rows, columns = (
        (places[axis] - 1) * strides[axis]
        + dilation[axis] * (window[axis] - 1)
        + 1
        - (shape[axis] + padding[axis] + padding[axis + 2])
        for axis in (0, 1)
    )
    return max(rows, 0), max(columns, 0)
