"""Pooling of whole images of NCHW data to a fixed size: global and adaptive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import (
    FLOAT,
    NUMERIC,
    Array,
    as_pair,
    expect_dtype,
    expect_length,
    expect_positive,
    expect_rank,
    expect_tensor,
    number,
    wide,
)
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class AdaptivePool2DAttrs(Attrs):
    """`output_size`: rows and columns of the result."""

    output_size: tuple[int, ...] = (1, 1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "output_size", as_pair(self.output_size))


def infer_avg_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """(N, C, 1, 1)."""
    data = _expect_images(types, FLOAT)
    return TensorType((*data.shape[:2], 1, 1), data.dtype)


def infer_max_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """(N, C, 1, 1)."""
    data = _expect_images(types, NUMERIC)
    return TensorType((*data.shape[:2], 1, 1), data.dtype)


def infer_adaptive_type(types: Sequence[Type], attrs: AdaptivePool2DAttrs) -> Type:
    """(N, C, output rows, output columns)."""
    data = _expect_images(types, FLOAT)
    expect_length("output_size", attrs.output_size, 2)
    expect_positive("output_size", attrs.output_size)
    for axis in (2, 3):
        number(data.shape[axis], f"data's extent {'NCHW'[axis]}")
    return TensorType((*data.shape[:2], *attrs.output_size), data.dtype)


def _expect_images(types: Sequence[Type], dtypes: frozenset[str]) -> TensorType:
    data = expect_tensor(types[0], "data")
    expect_rank(data, 4, "data")
    expect_dtype(data, dtypes, "data")
    if 0 in data.shape[2:]:
        raise TypeMismatch("expected images of at least one pixel")
    return data


def evaluate_avg(values: Sequence[Array], attrs: Attrs) -> Array:
    """The mean of each channel."""
    data = values[0]
    return np.asarray(data.mean((2, 3), wide(data.dtype), keepdims=True).astype(data.dtype))


def evaluate_max(values: Sequence[Array], attrs: Attrs) -> Array:
    """The maximum of each channel."""
    return np.asarray(values[0].max((2, 3), keepdims=True))


def evaluate_adaptive(values: Sequence[Array], attrs: AdaptivePool2DAttrs) -> Array:
    """The mean of each of the windows that divide the image as evenly as whole pixels allow."""
    data = values[0]
    rows, columns = (adaptive_windows(data.shape[axis + 2], attrs.output_size[axis]) for axis in (0, 1))
    result = np.empty((*data.shape[:2], *attrs.output_size), data.dtype)
    for y, (top, bottom) in enumerate(rows):
        for x, (left, right) in enumerate(columns):
            result[:, :, y, x] = data[:, :, top:bottom, left:right].mean((2, 3), wide(data.dtype))
    return result


def adaptive_windows(extent: int, places: int) -> list[tuple[int, int]]:
    """(begin, end) of each window along one axis."""
    return [(place * extent // places, -(-(place + 1) * extent // places)) for place in range(places)]


OPS = (
    Op("nn.global_avg_pool2d", 1, infer_avg_type, evaluate_avg, OpKind.ANCHOR, arg_names=("data",)),
    Op("nn.global_max_pool2d", 1, infer_max_type, evaluate_max, OpKind.ANCHOR, arg_names=("data",)),
    Op(
        "nn.adaptive_avg_pool2d",
        1,
        infer_adaptive_type,
        evaluate_adaptive,
        OpKind.ANCHOR,
        AdaptivePool2DAttrs,
        arg_names=("data",),
    ),
)
