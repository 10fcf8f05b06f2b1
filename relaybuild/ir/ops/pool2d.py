"""Pooling over the two spatial axes of images: `nn.max_pool2d`, `nn.avg_pool2d`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import store, unstore
from relaybuild.ir.op import Attrs
from relaybuild.ir.ops._layouts import expect_layout, image_op, logical_shape, stored_type
from relaybuild.ir.ops._shapes import (
    FLOAT,
    NUMERIC,
    Array,
    accumulator,
    as_padding,
    as_pair,
    expect_dtype,
    expect_length,
    expect_positive,
    expect_tensor,
    is_float,
    number,
    window_extent,
)
from relaybuild.ir.ops._windows import overhang, pad_spatial, taps
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class MaxPool2DAttrs(Attrs):
    """`padding`: top, left, bottom, right; it never wins. `ceil_mode` keeps a last, incomplete window.

    `layout`: any order of NCHW, with channels split into blocks or not.
    """

    pool_size: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    layout: str = "NCHW"
    ceil_mode: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "pool_size", as_pair(self.pool_size))
        object.__setattr__(self, "strides", as_pair(self.strides))
        object.__setattr__(self, "padding", as_padding(self.padding))
        object.__setattr__(self, "dilation", as_pair(self.dilation))


@dataclass(frozen=True)
class AvgPool2DAttrs(MaxPool2DAttrs):
    """`count_include_pad`: whether padding counts in the divisor (what lies beyond it never does)."""

    count_include_pad: bool = False


def infer_max_type(types: Sequence[Type], attrs: MaxPool2DAttrs) -> Type:
    """(N, C, output rows, output columns); batch and channels may be symbolic."""
    return _infer(types, attrs, NUMERIC)


def infer_avg_type(types: Sequence[Type], attrs: AvgPool2DAttrs) -> Type:
    """(N, C, output rows, output columns); batch and channels may be symbolic."""
    return _infer(types, attrs, FLOAT)


def _infer(types: Sequence[Type], attrs: MaxPool2DAttrs, dtypes: frozenset[str]) -> Type:
    data = expect_tensor(types[0], "data")
    layout = expect_layout(attrs.layout, "NCHW")
    shape = logical_shape(data, layout, "data")
    expect_dtype(data, dtypes, "data")
    for name in ("pool_size", "strides", "dilation"):
        expect_length(name, getattr(attrs, name), 2)
        expect_positive(name, getattr(attrs, name))
    expect_length("padding", attrs.padding, 4)
    spatial = [number(shape[axis], f"data's extent {'NCHW'[axis]}") for axis in (2, 3)]
    return stored_type((*shape[:2], *output_extents(spatial, attrs)), layout, data.dtype)


def output_extents(spatial: Sequence[int], attrs: MaxPool2DAttrs) -> list[int]:
    """Rows and columns of the result."""
    return [
        window_extent(
            spatial[axis],
            attrs.pool_size[axis],
            attrs.strides[axis],
            attrs.dilation[axis],
            (attrs.padding[axis], attrs.padding[axis + 2]),
            attrs.ceil_mode,
        )
        for axis in (0, 1)
    ]


def evaluate_max(values: Sequence[Array], attrs: MaxPool2DAttrs) -> Array:
    """The maximum of each window."""
    layout = expect_layout(attrs.layout, "NCHW")
    data = unstore(values[0], layout)
    lowest = -np.inf if is_float(data.dtype) else int(np.iinfo(data.dtype).min)
    padded, places = _padded(data, attrs, lowest)
    result = np.full((*data.shape[:2], *places), lowest, data.dtype)
    for _, _, region in taps(attrs.pool_size, places, attrs.strides, attrs.dilation):
        np.maximum(result, padded[region], out=result)
    return np.ascontiguousarray(store(result, layout))


def evaluate_avg(values: Sequence[Array], attrs: AvgPool2DAttrs) -> Array:
    """The mean of each window."""
    layout = expect_layout(attrs.layout, "NCHW")
    data = unstore(values[0], layout).astype(accumulator(values[0].dtype), copy=False)
    padded, places = _padded(data, attrs, 0)
    total = np.zeros((*data.shape[:2], *places), data.dtype)
    for _, _, region in taps(attrs.pool_size, places, attrs.strides, attrs.dilation):
        total += padded[region]
    with np.errstate(invalid="ignore"):
        mean = np.asarray(total / divisors(data.shape[2:], attrs)).astype(values[0].dtype, copy=False)
    return np.ascontiguousarray(store(mean, layout))


def divisors(spatial: Sequence[int], attrs: AvgPool2DAttrs) -> Array:
    """How many elements each window averages: (output rows, output columns) in float32."""
    counted, places = _counted(spatial, attrs), output_extents(spatial, attrs)
    count = np.zeros(places, counted.dtype)
    for _, _, region in taps(attrs.pool_size, places, attrs.strides, attrs.dilation):
        count += counted[region]
    return count


def _counted(spatial: Sequence[int], attrs: AvgPool2DAttrs) -> Array:
    """1 where an element of the padded images counts in the divisor, 0 elsewhere."""
    places = output_extents(spatial, attrs)
    beyond = overhang(spatial, attrs.pool_size, places, attrs.strides, attrs.dilation, attrs.padding)
    padded = pad_spatial(np.ones(spatial, np.float32), attrs.padding, int(attrs.count_include_pad))
    return pad_spatial(padded, (0, 0, 0, 0), 0, beyond)


def _padded(data: Array, attrs: MaxPool2DAttrs, value: float | int) -> tuple[Array, list[int]]:
    spatial = data.shape[-2:]
    places = output_extents(spatial, attrs)
    beyond = overhang(spatial, attrs.pool_size, places, attrs.strides, attrs.dilation, attrs.padding)
    return pad_spatial(data, attrs.padding, value, beyond), places


OPS = tuple(
    image_op(name, infer_type, evaluate, attrs_type)
    for name, infer_type, evaluate, attrs_type in (
        ("nn.max_pool2d", infer_max_type, evaluate_max, MaxPool2DAttrs),
        ("nn.avg_pool2d", infer_avg_type, evaluate_avg, AvgPool2DAttrs),
    )
)
