"""Weights rearranged for the host's kernels: what a kernel reads in one row of a register tile lies together.

Weights are large, and memory that was never touched is slow. So results are made in parts, by rows of their leading
axis, where the caller wants them; what a part needs besides is small. It does not know who keeps the results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, EvaluateRows, InferType, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, expect_rank, expect_tensor
from relaybuild.ir.types import TensorType, Type

BLOCK = 16


@dataclass(frozen=True)
class PackConvAttrs(Attrs):
    """`groups` as in the convolution; `kernel_layout` is OIHW, or IOHW for a transposed convolution's weight."""

    groups: int = 1
    kernel_layout: str = "OIHW"


@dataclass(frozen=True)
class PackMatMulAttrs(Attrs):
    """`transposed`: the weight is (columns, depth), as in `nn.dense`; otherwise (depth, columns)."""

    transposed: bool = True


@dataclass(frozen=True)
class PackTilesAttrs(Attrs):
    """`groups` as in the convolution; `outputs` channels of a group are in a tile."""

    groups: int = 1
    outputs: int = 1


@dataclass(frozen=True)
class ChannelSpan:
    """Which input channels a block of 16 output channels reads: `extent` of them from `start(block)`."""

    extent: int
    step: int
    group: int
    last: int

    def start(self, block: int) -> int:
        """The first channel: that of the first group in the block, but not so late that the span would not fit."""
        return min(self.step * (BLOCK * block // self.group), self.last)


def channel_span(out_channels: int, in_channels: int, groups: int) -> ChannelSpan:
    """The span of a grouped convolution: the channels of all groups that a block of 16 outputs touches.

    Within a span, channels of groups that an output does not belong to have weight zero.
    """
    outs, ins = out_channels // groups, in_channels // groups
    starts = range(0, out_channels, BLOCK)
    touched = min(groups, max((start + BLOCK - 1) // outs - start // outs + 1 for start in starts))
    if touched == groups:
        return ChannelSpan(in_channels, 0, 1, 0)
    return ChannelSpan(touched * ins, ins, outs, in_channels - touched * ins)


def conv_shape(shape: Sequence[int], attrs: PackConvAttrs) -> tuple[int, ...]:
    """[out block][in block][rows][columns][16 in][16 out] of a weight's shape."""
    out_channels, group_inputs = _conv_channels(shape, attrs)
    span = channel_span(out_channels, group_inputs * attrs.groups, attrs.groups)
    return (_blocks(out_channels), _blocks(span.extent), shape[2], shape[3], BLOCK, BLOCK)


def _conv_channels(shape: Sequence[int], attrs: PackConvAttrs) -> tuple[int, int]:
    """(output channels, input channels of one group)."""
    if attrs.kernel_layout == "IOHW":
        return shape[1] * attrs.groups, shape[0] // attrs.groups
    return shape[0], shape[1]


def _blocks(channels: int) -> int:
    return -(-channels // BLOCK)


def infer_conv(types: Sequence[Type], attrs: PackConvAttrs) -> Type:
    """The packed shape."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    return TensorType(conv_shape(weight.static_shape, attrs), weight.dtype)


def fill_conv(values: Sequence[Array], attrs: PackConvAttrs, start: int, stop: int, out: Array) -> None:
    """Blocks of output channels over the channels they read, padded with zeros."""
    weight = _by_group(values[0], attrs)
    channels = range(start * BLOCK, min(stop * BLOCK, weight.shape[0] * weight.shape[1]))
    dense = weight[0, channels.start : channels.stop] if attrs.groups == 1 else _spread_groups(weight, channels)
    _fill_blocks(dense, (0, 1), out.transpose(0, 5, 1, 4, 2, 3))


def _by_group(weight: Array, attrs: PackConvAttrs) -> Array:
    """(group, output of the group, input of the group, rows, columns)."""
    first, *rest = weight.shape
    split = weight.reshape((attrs.groups, first // attrs.groups, *rest))
    return split.swapaxes(1, 2) if attrs.kernel_layout == "IOHW" else split


def _spread_groups(weight: Array, channels: range) -> Array:
    """(output, span, rows, columns): the weights of some outputs, each at its place in its block's span."""
    groups, outs, ins = weight.shape[:3]
    span = channel_span(groups * outs, groups * ins, groups)
    dense = np.zeros((len(channels), span.extent, *weight.shape[3:]), weight.dtype)
    for row, channel in enumerate(channels):
        group, place = divmod(channel, outs)
        first = group * ins - span.start(channel // BLOCK)
        dense[row, first : first + ins] = weight[group, place]
    return dense


def _fill_blocks(dense: Array, axes: tuple[int, ...], out: Array) -> None:
    """Copy `dense` to `out`, where each of the axes is two, (block, lane); lanes beyond the extent become zero.

    The axes are in ascending order.
    """
    if any(dense.shape[axis] % BLOCK for axis in axes):
        out.fill(0)
    parts = [(dense, out)]
    for number, axis in enumerate(axes):
        parts = [part for pair in parts for part in _split_axis(*pair, axis + number)]
    for source, target in parts:
        target[...] = source


def _split_axis(dense: Array, out: Array, axis: int) -> Iterator[tuple[Array, Array]]:
    """An axis as (block, lane), with the places for it in `out`: the full blocks, then the one that is not full."""
    full, rest = divmod(dense.shape[axis], BLOCK)
    for first, count, lanes in ((0, full, BLOCK), (full, 1, rest)):
        if count and lanes:
            part = dense[_along(axis, first * BLOCK, count * lanes)]
            split = part.reshape(*part.shape[:axis], count, lanes, *part.shape[axis + 1 :])
            yield split, out[_along(axis, first, count)][_along(axis + 1, 0, lanes)]


def _along(axis: int, start: int, count: int) -> tuple[slice, ...]:
    """The index of `count` places of an axis."""
    return (*(slice(None),) * axis, slice(start, start + count))


def infer_rows(types: Sequence[Type], attrs: PackConvAttrs) -> Type:
    """[out][in block][rows][columns][16 in], of a weight without groups."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    outs, ins = _conv_channels(weight.static_shape, attrs)
    return TensorType((outs, _blocks(ins), *weight.static_shape[2:], BLOCK), weight.dtype)


def fill_rows(values: Sequence[Array], attrs: PackConvAttrs, start: int, stop: int, out: Array) -> None:
    """Each output channel's weights in blocks of 16 input channels, padded with zeros."""
    weight = values[0] if attrs.kernel_layout == "OIHW" else values[0].swapaxes(0, 1)
    _fill_blocks(weight[start:stop], (1,), out.transpose(0, 1, 4, 2, 3))


def infer_tiles(types: Sequence[Type], attrs: PackTilesAttrs) -> Type:
    """[group][tile][input][rows][columns][output of the tile], of a weight (O, I, rows, columns)."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    outs, ins, rows, columns = weight.static_shape
    per_group = outs // attrs.groups
    if attrs.outputs > per_group:
        raise TypeMismatch(f"expected tiles of at most {per_group} outputs, those of a group, found {attrs.outputs}")
    return TensorType((attrs.groups, -(-per_group // attrs.outputs), ins, rows, columns, attrs.outputs), weight.dtype)


def fill_tiles(values: Sequence[Array], attrs: PackTilesAttrs, start: int, stop: int, out: Array) -> None:
    """Tiles of the output channels of each group; where they do not divide it, the last overlaps the one before."""
    weight = values[0]
    per_group = weight.shape[0] // attrs.groups
    split = weight.reshape(attrs.groups, per_group, *weight.shape[1:])[start:stop]
    for tile in range(out.shape[1]):
        first = min(tile * attrs.outputs, per_group - attrs.outputs)
        out[:, tile] = split[:, first : first + attrs.outputs].transpose(0, 2, 3, 4, 1)


def infer_depthwise(types: Sequence[Type], attrs: Attrs) -> Type:
    """[block][rows][columns][16]."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    channels, one, rows, columns = weight.static_shape
    if one != 1:
        raise TypeMismatch(f"expected a depthwise weight (C, 1, rows, columns), found {weight}")
    return TensorType((_blocks(channels), rows, columns, BLOCK), weight.dtype)


def fill_depthwise(values: Sequence[Array], attrs: Attrs, start: int, stop: int, out: Array) -> None:
    """Blocks of 16 channels, padded with zeros."""
    _fill_blocks(values[0][start * BLOCK : stop * BLOCK, 0], (0,), out.transpose(0, 3, 1, 2))


def infer_matmul(types: Sequence[Type], attrs: PackMatMulAttrs) -> Type:
    """[column block][depth][16]."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 2, "weight")
    columns, depth = weight.static_shape if attrs.transposed else weight.static_shape[::-1]
    return TensorType((_blocks(columns), depth, BLOCK), weight.dtype)


def fill_matmul(values: Sequence[Array], attrs: PackMatMulAttrs, start: int, stop: int, out: Array) -> None:
    """Panels of 16 columns, padded with zeros."""
    weight = values[0] if attrs.transposed else values[0].T
    _fill_blocks(weight[start * BLOCK : stop * BLOCK], (0,), out.transpose(0, 2, 1))


def infer_winograd(types: Sequence[Type], attrs: Attrs) -> Type:
    """[out block][36][in block][16 in][16 out]."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    outs, ins, rows, columns = weight.static_shape
    if (rows, columns) != (3, 3):
        raise TypeMismatch(f"expected a weight of 3 rows and columns, found {weight}")
    return TensorType((_blocks(outs), 36, _blocks(ins), BLOCK, BLOCK), weight.dtype)


_INPUTS_AT_ONCE = 64
"""Input channels that Winograd's transform takes at a time, for which all it needs stays in the second-level cache."""


def fill_winograd(values: Sequence[Array], attrs: Attrs, start: int, stop: int, out: Array) -> None:
    """G w G^T of each pair of channels, in blocks padded with zeros; G is that of F(4x4, 3x3).

    Computed in double precision, operation by operation, so that every machine gets the same bits: a matrix product
    adds in the order that suits the processor.
    """
    weight = values[0]
    outs, ins = weight.shape[:2]
    filters = weight.reshape(outs, ins, 9).transpose(2, 1, 0)
    for row, block in enumerate(range(start, stop)):
        lanes = min(BLOCK, outs - block * BLOCK)
        points = out[row].reshape(36, -1, BLOCK)
        for first in range(0, points.shape[1], _INPUTS_AT_ONCE):
            target = points[:, first : first + _INPUTS_AT_ONCE]
            part = filters[:, first : first + _INPUTS_AT_ONCE, block * BLOCK : block * BLOCK + lanes]
            taps = np.zeros((9, *target.shape[1:]), np.float64)
            taps[:, : part.shape[1], :lanes] = part
            square = taps.reshape(3, 3, *taps.shape[1:])
            tall = np.stack(_six_of_three(square[0], square[1], square[2]))
            for column, values_of_column in enumerate(_six_of_three(tall[:, 0], tall[:, 1], tall[:, 2])):
                target[column::6] = values_of_column


def _six_of_three(first: Array, second: Array, third: Array) -> tuple[Array, ...]:
    """G (first, second, third), after Lavin and Gray (2015), for the points 0, 1, -1, 2, -2."""
    ends, middle = (first + third) / 6, second / 6
    far, slope = first / 24 + third / 6, second / 12
    return first / 4, -(ends + middle), middle - ends, far + slope, far - slope, third


def _packing(name: str, infer: InferType, fill: EvaluateRows, attrs_type: type[Attrs] = Attrs) -> Op:
    """An operator on one weight, by its type rule and the function that makes rows of its result."""

    def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
        kind = expect_tensor(infer([TensorType(values[0].shape, values[0].dtype.name)], attrs))
        out = np.empty(kind.static_shape, kind.dtype)
        fill(values, attrs, 0, out.shape[0], out)
        return out

    return Op(name, 1, infer, evaluate, OpKind.OPAQUE, attrs_type, arg_names=("weight",), evaluate_rows=fill)


OPS = (
    _packing("contrib.pack_conv2d", infer_conv, fill_conv, PackConvAttrs),
    _packing("contrib.pack_rows", infer_rows, fill_rows, PackConvAttrs),
    _packing("contrib.pack_tiles", infer_tiles, fill_tiles, PackTilesAttrs),
    _packing("contrib.pack_depthwise", infer_depthwise, fill_depthwise),
    _packing("contrib.pack_winograd", infer_winograd, fill_winograd),
    _packing("contrib.pack_matmul", infer_matmul, fill_matmul, PackMatMulAttrs),
)
