"""`image.resize2d`: images resampled by nearest, linear or cubic interpolation, as ONNX defines them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, Precision, TypeMismatch
from relaybuild.ir.ops._layouts import expect_layout, follow_images
from relaybuild.ir.ops._resample import COORDINATE_MODES, ROUNDINGS, Axis, resized_axis
from relaybuild.ir.ops._shapes import (
    NUMERIC,
    Array,
    as_pair,
    expect_dtype,
    expect_length,
    expect_positive,
    expect_rank,
    expect_tensor,
    number,
)
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type

METHODS = ("nearest_neighbor", "linear", "cubic")


@dataclass(frozen=True)
class Resize2DAttrs(Attrs):
    """`size`: rows and columns of the result. `layout`: any order of NCHW, with channels split
    into blocks or not.

    `scales`: what coordinates are divided by, the ratio of the sizes unless given. `rounding_method` is for
    nearest_neighbor, `cubic_alpha` for cubic; with `cubic_exclude` weights outside the image are 0 and the others
    scaled to a sum of 1. `extrapolation_value` has no effect in the coordinate modes supported.
    """

    size: tuple[int, ...]
    layout: str = "NCHW"
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = "round"
    cubic_alpha: float = -0.75
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0
    scales: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", as_pair(self.size))
        object.__setattr__(self, "scales", tuple(self.scales))


def infer_type(types: Sequence[Type], attrs: Resize2DAttrs) -> Type:
    """The data's shape with `size` as rows and columns; batch and channels may be symbolic."""
    data = expect_tensor(types[0])
    layout = expect_layout(attrs.layout, "NCHW")
    expect_rank(data, len(layout.axes), "data")
    expect_dtype(data, NUMERIC, "data")
    expect_length("size", attrs.size, 2)
    expect_positive("size", attrs.size)
    if attrs.scales:
        expect_length("scales", attrs.scales, 2)
    _expect_one_of("method", attrs.method, METHODS)
    _expect_one_of("rounding_method", attrs.rounding_method, ROUNDINGS)
    _expect_one_of("coordinate_transformation_mode", attrs.coordinate_transformation_mode, COORDINATE_MODES)
    if layout.is_split(2) or layout.is_split(3):
        raise TypeMismatch(f"expected rows and columns without blocks in 'layout', found '{attrs.layout}'")
    shape = list(data.shape)
    for axis, places in zip(_spatial_axes(attrs), attrs.size):
        if number(shape[axis], f"the extent of axis {axis}") < 1:
            raise TypeMismatch("expected images of at least one pixel")
        shape[axis] = places
    return TensorType(tuple(shape), data.dtype)


def _expect_one_of(name: str, found: str, wanted: Sequence[str]) -> None:
    if found not in wanted:
        raise TypeMismatch(f"expected '{name}' to be one of {', '.join(wanted)}, found '{found}'")


def _spatial_axes(attrs: Resize2DAttrs) -> tuple[int, int]:
    layout = expect_layout(attrs.layout, "NCHW")
    return layout.outer(2), layout.outer(3)


def resized_axes(shape: Sequence[Extent], attrs: Resize2DAttrs) -> tuple[Axis, Axis]:
    """How rows and columns are resampled."""
    scales: Sequence[float | None] = attrs.scales or (None, None)
    mode = attrs.coordinate_transformation_mode
    rows, columns = (
        resized_axis(number(shape[axis], f"the extent of axis {axis}"), places, scale, mode)
        for axis, places, scale in zip(_spatial_axes(attrs), attrs.size, scales)
    )
    return rows, columns


def evaluate(values: Sequence[Array], attrs: Resize2DAttrs) -> Array:
    """The images resampled, first along columns, then along rows."""
    data = values[0]
    result = data
    for position, axis in zip(_spatial_axes(attrs), resized_axes(data.shape, attrs)):
        if attrs.method == "nearest_neighbor":
            nearest = axis.nearest(attrs.rounding_method)
            points = [axis.clamp(nearest.floor(place)) for place in range(axis.places)]
            result = np.take(result, points, position)
        else:
            matrix = _weight_matrix(axis, attrs)
            result = np.moveaxis(np.matmul(np.moveaxis(result, position, -1), matrix.T), -1, position)
    return np.ascontiguousarray(result).astype(data.dtype, copy=False)


def _weight_matrix(axis: Axis, attrs: Resize2DAttrs) -> Array:
    matrix = np.zeros((axis.places, axis.extent))
    for place in range(axis.places):
        base, fraction = axis.floor(place), axis.fraction(place)
        if attrs.method == "linear":
            weights, points = [1 - fraction, fraction], [base, base + 1]
        else:
            weights = [_cubic_weight(abs(fraction - tap), attrs.cubic_alpha) for tap in range(-1, 3)]
            points = [base + tap for tap in range(-1, 3)]
        if attrs.method == "cubic" and attrs.cubic_exclude:
            inside = [0 <= point < axis.extent for point in points]
            total = sum(weight for weight, keep in zip(weights, inside) if keep)
            weights = [weight / total if keep else 0.0 for weight, keep in zip(weights, inside)]
        for point, weight in zip(points, weights):
            matrix[place, axis.clamp(point)] += weight
    return matrix


def _cubic_weight(distance: float, alpha: float) -> float:
    c3, c2, c1, c0 = _cubic_coefficients(distance > 1, alpha)
    return ((c3 * distance + c2) * distance + c1) * distance + c0


