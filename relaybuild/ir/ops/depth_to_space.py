"""`nn.depth_to_space` and `nn.space_to_depth`: channels of NCHW data exchanged for blocks of pixels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, expect_positive, expect_rank, expect_tensor, number
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class DepthToSpaceAttrs(Attrs):
    """`mode`: whether the position in the block is the slow (DCR) or the fast (CRD) part of the channel."""

    block_size: int
    mode: str = "DCR"


@dataclass(frozen=True)
class SpaceToDepthAttrs(Attrs):
    """`block_size`: rows and columns of a block; its position is the slow part of the channel."""

    block_size: int


def infer_depth_to_space_type(types: Sequence[Type], attrs: DepthToSpaceAttrs) -> Type:
    """(N, C / block², H * block, W * block)."""
    data = _expect_images(types, attrs.block_size)
    if attrs.mode not in ("DCR", "CRD"):
        raise TypeMismatch(f"expected 'mode' to be DCR or CRD, found '{attrs.mode}'")
    block = attrs.block_size
    channels, rows, columns = (number(extent, "an extent of an image") for extent in data.shape[1:])
    if channels % block**2:
        raise TypeMismatch(f"expected channels a multiple of {block**2}, found {channels}")
    return TensorType((data.shape[0], channels // block**2, rows * block, columns * block), data.dtype)


def infer_space_to_depth_type(types: Sequence[Type], attrs: SpaceToDepthAttrs) -> Type:
    """(N, C * block², H / block, W / block)."""
    data = _expect_images(types, attrs.block_size)
    block = attrs.block_size
    channels, rows, columns = (number(extent, "an extent of an image") for extent in data.shape[1:])
    if rows % block or columns % block:
        raise TypeMismatch(f"expected rows and columns a multiple of {block}, found {rows} and {columns}")
    return TensorType((data.shape[0], channels * block**2, rows // block, columns // block), data.dtype)


def _expect_images(types: Sequence[Type], block: int) -> TensorType:
    data = expect_tensor(types[0], "data")
    expect_rank(data, 4, "data")
    expect_positive("block_size", (block,))
    return data


def evaluate_depth_to_space(values: Sequence[Array], attrs: DepthToSpaceAttrs) -> Array:
    """Each group of block² channels spread over a block of pixels."""
    data, block = values[0], attrs.block_size
    batch, channels, rows, columns = data.shape
    depth = channels // block**2
    if attrs.mode == "DCR":
        parts = data.reshape(batch, block, block, depth, rows, columns).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = data.reshape(batch, depth, block, block, rows, columns).transpose(0, 1, 4, 2, 5, 3)
    return np.reshape(parts, (batch, depth, rows * block, columns * block))


def evaluate_space_to_depth(values: Sequence[Array], attrs: SpaceToDepthAttrs) -> Array:
    """Each block of pixels as block² groups of channels."""
    data, block = values[0], attrs.block_size
    batch, channels, rows, columns = data.shape
    parts = data.reshape(batch, channels, rows // block, block, columns // block, block).transpose(0, 3, 5, 1, 2, 4)
    return np.reshape(parts, (batch, channels * block**2, rows // block, columns // block))


def compute_depth_to_space(
    s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall
) -> Scalar:
    """The channel is found from the position in the block."""
    block = call.attrs.block_size
    batch, channel, row, column = index
    position = row % block * block + column % block
    depth = number(call.out_type.shape[1], "the number of channels")
    source = position * depth + channel if call.attrs.mode == "DCR" else channel * block**2 + position
    return args[0]([batch, source, row // block, column // block])


def compute_space_to_depth(
    s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall
) -> Scalar:
    """The position in the block is found from the channel."""
    block = call.attrs.block_size
    batch, channel, row, column = index
    depth = number(call.arg_types[0].shape[1], "the number of channels")
    position = channel // depth
    return args[0]([batch, channel % depth, row * block + position // block, column * block + position % block])


OPS = (
    Op(
        "nn.depth_to_space",
        1,
        infer_depth_to_space_type,
        evaluate_depth_to_space,
        OpKind.INJECTIVE,
        DepthToSpaceAttrs,
        compute_depth_to_space,
        ("data",),
    ),
    Op(
        "nn.space_to_depth",
        1,
        infer_space_to_depth_type,
        evaluate_space_to_depth,
        OpKind.INJECTIVE,
        SpaceToDepthAttrs,
        compute_space_to_depth,
        ("data",),
    ),
)
