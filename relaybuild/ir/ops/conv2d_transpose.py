"""`nn.conv2d_transpose`: the transpose of a convolution over NCHW data, with IOHW weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, Precision, TypeMismatch
from relaybuild.ir.ops._shapes import (
    NUMERIC,
    Array,
    accumulator,
    as_padding,
    as_pair,
    expect_dtype,
    expect_length,
    expect_positive,
    expect_rank,
    expect_same_dtype,
    expect_tensors,
    number,
    numbers,
    transposed_window_extent,
)
from relaybuild.ir.ops._windows import taps
from relaybuild.ir.ops.conv2d import expect_weight
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class Conv2DTransposeAttrs(Attrs):
    """`padding` (top, left, bottom, right) is cut off the result; `output_padding` is added at its end.

    `channels` and `kernel_size` repeat what the weight's shape says, and are checked against it.
    """

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1)
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    groups: int = 1
    output_padding: tuple[int, ...] = (0, 0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "strides", as_pair(self.strides))
        object.__setattr__(self, "padding", as_padding(self.padding))
        object.__setattr__(self, "output_padding", as_pair(self.output_padding))
        object.__setattr__(self, "dilation", as_pair(self.dilation))
        if self.kernel_size is not None:
            object.__setattr__(self, "kernel_size", as_pair(self.kernel_size))


def infer_type(types: Sequence[Type], attrs: Conv2DTransposeAttrs) -> Type:
    """(N, O, output rows, output columns); weights are (in, out / groups, rows, columns); the batch may be symbolic."""
    data, weight = expect_tensors(types)
    _check_attrs(attrs)
    expect_rank(data, 4, "data")
    expect_rank(weight, 4, "weight")
    expect_dtype(data, NUMERIC, "data")
    dtype = expect_same_dtype((data, weight))
    in_channels, group_out, *window = numbers(weight, "weight")
    data_channels = number(data.shape[1], "data's channels")
    if data_channels != in_channels:
        raise TypeMismatch(f"expected weight's input channels {data_channels} (data channels), found {in_channels}")
    if in_channels % attrs.groups:
        raise TypeMismatch(f"expected data channels a multiple of groups {attrs.groups}, found {in_channels}")
    expect_weight(group_out * attrs.groups, window, attrs.channels, attrs.kernel_size)
    spatial = [number(data.shape[axis], f"data's extent {'NCHW'[axis]}") for axis in (2, 3)]
    return TensorType((data.shape[0], group_out * attrs.groups, *output_extents(spatial, window, attrs)), dtype)


def _check_attrs(attrs: Conv2DTransposeAttrs) -> None:
    for name in ("strides", "dilation", "output_padding"):
        expect_length(name, getattr(attrs, name), 2)
    expect_length("padding", attrs.padding, 4)
    expect_positive("strides", attrs.strides)
    expect_positive("dilation", attrs.dilation)
    expect_positive("groups", (attrs.groups,))


def output_extents(spatial: Sequence[int], window: Sequence[int], attrs: Conv2DTransposeAttrs) -> list[int]:
    """Rows and columns of the result."""
    return [
        transposed_window_extent(
            spatial[axis],
            window[axis],
            attrs.strides[axis],
            attrs.dilation[axis],
            (attrs.padding[axis], attrs.padding[axis + 2]),
            attrs.output_padding[axis],
        )
        for axis in (0, 1)
    ]


def evaluate(values: Sequence[Array], attrs: Conv2DTransposeAttrs) -> Array:
    """Every element of the data adds its multiple of the kernel to the result."""
    work = accumulator(values[0].dtype)
    data, weight = (value.astype(work, copy=False) for value in values)
    batch, in_channels, *spatial = data.shape
    group_out, *window = weight.shape[1:]
    pixels = data.reshape(batch, attrs.groups, in_channels // attrs.groups, spatial[0] * spatial[1])
    kernels = weight.reshape(attrs.groups, in_channels // attrs.groups, -1).swapaxes(1, 2)
    columns = np.matmul(kernels, pixels).reshape(batch, attrs.groups * group_out, *window, *spatial)
    top, left = attrs.padding[:2]
    rows, cols = output_extents(spatial, window, attrs)
    full = [
        (spatial[axis] - 1) * attrs.strides[axis] + attrs.dilation[axis] * (window[axis] - 1) + 1 for axis in (0, 1)
    ]
    canvas = np.zeros((batch, attrs.groups * group_out, max(full[0], top + rows), max(full[1], left + cols)), work)
    for y, x, region in taps(window, spatial, attrs.strides, attrs.dilation):
        canvas[region] += columns[:, :, y, x]
    return canvas[:, :, top : top + rows, left : left + cols].astype(values[0].dtype)


OP = Op(
    "nn.conv2d_transpose",
    2,
    infer_type,
    evaluate,
    OpKind.ANCHOR,
    Conv2DTransposeAttrs,
    arg_names=("data", "weight"),
    precision=Precision.ALWAYS,
)