def _cubic_coefficients(outer: bool, alpha: float) -> tuple[float, float, float, float]:
    if outer:
        return alpha, -5 * alpha, 8 * alpha, -4 * alpha
    return alpha + 2, -(alpha + 3), 0.0, 1.0


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """One load (nearest), or a weighted sum of 4 (linear) or 16 (cubic)."""
    attrs: Resize2DAttrs = call.attrs
    rows, columns = _spatial_axes(attrs)
    row_axis, column_axis = resized_axes(call.arg_types[0].shape, attrs)
    dtype = call.out_type.dtype

    def load(row: Index, column: Index) -> Scalar:
        source = list(index)
        source[rows], source[columns] = row, column
        return args[0](source)

    if attrs.method == "nearest_neighbor":
        row = _point(s, row_axis.nearest(attrs.rounding_method), index[rows], 0)
        return load(row, _point(s, column_axis.nearest(attrs.rounding_method), index[columns], 0))
    work = "float64" if dtype == "float64" else "float32"
    row_taps = _taps(s, row_axis, index[rows], attrs, work)
    column_taps = _taps(s, column_axis, index[columns], attrs, work)
    lines = [
        (weight, _weighted_sum(s, [(w, s.cast(load(row, column), work)) for w, column in column_taps]))
        for weight, row in row_taps
    ]
    return s.cast(_weighted_sum(s, lines), dtype)


def _weighted_sum(s: ScalarAlgebra, terms: Sequence[tuple[Scalar | None, Scalar]]) -> Scalar:
    products = [value if weight is None else s.binary("mul", weight, value) for weight, value in terms]
    total = products[0]
    for product in products[1:]:
        total = s.binary("add", total, product)
    return total


def _taps(
    s: ScalarAlgebra, axis: Axis, place: Index, attrs: Resize2DAttrs, dtype: str
) -> list[tuple[Scalar | None, Index]]:
    """(weight, point) of each element that takes part along one axis; a weight of None is 1."""
    if axis.step % axis.denominator == 0 and axis.offset % axis.denominator == 0:
        return [(None, _point(s, axis, place, 0))]
    fraction = _fraction(s, axis, place, dtype)
    if attrs.method == "linear":
        rest = s.binary("sub", s.const(1.0, dtype), fraction)
        return [(rest, _point(s, axis, place, 0)), (fraction, _point(s, axis, place, 1))]
    weights = [_cubic_scalar(s, fraction, tap, attrs.cubic_alpha, dtype) for tap in range(-1, 3)]
    if attrs.cubic_exclude:
        weights = _excluded(s, axis, place, weights, dtype)
    return [(weight, _point(s, axis, place, tap)) for weight, tap in zip(weights, range(-1, 3))]


def _numerator(axis: Axis, place: Index) -> tuple[Index, int]:
    """(n, lift): the coordinate's floor is n // denominator - lift, n never negative."""
    lift = max(0, -(axis.offset // axis.denominator))
    offset = axis.offset + lift * axis.denominator
    scaled = place * axis.step if axis.step != 1 else place
    return (scaled + offset if offset else scaled), lift


def _base(axis: Axis, place: Index) -> tuple[Index, int]:
    numerator, lift = _numerator(axis, place)
    return (numerator // axis.denominator if axis.denominator != 1 else numerator), lift


def _point(s: ScalarAlgebra, axis: Axis, place: Index, tap: int) -> Index:
    """The point `tap` behind the coordinate's floor, limited to the axis where it can lie outside."""
    base, lift = _base(axis, place)
    shift = tap - lift
    point = base + shift if shift else base
    low, high = axis.floor(0) + tap, axis.floor(axis.places - 1) + tap
    if low >= 0 and high < axis.extent:
        return point
    value: Any = s.index_value(point, "int64")
    if low < 0:
        value = s.binary("max", value, s.const(0, "int64"))
    if high >= axis.extent:
        value = s.binary("min", value, s.const(axis.extent - 1, "int64"))
    return s.to_index(value)


def _fraction(s: ScalarAlgebra, axis: Axis, place: Index, dtype: str) -> Scalar:
    numerator, _ = _numerator(axis, place)
    remainder = s.index_value(numerator % axis.denominator, dtype)
    return s.binary("mul", remainder, s.const(1 / axis.denominator, dtype))


def _cubic_scalar(s: ScalarAlgebra, fraction: Scalar, tap: int, alpha: float, dtype: str) -> Scalar:
    distance = s.unary("abs", s.binary("sub", fraction, s.const(float(tap), dtype)))
    result = s.const(0.0, dtype)
    for coefficient in _cubic_coefficients(tap in (-1, 2), alpha):
        result = s.binary("add", s.binary("mul", result, distance), s.const(coefficient, dtype))
    return result


def _excluded(s: ScalarAlgebra, axis: Axis, place: Index, weights: Sequence[Scalar], dtype: str) -> list[Scalar]:
    base, lift = _base(axis, place)
    kept = [
        s.select(s.in_range(base, lift - tap, axis.extent + lift - tap), weight, s.const(0.0, dtype))
        for weight, tap in zip(weights, range(-1, 3))
    ]
    total = _weighted_sum(s, [(None, weight) for weight in kept])
    return [s.binary("div", weight, total) for weight in kept]


OP = Op(
    "image.resize2d",
    1,
    infer_type,
    evaluate,
    OpKind.INJECTIVE,
    Resize2DAttrs,
    compute,
    ("data",),
    reads_once=False,
    follow_layout=follow_images,
    precision=Precision.NEVER,
)
