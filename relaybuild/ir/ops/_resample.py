"""Where the points of a resized axis lie in the original one, in exact rational arithmetic; knows no tensors.

The coordinate of output point i is (step * i + offset) / denominator, all three integers.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import TypeMismatch

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
    ratio = Fraction(places, extent) if scale is None else _exact_scale(extent, places, scale)
    slope, start = _coordinates(extent, places, ratio, mode)
    denominator = slope.denominator * start.denominator // gcd(slope.denominator, start.denominator)
    return Axis(extent, places, int(slope * denominator), int(start * denominator), denominator)


def _exact_scale(extent: int, places: int, scale: float) -> Fraction:
    """The scale as a ratio; a float32 next to the ratio of the extents stands for that ratio."""
    single = np.float32(scale)
    return Fraction(places, extent) if single == np.float32(places / extent) else Fraction(float(single))


def _coordinates(extent: int, places: int, ratio: Fraction, mode: str) -> tuple[Fraction, Fraction]:
    if mode == "align_corners":
        return (Fraction(extent - 1, places - 1) if places > 1 else Fraction(0)), Fraction(0)
    if mode == "pytorch_half_pixel" and places == 1:
        return Fraction(0), Fraction(0)
    slope = 1 / ratio
    if mode == "asymmetric":
        return slope, Fraction(0)
    start = slope / 2 - Fraction(1, 2)
    if mode == "half_pixel_symmetric":
        start += Fraction(extent, 2) * (1 - Fraction(places) / (ratio * extent))
    elif mode not in COORDINATE_MODES:
        raise TypeMismatch(
            f"expected 'coordinate_transformation_mode' to be one of {', '.join(COORDINATE_MODES)}, found '{mode}'"
        )
    return slope, start
