"""Where the points of a resized axis lie in the original one, in exact rational arithmetic; knows no tensors.

The coordinate of output point i is (step * i + offset) / denominator, all three integers.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import TypeMismatch

if TYPE_CHECKING:
    from fractions import Fraction

COORDINATE_MODES = ("asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners", "pytorch_half_pixel")
ROUNDINGS = ("round", "floor", "ceil", "round_prefer_floor")


@dataclass(frozen=True)
class Axis:
    """One resized axis: `extent` points become `places`, point i lying at (step * i + offset) / denominator."""

    extent: int
    places: int
    step: int
    offset: int
    denominator: int

    def nearest(self, rounding: str) -> Axis:
        """The axis whose floored coordinates are this one's rounded ones ("round": half up)."""
        step, offset, denominator = 2 * self.step, 2 * self.offset, 2 * self.denominator
        if rounding == "ceil":
            offset += denominator - 1
        elif rounding == "round":
            offset += denominator // 2
        elif rounding == "round_prefer_floor":
            offset += denominator // 2 - 1
        common = gcd(step, denominator) or 1
        return Axis(self.extent, self.places, step // common, offset // common, denominator // common)

    def floor(self, place: int) -> int:
        """The largest integer not above the coordinate; it may lie outside the axis."""
        return (self.step * place + self.offset) // self.denominator

    def fraction(self, place: int) -> float:
        """What the coordinate has above its floor."""
        return (self.step * place + self.offset) % self.denominator / self.denominator

    def clamp(self, point: int) -> int:
        """The nearest point of the axis."""
        return min(max(point, 0), self.extent - 1)


def resized_axis(extent: int, places: int, scale: float | None, mode: str) -> Axis:
    """The axis by an ONNX coordinate transformation; `scale` is places / extent where none is given."""
    ratio = _exact(places, extent) if scale is None else _exact_scale(extent, places, scale)
    slope, start = _coordinates(extent, places, ratio, mode)
    denominator = slope.denominator * start.denominator // gcd(slope.denominator, start.denominator)
    return Axis(extent, places, int(slope * denominator), int(start * denominator), denominator)


def _exact(number: int, divisor: int = 1) -> Fraction:
    """A fraction; their class is seldom needed, and takes as long to import as five operators."""
    from fractions import Fraction

    return Fraction(number, divisor)


def _exact_scale(extent: int, places: int, scale: float) -> Fraction:
    """The scale as a ratio; a float32 next to the ratio of the extents stands for that ratio."""
    single = np.float32(scale)
    is_ratio = single == np.float32(places / extent)
    return _exact(places, extent) if is_ratio else _exact(*float(single).as_integer_ratio())


def _coordinates(extent: int, places: int, ratio: Fraction, mode: str) -> tuple[Fraction, Fraction]:
    if mode == "align_corners":
        return (_exact(extent - 1, places - 1) if places > 1 else _exact(0)), _exact(0)
    if mode == "pytorch_half_pixel" and places == 1:
        return _exact(0), _exact(0)
    slope = 1 / ratio
    if mode == "asymmetric":
        return slope, _exact(0)
    start = slope / 2 - _exact(1, 2)
    if mode == "half_pixel_symmetric":
        start += _exact(extent, 2) * (1 - _exact(places) / (ratio * extent))
    elif mode not in COORDINATE_MODES:
        raise TypeMismatch(
            f"expected 'coordinate_transformation_mode' to be one of {', '.join(COORDINATE_MODES)}, found '{mode}'"
        )
    return slope, start
