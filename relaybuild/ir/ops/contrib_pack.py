"""Weights rearranged for the host's kernels: what a kernel reads in one row of a register tile lies together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
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


def evaluate_conv(values: Sequence[Array], attrs: PackConvAttrs) -> Array:
    """Blocks of output channels over the channels they read, padded with zeros."""
    weight = values[0]
    if attrs.kernel_layout == "IOHW":
        ins, outs, rows, columns = weight.shape
        split = weight.reshape(attrs.groups, ins // attrs.groups, outs, rows, columns)
        weight = split.transpose(0, 2, 1, 3, 4).reshape(attrs.groups * outs, ins // attrs.groups, rows, columns)
    dense = weight if attrs.groups == 1 else _spread_groups(weight, attrs.groups)
    out_blocks, in_blocks = _blocks(dense.shape[0]), _blocks(dense.shape[1])
    padded = np.zeros((out_blocks * BLOCK, in_blocks * BLOCK, *dense.shape[2:]), dense.dtype)
    padded[: dense.shape[0], : dense.shape[1]] = dense
    split = padded.reshape(out_blocks, BLOCK, in_blocks, BLOCK, *dense.shape[2:])
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def _spread_groups(weight: Array, groups: int) -> Array:
    """(O, span, rows, columns): the weights of each output at their place in its block's span."""
    outs_all, ins = weight.shape[:2]
    span = channel_span(outs_all, ins * groups, groups)
    dense = np.zeros((outs_all, span.extent, *weight.shape[2:]), weight.dtype)
    for out in range(outs_all):
        start = out // (outs_all // groups) * ins - span.start(out // BLOCK)
        dense[out, start : start + ins] = weight[out]
    return dense


def infer_rows(types: Sequence[Type], attrs: PackConvAttrs) -> Type:
    """[out][in block][rows][columns][16 in], of a weight without groups."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    outs, ins = _conv_channels(weight.static_shape, attrs)
    return TensorType((outs, _blocks(ins), *weight.static_shape[2:], BLOCK), weight.dtype)


def evaluate_rows(values: Sequence[Array], attrs: PackConvAttrs) -> Array:
    """Each output channel's weights in blocks of 16 input channels, padded with zeros."""
    weight = values[0] if attrs.kernel_layout == "OIHW" else values[0].transpose(1, 0, 2, 3)
    outs, ins, rows, columns = weight.shape
    padded = np.zeros((outs, _blocks(ins) * BLOCK, rows, columns), weight.dtype)
    padded[:, :ins] = weight
    split = padded.reshape(outs, _blocks(ins), BLOCK, rows, columns)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))


def infer_tiles(types: Sequence[Type], attrs: PackTilesAttrs) -> Type:
    """[group][tile][input][rows][columns][output of the tile], of a weight (O, I, rows, columns)."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    outs, ins, rows, columns = weight.static_shape
    per_group = outs // attrs.groups
    if attrs.outputs > per_group:
        raise TypeMismatch(f"expected tiles of at most {per_group} outputs, those of a group, found {attrs.outputs}")
    return TensorType((attrs.groups, -(-per_group // attrs.outputs), ins, rows, columns, attrs.outputs), weight.dtype)


def evaluate_tiles(values: Sequence[Array], attrs: PackTilesAttrs) -> Array:
    """Tiles of the output channels of each group; where they do not divide it, the last overlaps the one before."""
    weight = values[0]
    per_group = weight.shape[0] // attrs.groups
    split = weight.reshape(attrs.groups, per_group, *weight.shape[1:])
    starts = [min(start, per_group - attrs.outputs) for start in range(0, per_group, attrs.outputs)]
    tiles = np.stack([split[:, start : start + attrs.outputs] for start in starts], axis=1)
    return np.ascontiguousarray(tiles.transpose(0, 1, 3, 4, 5, 2))


def infer_depthwise(types: Sequence[Type], attrs: Attrs) -> Type:
    """[block][rows][columns][16]."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    channels, one, rows, columns = weight.static_shape
    if one != 1:
        raise TypeMismatch(f"expected a depthwise weight (C, 1, rows, columns), found {weight}")
    return TensorType((_blocks(channels), rows, columns, BLOCK), weight.dtype)


