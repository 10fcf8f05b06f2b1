"""Pooling of whole images to a fixed size: global and adaptive."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import store, unstore
from relaybuild.ir.op import Attrs, TypeMismatch
from relaybuild.ir.ops._layouts import expect_layout, image_op, logical_shape, stored_type
from relaybuild.ir.ops._shapes import (
    FLOAT,
    NUMERIC,
    Array,
    as_pair,
    expect_dtype,
    expect_length,
    expect_positive,
    expect_tensor,
    number,
    wide,
)
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class GlobalPool2DAttrs(Attrs):
    """`layout`: any order of NCHW, with channels split into blocks or not."""

    layout: str = "NCHW"


@dataclass(frozen=True)
class AdaptivePool2DAttrs(Attrs):
    """`output_size`: rows and columns of the result. `layout`: as in a global pool."""

    output_size: tuple[int, ...] = (1, 1)
    layout: str = "NCHW"

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_size", as_pair(self.output_size))


def infer_avg_type(types: Sequence[Type], attrs: GlobalPool2DAttrs) -> Type:
    """One pixel per image and channel."""
    return _pooled(types, attrs.layout, FLOAT, (1, 1))


def infer_max_type(types: Sequence[Type], attrs: GlobalPool2DAttrs) -> Type:
    """One pixel per image and channel."""
    return _pooled(types, attrs.layout, NUMERIC, (1, 1))


def infer_adaptive_type(types: Sequence[Type], attrs: AdaptivePool2DAttrs) -> Type:
    """As many rows and columns as the attributes say."""
    expect_length("output_size", attrs.output_size, 2)
    expect_positive("output_size", attrs.output_size)
    shape = logical_shape(expect_tensor(types[0], "data"), expect_layout(attrs.layout, "NCHW"), "data")
    for axis in (2, 3):
        number(shape[axis], f"data's extent {'NCHW'[axis]}")
    return _pooled(types, attrs.layout, FLOAT, attrs.output_size)


def _pooled(types: Sequence[Type], text: str, dtypes: frozenset[str], places: Sequence[int]) -> Type:
    data = expect_tensor(types[0], "data")
    layout = expect_layout(text, "NCHW")
    shape = logical_shape(data, layout, "data")
    expect_dtype(data, dtypes, "data")
    if 0 in shape[2:]:
        raise TypeMismatch("expected images of at least one pixel")
    return stored_type((*shape[:2], *places), layout, data.dtype)


def evaluate_avg(values: Sequence[Array], attrs: GlobalPool2DAttrs) -> Array:
    """The mean of each channel."""
    layout = expect_layout(attrs.layout, "NCHW")
    data = unstore(values[0], layout)
    mean = data.mean((2, 3), wide(data.dtype), keepdims=True).astype(data.dtype)
    return np.ascontiguousarray(store(mean, layout))


def evaluate_max(values: Sequence[Array], attrs: GlobalPool2DAttrs) -> Array:
    """The maximum of each channel."""
    layout = expect_layout(attrs.layout, "NCHW")
    return np.ascontiguousarray(store(unstore(values[0], layout).max((2, 3), keepdims=True), layout))


def evaluate_adaptive(values: Sequence[Array], attrs: AdaptivePool2DAttrs) -> Array:
    """The mean of each of the windows that divide the image as evenly as whole pixels allow."""
    layout = expect_layout(attrs.layout, "NCHW")
    data = unstore(values[0], layout)
    rows, columns = (adaptive_windows(data.shape[axis + 2], attrs.output_size[axis]) for axis in (0, 1))
    result = np.empty((*data.shape[:2], *attrs.output_size), data.dtype)
    for y, (top, bottom) in enumerate(rows):
        for x, (left, right) in enumerate(columns):
            result[:, :, y, x] = data[:, :, top:bottom, left:right].mean((2, 3), wide(data.dtype))
    return np.ascontiguousarray(store(result, layout))


def adaptive_windows(extent: int, places: int) -> list[tuple[int, int]]:
    """(begin, end) of each window along one axis."""
    return [(place * extent // places, -(-(place + 1) * extent // places)) for place in range(places)]


OPS = tuple(
    image_op(name, infer_type, evaluate, attrs_type)
    for name, infer_type, evaluate, attrs_type in (
        ("nn.global_avg_pool2d", infer_avg_type, evaluate_avg, GlobalPool2DAttrs),
        ("nn.global_max_pool2d", infer_max_type, evaluate_max, GlobalPool2DAttrs),
        ("nn.adaptive_avg_pool2d", infer_adaptive_type, evaluate_adaptive, AdaptivePool2DAttrs),
    )
)
