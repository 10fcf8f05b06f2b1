"""Where the elements of a logical tensor lie in a buffer; knows nothing of kernels.

A layout is row-major with free strides, or splits the channels (dimension 1) into blocks of `BLOCK` that lie innermost.
Either may carry a halo of zeros around its last two dimensions. Whoever writes a blocked buffer writes zeros into its
pad lanes and its halo, on every run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Index, IndexLike

BLOCK = 16
"""Channels in one block: one 512-bit register, or two of 256 bits."""

NO_HALO = (0, 0, 0, 0)


@dataclass(frozen=True)
class Layout:
    """Element (i0, i1, ...) lies at offset + sum(i_k * strides[k]), in elements.

    With `block` > 1 dimension 1 contributes `(i1 // block) * strides[1] + i1 % block` instead. `halo` is (top, left,
    bottom, right), in rows and columns of zeros; `size` is how many elements a buffer of this layout holds.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    block: int = 1
    halo: tuple[int, int, int, int] = NO_HALO
    size: int = 0

    @staticmethod
    def row_major(shape: Sequence[int], halo: tuple[int, int, int, int] = NO_HALO) -> Layout:
        """Dense, the last dimension innermost; a halo needs rank 4."""
        top, left, bottom, right = halo
        extents = list(shape)
        if halo != NO_HALO:
            extents[-2] += top + bottom
            extents[-1] += left + right
        strides, size = _dense(extents)
        offset = top * strides[-2] + left if halo != NO_HALO else 0
        return Layout(tuple(shape), strides, offset, 1, halo, size)

    @staticmethod
    def blocked(shape: Sequence[int], halo: tuple[int, int, int, int] = NO_HALO) -> Layout:
        """(N, C, H, W) as [N][C / 16][H + halo][W + halo][16]."""
        batch, channels, height, width = shape
        top, left, bottom, right = halo
        row = (width + left + right) * BLOCK
        plane = (height + top + bottom) * row
        blocks = -(-channels // BLOCK)
        strides = (blocks * plane, plane, row, BLOCK)
        return Layout(tuple(shape), strides, top * row + left * BLOCK, BLOCK, halo, batch * blocks * plane)

    @property
    def num_blocks(self) -> int:
        """Channel blocks, the last of which may have pad lanes."""
        return -(-self.shape[1] // self.block)

    @property
    def has_pad_lanes(self) -> bool:
        return self.block > 1 and self.shape[1] % self.block != 0

    def address(self, indices: Sequence[IndexLike]) -> Index:
        """The position of an element."""
        total = Index.of(self.offset)
        for dimension, (index, stride) in enumerate(zip(indices, self.strides)):
            position = Index.of(index)
            if self.block > 1 and dimension == 1:
                total = total + (position // self.block) * stride + position % self.block
            else:
                total = total + position * stride
        return total

    def reach(self) -> tuple[int, int]:
        """(first element, past the last) of what lies in this layout, pad lanes and halo included."""
        extents = list(self.shape)
        if self.block > 1:
            extents[1] = self.num_blocks
        top, left, bottom, right = self.halo
        begin = self.offset
        end = self.offset + sum((extent - 1) * stride for extent, stride in zip(extents, self.strides)) + self.block
        if self.halo != NO_HALO:
            begin -= top * self.strides[2] + left * self.strides[3]
            end += bottom * self.strides[2] + right * self.strides[3]
        return begin, end

    def channel_slice(self, begin: int, channels: int) -> Layout | None:
        """The view of some channels of a blocked buffer, or None where `begin` is inside a block or pad lanes would be
        another slice's."""
        whole = self.shape[1]
        if begin % self.block or (channels % self.block and begin + channels != whole):
            return None
        shape = (self.shape[0], channels, *self.shape[2:])
        return replace(self, shape=shape, offset=self.offset + begin // self.block * self.strides[1])

    def slice_view(self, begins: Sequence[int], steps: Sequence[int], shape: Sequence[int]) -> Layout:
        """The view of a strided slice of a row-major buffer."""
        offset = self.offset + sum(begin * stride for begin, stride in zip(begins, self.strides))
        strides = tuple(step * stride for step, stride in zip(steps, self.strides))
        return replace(self, shape=tuple(shape), strides=strides, offset=offset, halo=NO_HALO)

    @property
    def is_dense(self) -> bool:
        """Row-major without gaps, so that any reshape of it is a view."""
        return self.block == 1 and self.halo == NO_HALO and self.strides == _dense(self.shape)[0]


def _dense(extents: Sequence[int]) -> tuple[tuple[int, ...], int]:
    strides: list[int] = []
    size = 1
    for extent in reversed(extents):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides)), size
