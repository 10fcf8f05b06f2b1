"""Operators that move elements without looking at them: reshaping, slicing, joining, padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


@converter("Shape")
def shape_of(node: Node) -> Expr:
    shape = node.shape(0)
    return node.const(shape[_bound(node, "start", 0) : _bound(node, "end", len(shape))], "int64")


def _bound(node: Node, name: str, default: int) -> int:
    rank = node.rank(0)
    value = node.int_attr(name, default)
    return min(max(value + rank if value < 0 else value, 0), rank)


@converter("Size")
def size(node: Node) -> Expr:
    return node.const(math.prod(node.shape(0)), "int64")


@converter("Reshape")
def reshape(node: Node) -> Expr:
    shape, wanted = node.shape(0), node.ints(1, "shape")
    copies = not node.flag("allowzero")
    if copies and any(extent == 0 and axis >= len(shape) for axis, extent in enumerate(wanted)):
        raise node.fail(f"shape {wanted} copies an extent that the data {shape} does not have")
    target = [shape[axis] if extent == 0 and copies else extent for axis, extent in enumerate(wanted)]
    if min(target, default=0) < -1 or target.count(-1) > 1:
        raise node.fail(f"shape {wanted} has more than one -1 or another negative extent")
    if -1 in target:
        known = -math.prod(target)
        target[target.index(-1)] = math.prod(shape) // known if known else 0
    if math.prod(target) != math.prod(shape):
        raise node.fail(f"data of shape {shape} has {math.prod(shape)} elements, they do not fill the shape {wanted}")
    return node.reshape(node.get(0), target)


@converter("Flatten")
def flatten(node: Node) -> Expr:
    shape, axis = node.shape(0), node.int_attr("axis", 1)
    if not -len(shape) <= axis <= len(shape):
        raise node.fail(f"axis {axis} is out of range for rank {len(shape)}")
    axis = axis + len(shape) if axis < 0 else axis
    return node.reshape(node.get(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


@converter("Squeeze")
def squeeze(node: Node) -> Expr:
    """`axes` is an attribute before opset 13, then an input; without it every extent of 1 goes."""
    shape = node.shape(0)
    axes = _axes(node, len(shape))
    if axes is None:
        axes = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return node.squeeze(node.get(0), *axes) if axes else node.get(0)


@converter("Unsqueeze")
def unsqueeze(node: Node) -> Expr:
    """`axes` is an attribute before opset 13, then an input; axes are those of the result."""
    given = node.find_ints_attr("axes") or node.find_ints(1, "axes") or ()
    rank = node.rank(0) + len(given)
    axes = sorted(node.axis(axis, rank) for axis in given)
    if len(set(axes)) != len(axes):
        raise node.fail(f"axes {given} name an axis twice")
    result = node.get(0)
    for axis in axes:
        result = node.expand_dims(result, axis)
    return result


def _axes(node: Node, rank: int) -> tuple[int, ...] | None:
    axes = node.find_ints_attr("axes") or node.find_ints(1, "axes")
    return None if not axes else tuple(node.axis(axis, rank) for axis in axes)


@converter("Transpose")
def transpose(node: Node) -> Expr:
    rank = node.rank(0)
    return node.transpose(node.get(0), node.ints_attr("perm", tuple(reversed(range(rank)))))


@converter("Concat")
def concat(node: Node) -> Expr:
    inputs = node.all_inputs()
    if len(inputs) == 1:
        return inputs[0]
    return node.call_tuple("concatenate", inputs, axis=node.axis(node.int_attr("axis"), node.rank(0)))


@converter("Split")
def split(node: Node) -> list[Expr]:
    """Sizes come from an attribute before opset 13, then from an input; without them the parts are equal."""
    axis = node.axis(node.int_attr("axis", 0), node.rank(0))
    extent = node.shape(0)[axis]
    sizes = node.find_ints_attr("split") or node.find_ints(1, "split") or _equal_parts(node, extent)
    if sum(sizes) != extent or len(sizes) != len(node.outputs) or min(sizes) < 0:
        raise node.fail(f"sizes {tuple(sizes)} do not split extent {extent} into {len(node.outputs)} outputs")
    if len(sizes) == 1:
        return [node.get(0)]
    ends = [sum(sizes[: count + 1]) for count in range(len(sizes) - 1)]
    parts = node.call("split", node.get(0), indices_or_sections=tuple(ends), axis=axis)
    return node.fields(parts, len(sizes))


def _equal_parts(node: Node, extent: int) -> list[int]:
    count = node.int_attr("num_outputs", len(node.outputs))
    if count != len(node.outputs):
        raise node.fail(f"num_outputs is {count}, the node has {len(node.outputs)} outputs")
    part = -(-extent // max(count, 1))
    return [min(part, max(extent - part * position, 0)) for position in range(count)]


@converter("Slice", since=10)
def slice_(node: Node) -> Expr:
    shape, starts, ends = node.shape(0), node.ints(1, "starts"), node.ints(2, "ends")
    axes = node.find_ints(3, "axes") or tuple(range(len(starts)))
    steps = node.find_ints(4, "steps") or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.fail(f"starts {starts}, ends {ends}, axes {axes} and steps {steps} do not fit together")
    axes = tuple(node.axis(axis, len(shape)) for axis in axes)
    ranges = [_range(shape[axis], *bounds) for axis, *bounds in zip(axes, starts, ends, steps)]
    return _strided_slice(node, node.get(0), axes, ranges)


def _range(extent: int, start: int, end: int, step: int) -> tuple[int, int, int]:
    """Bounds within the axis; an end before the first element, which only a negative step reaches, is -extent - 1."""
    begin, stop, _ = slice(start, end, step).indices(extent)
    return begin, (stop if stop >= 0 else -extent - 1), step


def _strided_slice(node: Node, data: Expr, axes: Sequence[int], ranges: Sequence[tuple[int, int, int]]) -> Expr:
    shape = data.tensor_type.static_shape
    needed = [(axis, bounds) for axis, bounds in zip(axes, ranges) if bounds != (0, shape[axis], 1)]
    if not needed:
        return data
    kept, bounds = zip(*needed)
    begin, end, strides = zip(*bounds)
    return node.call("strided_slice", data, begin=begin, end=end, strides=strides, axes=kept)


@converter("Expand")
def expand(node: Node) -> Expr:
    """The shape broadcasts with the data's own, either way."""
    shape, wanted = node.shape(0), node.ints(1, "shape")
    if min(wanted, default=0) < 0:
        raise node.fail(f"shape {wanted} has a negative extent")
    rank = max(len(shape), len(wanted))
    own, other = ((1,) * (rank - len(item)) + tuple(item) for item in (shape, wanted))
    if any(left != right and 1 not in (left, right) for left, right in zip(own, other)):
        raise node.fail(f"data of shape {shape} does not broadcast with the shape {wanted}")
    target = tuple(right if left == 1 else left for left, right in zip(own, other))
    return node.get(0) if target == shape else node.call("broadcast_to", node.get(0), shape=target)


