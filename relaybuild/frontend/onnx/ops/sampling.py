"""Sampling at computed places: GridSample, by rows of channels taken for each tap of a place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_MODES = {"bilinear": "linear", "bicubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")
_CUBIC = -0.75


@converter("GridSample", since=16)
def grid_sample(node: Node) -> Expr:
    """(batch, channels, *extents) at places of (batch, *shape, axes), each from -1 to 1 and the last axis first."""
    shape, places = node.shape(0), node.shape(1)
    extents, batch, channels = shape[2:], shape[0], shape[1]
    if len(places) != len(shape) or places[0] != batch or places[-1] != len(extents):
        raise node.fail(f"the grid has shape {places}, which does not go with data of shape {shape}")
    count = math.prod(places[1:-1])
    grid = node.reshape(node.get(1), (batch * count, len(extents)))
    columns = [node.reshape(column, (batch * count,)) for column in node.parts(grid, (1,) * len(extents), 1)]
    axes = [_taps(node, column, extent) for column, extent in zip(columns[::-1], extents)]

    pixels = math.prod(extents)
    rows = node.transpose(node.get(0), (0, *range(2, len(shape)), 1))
    rows = node.reshape(rows, (batch * pixels, channels))
    firsts = node.const([image * pixels for image in range(batch) for _ in range(count)], "int64")
    total: Expr | None = None
    for taps in itertools.product(*axes):
        place: Expr = firsts
        for tap, stride in zip(taps, _strides(extents)):
            place = node.call("add", place, node.call("multiply", tap.index, node.const(stride, "int64")))
        taken = node.call("take", rows, place, axis=0)
        weights = [tap.weight for tap in taps if tap.weight is not None]
        for weight in weights:
            taken = node.call("multiply", taken, node.expand_dims(node.cast(weight, node.dtype(0)), 1))
        total = taken if total is None else node.call("add", total, taken)
    assert total is not None
    back = (0, len(shape) - 1, *range(1, len(shape) - 1))
    return node.transpose(node.reshape(total, (*places[:-1], channels)), back)


@dataclass(frozen=True)
class _Tap:
    """Positions along an axis that are within it, and what they count; None: wholly."""

    index: Expr
    weight: Expr | None


def _strides(extents: Sequence[int]) -> list[int]:
    return [math.prod(extents[axis + 1 :]) for axis in range(len(extents))]


def _taps(node: Node, column: Expr, extent: int) -> list[_Tap]:
    """What is read along one axis, for each place."""
    mode = node.str_attr("mode", "bilinear" if node.opset < 20 else "linear")
    mode, padding = _MODES.get(mode, mode), node.str_attr("padding_mode", "zeros")
    if mode not in ("linear", "nearest", "cubic") or padding not in _PADDINGS:
        raise node.fail(f"mode is '{mode}' and padding_mode '{padding}'")
    axis = _Axis(node, extent, padding, node.flag("align_corners"))
    place = axis.place_of(column)
    if mode == "nearest":
        return [axis.tap(axis.bounded(node.call("round", place)), None)]
    if mode == "linear":
        place = axis.bounded(place)
    base = node.call("floor", place)
    fraction = node.call("subtract", place, base)
    if mode == "linear":
        return [axis.tap(base, axis.one_minus(fraction)), axis.tap(axis.plus(base, 1), fraction)]
    return [axis.tap(axis.plus(base, at - 1), _cubic(axis, fraction, at)) for at in range(4)]


@dataclass(frozen=True)
class _Axis:
    """An axis of the data, and what lies beyond its ends."""

    node: Node
    extent: int
    padding: str
    aligns_corners: bool

    def place_of(self, column: Expr) -> Expr:
        """Positions, in elements, of numbers from -1 to 1. No number is none of them, and is taken as the first."""
        number = self.call("where", self.call("isnan", column), self.like(-1, column), column)
        if self.aligns_corners:
            return self.times(self.plus(number, 1), (self.extent - 1) / 2)
        return self.times(self.plus(self.times(self.plus(number, 1), self.extent), -1), 0.5)

    def bounded(self, place: Expr) -> Expr:
        """Positions on the axis itself where those beyond it stand for such ones."""
        if self.padding == "border":
            return self.call("clip", place, a_min=0.0, a_max=float(self.extent - 1))
        return self.reflected(place) if self.padding == "reflection" else place

    def reflected(self, place: Expr) -> Expr:
        """Positions as mirrors at both ends show them, as often as they do."""
        low = 0.0 if self.aligns_corners else -0.5
        width = self.extent - 1.0 if self.aligns_corners else float(self.extent)
        if not width:
            return self.times(place, 0.0)
        distance = self.call("abs", self.plus(place, -low))
        rest = self.call("floor_mod", distance, self.like(2 * width, place))
        return self.plus(self.call("minimum", rest, self.plus(self.times(rest, -1), 2 * width)), low)

    def tap(self, place: Expr, weight: Expr | None) -> _Tap:
        """What is read at whole positions, and with which weight."""
        shown = self.reflected(place) if self.padding == "reflection" else place
        last = float(self.extent - 1)
        within = self.call("clip", shown, a_min=0.0, a_max=last)
        if self.padding == "zeros":
            is_inside = self.node.cast(self.call("equal", within, place), place.tensor_type.dtype)
            weight = is_inside if weight is None else self.call("multiply", weight, is_inside)
        return _Tap(self.node.cast(within, "int64"), weight)

    def one_minus(self, number: Expr) -> Expr:
        return self.plus(self.times(number, -1), 1)

    def plus(self, number: Expr, other: float) -> Expr:
        return self.call("add", number, self.like(other, number))

    def times(self, number: Expr, factor: float) -> Expr:
        return self.call("multiply", number, self.like(factor, number))

    def like(self, value: float, number: Expr) -> Expr:
        return self.node.like(value, number)

    @property
    def call(self) -> Callable[..., Expr]:
        return self.node.call


def _cubic(axis: _Axis, fraction: Expr, at: int) -> Expr:
    """The weight of tap `at` of four, by Keys' kernel with a = -0.75, as a polynomial of the distance."""
    distance = (axis.plus(fraction, 1), fraction, axis.one_minus(fraction), axis.plus(axis.times(fraction, -1), 2))[at]
    a = _CUBIC
    coefficients = (a + 2, -(a + 3), 0.0, 1.0) if at in (1, 2) else (a, -5 * a, 8 * a, -4 * a)
    result = axis.times(distance, coefficients[0])
    for coefficient in coefficients[1:-1]:
        result = axis.call("multiply", axis.plus(result, coefficient), distance)
    return axis.plus(result, coefficients[-1])
