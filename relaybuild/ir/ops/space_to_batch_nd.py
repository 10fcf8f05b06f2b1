"""`nn.space_to_batch_nd` and `nn.batch_to_space_nd`: blocks of positions moved into the batch, and back.

Axis 0 is the batch; `block_shape` belongs to the axes that follow it. Of the resulting batch, the position within the
block varies slowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._indexing import delinearize, linearize
from relaybuild.ir.ops._shapes import Array, as_ints, expect_length, expect_positive, expect_tensor, numbers
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class SpaceToBatchAttrs(Attrs):
    """`paddings`: (before, after) of each axis of `block_shape`, filled with `pad_value`."""

    block_shape: tuple[int, ...]
    paddings: tuple[tuple[int, int], ...]
    pad_value: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_shape", as_ints(self.block_shape))
        object.__setattr__(self, "paddings", tuple((pair[0], pair[1]) for pair in self.paddings))


@dataclass(frozen=True)
class BatchToSpaceAttrs(Attrs):
    """`crops`: how many positions are cut off at (begin, end) of each axis of `block_shape`."""

    block_shape: tuple[int, ...]
    crops: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "block_shape", as_ints(self.block_shape))
        object.__setattr__(self, "crops", tuple((pair[0], pair[1]) for pair in self.crops))


def infer_space_type(types: Sequence[Type], attrs: SpaceToBatchAttrs) -> Type:
    """The batch times the block; padded extents divided by it."""
    data, shape = _checked(types, attrs.block_shape, "paddings", attrs.paddings)
    for axis, (block, widths) in enumerate(zip(attrs.block_shape, attrs.paddings), 1):
        padded = shape[axis] + sum(widths)
        if padded % block:
            raise TypeMismatch(f"expected a padded extent of axis {axis} that {block} divides, found {padded}")
        shape[axis] = padded // block
    return TensorType((shape[0] * prod(attrs.block_shape), *shape[1:]), data.dtype)


def infer_batch_type(types: Sequence[Type], attrs: BatchToSpaceAttrs) -> Type:
    """The batch divided by the block; extents times it, less what is cut off."""
    data, shape = _checked(types, attrs.block_shape, "crops", attrs.crops)
    if shape[0] % prod(attrs.block_shape):
        raise TypeMismatch(f"expected a batch that {prod(attrs.block_shape)} divides, found {shape[0]}")
    for axis, (block, cuts) in enumerate(zip(attrs.block_shape, attrs.crops), 1):
        if sum(cuts) > shape[axis] * block:
            raise TypeMismatch(f"expected at most {shape[axis] * block} cut off axis {axis}, found {sum(cuts)}")
        shape[axis] = shape[axis] * block - sum(cuts)
    return TensorType((shape[0] // prod(attrs.block_shape), *shape[1:]), data.dtype)


def _checked(
    types: Sequence[Type], block_shape: Sequence[int], name: str, widths: Sequence[tuple[int, int]]
) -> tuple[TensorType, list[int]]:
    data = expect_tensor(types[0])
    if data.rank <= len(block_shape):
        raise TypeMismatch(f"expected data of rank {len(block_shape) + 1} or more, found rank {data.rank}")
    expect_positive("block_shape", block_shape)
    expect_length(name, widths, len(block_shape))
    if any(width < 0 for pair in widths for width in pair):
        raise TypeMismatch(f"expected '{name}' of 0 or more, found {tuple(widths)}")
    return data, list(numbers(data, "data"))


def evaluate_space(values: Sequence[Array], attrs: SpaceToBatchAttrs) -> Array:
    """The blocks taken apart."""
    data, blocks = values[0], attrs.block_shape
    rest = data.ndim - 1 - len(blocks)
    value = data.dtype.type(attrs.pad_value)
    padded = np.pad(data, [(0, 0), *attrs.paddings, *[(0, 0)] * rest], constant_values=value)
    split = [padded.shape[0]]
    for extent, block in zip(padded.shape[1:], blocks):
        split += [extent // block, block]
    outer, inner = [2 * axis + 1 for axis in range(len(blocks))], [2 * axis + 2 for axis in range(len(blocks))]
    last = [1 + 2 * len(blocks) + axis for axis in range(rest)]
    parts = padded.reshape(*split, *data.shape[1 + len(blocks) :]).transpose(*inner, 0, *outer, *last)
    return np.asarray(parts.reshape(-1, *parts.shape[len(blocks) + 1 :]))


def evaluate_batch(values: Sequence[Array], attrs: BatchToSpaceAttrs) -> Array:
    """The blocks put together, and cut."""
    data, blocks = values[0], attrs.block_shape
    count = len(blocks)
    split = data.reshape(*blocks, data.shape[0] // prod(blocks), *data.shape[1:])
    pairs = [axis for position in range(count) for axis in (count + 1 + position, position)]
    whole = split.transpose(count, *pairs, *range(2 * count + 1, split.ndim))
    extents = [extent * block for extent, block in zip(data.shape[1:], blocks)]
    joined = whole.reshape(whole.shape[0], *extents, *data.shape[1 + count :])
    cut = [slice(begin, extent - end) for extent, (begin, end) in zip(extents, attrs.crops)]
    kept = (slice(None), *cut)
    return np.asarray(joined[kept])


def compute_space(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the place in its block, or the padding's value."""
    attrs: SpaceToBatchAttrs = call.attrs
    shape = call.arg_types[0].static_shape
    within = delinearize(index[0] // shape[0] if shape[0] != 1 else index[0], attrs.block_shape)
    source = list(index)
    source[0] = index[0] % shape[0] if shape[0] != 1 else 0
    for axis, (block, place, (before, _)) in enumerate(zip(attrs.block_shape, within, attrs.paddings), 1):
        position = index[axis] * block + place if block != 1 else index[axis]
        source[axis] = position - before if before else position
    dtype = call.out_type.dtype
    border = s.const(attrs.pad_value if dtype.startswith(("float", "bfloat", "bool")) else int(attrs.pad_value), dtype)
    result = args[0](source)
    for axis, widths in enumerate(attrs.paddings, 1):
        if any(widths):
            result = s.select(s.in_range(source[axis], 0, shape[axis]), result, border)
    return result


def compute_batch(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element of the batch that the place in the block names."""
    attrs: BatchToSpaceAttrs = call.attrs
    source = list(index)
    within: list[Index] = []
    for axis, (block, (before, _)) in enumerate(zip(attrs.block_shape, attrs.crops), 1):
        position = index[axis] + before if before else index[axis]
        within.append(position % block if block != 1 else 0)
        source[axis] = position // block if block != 1 else position
    batch = call.out_type.static_shape[0]
    source[0] = linearize([*within, index[0]], [*attrs.block_shape, batch])
    return args[0](source)


OPS = (
    Op(
        "nn.space_to_batch_nd",
        1,
        infer_space_type,
        evaluate_space,
        OpKind.INJECTIVE,
        SpaceToBatchAttrs,
        compute_space,
        ("data",),
    ),
    Op(
        "nn.batch_to_space_nd",
        1,
        infer_batch_type,
        evaluate_batch,
        OpKind.INJECTIVE,
        BatchToSpaceAttrs,
        compute_batch,
        ("data",),
    ),
)
