"""`nn.conv2d`: convolution over two spatial axes, strided, padded, dilated, grouped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.layout import Layout, LayoutAttrs, store, unstore
from relaybuild.ir.op import Attrs, Op, OpKind, Precision, TypeMismatch
from relaybuild.ir.ops._layouts import as_plain_call, expect_layout, logical_shape, stored_type
from relaybuild.ir.ops._shapes import (
    NUMERIC,
    Array,
    accumulator,
    as_padding,
    as_pair,
    expect_dtype,
    expect_length,
    expect_positive,
    expect_same_dtype,
    expect_tensors,
    number,
    window_extent,
)
from relaybuild.ir.ops._windows import pad_spatial, taps
from relaybuild.ir.types import DTYPES, Extent, Type


@dataclass(frozen=True)
class Conv2DAttrs(Attrs):
    """`padding`: top, left, bottom, right. Layouts name the axes: any order of NCHW and OIHW (I is channels per group),
    with channels split into blocks or not; `out_layout` is the result's, "" for the data's.

    `out_dtype`: what is accumulated and returned, "" for the data's. `channels` and `kernel_size` repeat what the
    weight's shape says, and are checked against it.
    """

    strides: tuple[int, ...] = (1, 1)
    padding: tuple[int, ...] = (0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1)
    groups: int = 1
    channels: int | None = None
    kernel_size: tuple[int, ...] | None = None
    data_layout: str = "NCHW"
    kernel_layout: str = "OIHW"
    out_layout: str = ""
    out_dtype: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "strides", as_pair(self.strides))
        object.__setattr__(self, "padding", as_padding(self.padding))
        object.__setattr__(self, "dilation", as_pair(self.dilation))
        if self.kernel_size is not None:
            object.__setattr__(self, "kernel_size", as_pair(self.kernel_size))


def infer_type(types: Sequence[Type], attrs: Conv2DAttrs) -> Type:
    """(N, O, output rows, output columns) in the data's layout; the batch may be symbolic."""
    data, weight = expect_tensors(types)
    _check_attrs(attrs)
    batch, in_channels, *spatial = logical_shape(data, expect_layout(attrs.data_layout, "NCHW"), "data")
    weight_shape = logical_shape(weight, expect_layout(attrs.kernel_layout, "OIHW"), "weight")
    expect_dtype(data, NUMERIC, "data")
    expect_same_dtype((data, weight))
    out_channels, group_channels, *window = (number(extent, "an extent of weight") for extent in weight_shape)
    expect_groups(number(in_channels, "data's channels"), group_channels, out_channels, attrs.groups)
    expect_weight(out_channels, window, attrs.channels, attrs.kernel_size)
    places = [
        window_extent(
            number(spatial[axis], f"data's extent {'HW'[axis]}"),
            window[axis],
            attrs.strides[axis],
            attrs.dilation[axis],
            (attrs.padding[axis], attrs.padding[axis + 2]),
        )
        for axis in (0, 1)
    ]
    found: list[Extent] = [batch, out_channels, *places]
    return stored_type(found, _out_layout(attrs), attrs.out_dtype or data.dtype)


def _check_attrs(attrs: Conv2DAttrs) -> None:
    expect_length("strides", attrs.strides, 2)
    expect_length("dilation", attrs.dilation, 2)
    expect_length("padding", attrs.padding, 4)
    expect_positive("strides", attrs.strides)
    expect_positive("dilation", attrs.dilation)
    expect_positive("groups", (attrs.groups,))
    if attrs.out_dtype and attrs.out_dtype not in DTYPES:
        raise TypeMismatch(f"expected 'out_dtype' to be one of {', '.join(DTYPES)}, found '{attrs.out_dtype}'")


def layout_axes(layout: str, standard: str) -> list[int]:
    """Where each axis of the standard layout stands in a layout without blocks."""
    if sorted(layout) != sorted(standard):
        raise TypeMismatch(f"expected a layout out of the letters {standard}, found '{layout}'")
    return [layout.index(letter) for letter in standard]


def _out_layout(attrs: Conv2DAttrs) -> Layout:
    return expect_layout(attrs.out_layout or attrs.data_layout, "NCHW")


def expect_groups(in_channels: int, group_channels: int, out_channels: int, groups: int) -> None:
    """Raise unless the weight's channels fit the data's and the number of groups."""
    if in_channels % groups or in_channels // groups != group_channels:
        wanted = f"{in_channels // groups} " if in_channels % groups == 0 else ""
        raise TypeMismatch(
            f"expected weight's input channels {wanted}(data channels {in_channels} / groups {groups}), "
            f"found {group_channels}"
        )
    if out_channels % groups:
        raise TypeMismatch(f"expected weight's output channels a multiple of groups {groups}, found {out_channels}")


def expect_weight(
    out_channels: int, window: Sequence[int], channels: int | None, kernel_size: Sequence[int] | None
) -> None:
    """Raise unless the weight is what the attributes `channels` and `kernel_size` say, where they are given."""
    if channels is not None and channels != out_channels:
        raise TypeMismatch(f"expected weight's output channels {channels} ('channels'), found {out_channels}")
    if kernel_size is not None and tuple(kernel_size) != tuple(window):
        wanted, found = ("x".join(map(str, extents)) for extents in (kernel_size, window))
        raise TypeMismatch(f"expected a weight over {wanted} places ('kernel_size'), found {found}")


def evaluate(values: Sequence[Array], attrs: Conv2DAttrs) -> Array:
    """The convolution as one matrix product per image and group."""
    data = unstore(values[0], expect_layout(attrs.data_layout, "NCHW"))
    weight = unstore(values[1], expect_layout(attrs.kernel_layout, "OIHW"))
    out_dtype = np.dtype(attrs.out_dtype or data.dtype)
    work = accumulator(out_dtype)
    result = convolve(data.astype(work, copy=False), weight.astype(work, copy=False), attrs)
    return np.ascontiguousarray(store(result, _out_layout(attrs))).astype(out_dtype, copy=False)


def convolve(data: Array, weight: Array, attrs: Conv2DAttrs) -> Array:
    """NCHW data and OIHW weights of one dtype to an NCHW result."""
    out_channels, group_channels, *window = weight.shape
    padded = pad_spatial(data, attrs.padding, 0)
    places = [
        (padded.shape[axis + 2] - attrs.dilation[axis] * (window[axis] - 1) - 1) // attrs.strides[axis] + 1
        for axis in (0, 1)
    ]
    columns = np.empty((*data.shape[:2], *window, *places), data.dtype)
    for y, x, region in taps(window, places, attrs.strides, attrs.dilation):
        columns[:, :, y, x] = padded[region]
    rows = group_channels * window[0] * window[1]
    matrix = columns.reshape(data.shape[0], attrs.groups, rows, places[0] * places[1])
    kernels = weight.reshape(attrs.groups, out_channels // attrs.groups, rows)
    return np.asarray(np.matmul(kernels, matrix).reshape(data.shape[0], out_channels, *places))


def decompose(call: Call) -> Expr:
    """The convolution over NCHW data and an OIHW weight, between changes of layout."""
    return as_plain_call(call, ("NCHW", "OIHW"))


OP = Op(
    "nn.conv2d",
    2,
    infer_type,
    evaluate,
    OpKind.ANCHOR,
    Conv2DAttrs,
    arg_names=("data", "weight"),
    layout_attrs=LayoutAttrs(("data_layout", "kernel_layout"), "out_layout"),
    precision=Precision.ALWAYS,
    decompose=decompose,
)