@converter("Tile")
def tile(node: Node) -> Expr:
    repeats = node.ints(1, "repeats")
    if len(repeats) != node.rank(0):
        raise node.fail(f"repeats {repeats} do not fit data of rank {node.rank(0)}")
    return node.get(0) if all(count == 1 for count in repeats) else node.call("tile", node.get(0), reps=repeats)


@converter("Pad", since=11)
def pad(node: Node) -> Expr:
    """Negative amounts crop."""
    shape, mode = node.shape(0), node.str_attr("mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise node.unsupported(f"mode '{mode}'")
    widths = _pad_widths(node, len(shape))
    crops = [(max(-begin, 0), extent + min(end, 0), 1) for extent, (begin, end) in zip(shape, widths)]
    data = _strided_slice(node, node.get(0), range(len(shape)), crops)
    grown = tuple((max(begin, 0), max(end, 0)) for begin, end in widths)
    if not any(any(pair) for pair in grown):
        return data
    if mode == "wrap":
        return _wrapped(node, data, grown)
    value = 0 if node.find(2) is None else node.scalar(2, "constant_value")
    return node.call("nn.pad", data, pad_width=grown, pad_value=float(value), pad_mode=mode)


def _wrapped(node: Node, data: Expr, widths: Sequence[tuple[int, int]]) -> Expr:
    for axis, (begin, end) in enumerate(widths):
        if begin or end:
            extent = data.tensor_type.static_shape[axis]
            if not extent:
                raise node.fail(f"axis {axis} has no elements to wrap around")
            indices = [position % extent for position in range(-begin, extent + end)]
            data = node.call("take", data, node.const(indices, "int64"), axis=axis)
    return data


def _pad_widths(node: Node, rank: int) -> list[tuple[int, int]]:
    pads = node.ints(1, "pads")
    axes = [node.axis(axis, rank) for axis in node.find_ints(3, "axes") or range(rank)]
    if len(pads) != 2 * len(axes):
        raise node.fail(f"pads {pads} has {len(pads)} numbers, expected {2 * len(axes)}")
    widths = [(0, 0)] * rank
    for position, axis in enumerate(axes):
        widths[axis] = (pads[position], pads[position + len(axes)])
    return widths


@converter("DepthToSpace")
def depth_to_space(node: Node) -> Expr:
    return node.call(
        "nn.depth_to_space", node.get(0), block_size=node.int_attr("blocksize"), mode=node.str_attr("mode", "DCR")
    )


@converter("SpaceToDepth")
def space_to_depth(node: Node) -> Expr:
    block, mode = node.int_attr("blocksize"), node.str_attr("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise node.fail(f"mode is '{mode}', expected 'DCR' or 'CRD'")
    result = node.call("nn.space_to_depth", node.get(0), block_size=block)
    if mode == "DCR":
        return result
    batch, channels, *image = result.tensor_type.static_shape
    by_place = node.reshape(result, (batch, block * block, channels // (block * block), *image))
    return node.reshape(node.transpose(by_place, (0, 2, 1, 3, 4)), (batch, channels, *image))


@converter("Trilu")
def trilu(node: Node) -> Expr:
    offset = 0 if node.find(1) is None else int(node.scalar(1, "k"))
    return node.call("trilu", node.get(0), upper=node.flag("upper", True), k=offset)


@converter("ReverseSequence")
def reverse_sequence(node: Node) -> Expr:
    """Each row of the batch is gathered with its first elements in reverse; the lengths may be computed."""
    shape = node.shape(0)
    time = node.axis(node.int_attr("time_axis", 0), len(shape))
    batch = node.axis(node.int_attr("batch_axis", 1), len(shape))
    steps = node.const(list(range(shape[time])), "int64")
    lengths = node.cast(node.get(1), "int64")
    rows = node.reshape(steps, tuple(shape[time] if axis == time else 1 for axis in range(len(shape))))
    counts = node.reshape(lengths, tuple(shape[batch] if axis == batch else 1 for axis in range(len(shape))))
    mirrored = node.call("subtract", node.call("subtract", counts, rows), node.const(1, "int64"))
    source = node.call("where", node.call("less", rows, counts), mirrored, rows)
    return node.call("gather", node.get(0), node.call("broadcast_to", source, shape=shape), axis=time)