def evaluate_depthwise(values: Sequence[Array], attrs: Attrs) -> Array:
    """Blocks of 16 channels, padded with zeros."""
    channels, _, rows, columns = values[0].shape
    padded = np.zeros((_blocks(channels) * BLOCK, rows, columns), values[0].dtype)
    padded[:channels] = values[0][:, 0]
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, rows, columns).transpose(0, 2, 3, 1))


def infer_matmul(types: Sequence[Type], attrs: PackMatMulAttrs) -> Type:
    """[column block][depth][16]."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 2, "weight")
    columns, depth = weight.static_shape if attrs.transposed else weight.static_shape[::-1]
    return TensorType((_blocks(columns), depth, BLOCK), weight.dtype)


def evaluate_matmul(values: Sequence[Array], attrs: PackMatMulAttrs) -> Array:
    """Panels of 16 columns, padded with zeros."""
    weight = values[0] if attrs.transposed else values[0].T
    columns, depth = weight.shape
    padded = np.zeros((_blocks(columns) * BLOCK, depth), weight.dtype)
    padded[:columns] = weight
    return np.ascontiguousarray(padded.reshape(-1, BLOCK, depth).transpose(0, 2, 1))


_WINOGRAD = np.array(
    [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ]
)
"""The weight transform of F(4x4, 3x3), after Lavin and Gray (2015), for the points 0, 1, -1, 2, -2."""


def infer_winograd(types: Sequence[Type], attrs: Attrs) -> Type:
    """[out block][36][in block][16 in][16 out]."""
    weight = expect_tensor(types[0], "weight")
    expect_rank(weight, 4, "weight")
    outs, ins, rows, columns = weight.static_shape
    if (rows, columns) != (3, 3):
        raise TypeMismatch(f"expected a weight of 3 rows and columns, found {weight}")
    return TensorType((_blocks(outs), 36, _blocks(ins), BLOCK, BLOCK), weight.dtype)


def evaluate_winograd(values: Sequence[Array], attrs: Attrs) -> Array:
    """G w G^T of each pair of channels, in blocks padded with zeros."""
    weight = values[0]
    outs, ins = weight.shape[:2]
    transform = _WINOGRAD.astype(np.float64)
    padded = np.zeros((_blocks(outs) * BLOCK, _blocks(ins) * BLOCK, 3, 3), weight.dtype)
    padded[:outs, :ins] = weight
    kernel = np.kron(transform, transform).astype(weight.dtype)
    points = padded.reshape(-1, 9) @ kernel.T
    split = points.reshape(_blocks(outs), BLOCK, _blocks(ins), BLOCK, 36)
    return np.ascontiguousarray(split.transpose(0, 4, 2, 3, 1))


OPS = (
    Op("contrib.pack_conv2d", 1, infer_conv, evaluate_conv, OpKind.OPAQUE, PackConvAttrs, arg_names=("weight",)),
    Op("contrib.pack_rows", 1, infer_rows, evaluate_rows, OpKind.OPAQUE, PackConvAttrs, arg_names=("weight",)),
    Op("contrib.pack_tiles", 1, infer_tiles, evaluate_tiles, OpKind.OPAQUE, PackTilesAttrs, arg_names=("weight",)),
    Op("contrib.pack_depthwise", 1, infer_depthwise, evaluate_depthwise, OpKind.OPAQUE, arg_names=("weight",)),
    Op("contrib.pack_winograd", 1, infer_winograd, evaluate_winograd, OpKind.OPAQUE, arg_names=("weight",)),
    Op("contrib.pack_matmul", 1, infer_matmul, evaluate_matmul, OpKind.OPAQUE, PackMatMulAttrs, arg_names=("weight",)),
)
