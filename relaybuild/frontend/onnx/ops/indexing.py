"""Gathering and scattering by index; ONNX counts negative indices from the end, Relay does not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Constant, Expr

_MOST_KNOWN_ROWS = 1 << 20
"""Where each row comes from is a weight of the library."""


def non_negative(node: Node, indices: Expr, extent: Constant) -> Expr:
    """Indices counted from the start, as int64 or int32; `extent` broadcasts with them."""
    if indices.tensor_type.dtype not in ("int32", "int64"):
        raise node.fail(f"indices are {indices.tensor_type.dtype}, expected int32 or int64")
    if isinstance(indices, Constant):
        return _counted(node, indices, extent)
    negative = node.call("less", indices, node.like(0, indices))
    return node.call("where", negative, node.call("add", indices, extent), indices)


def _counted(node: Node, indices: Constant, extent: Constant) -> Expr:
    value, limit = indices.data, extent.data
    if ((value < -limit) | (value >= limit)).any():
        raise node.fail(f"an index is out of range: they go from {value.min()} to {value.max()}, the extent is {limit}")
    if not (value < 0).any():
        return indices
    return Constant(np.where(value < 0, value + limit, value).astype(value.dtype), node.span)


def _along_axis(node: Node, axis: int) -> Expr:
    return non_negative(node, node.get(1), node.like(node.shape(0)[axis], node.get(1)))


@converter("Gather")
def gather(node: Node) -> Expr:
    axis = node.axis(node.int_attr("axis", 0), node.rank(0))
    return node.call("take", node.get(0), _along_axis(node, axis), axis=axis)


@converter("GatherElements")
def gather_elements(node: Node) -> Expr:
    axis = node.axis(node.int_attr("axis", 0), node.rank(0))
    return node.call("gather", node.get(0), _along_axis(node, axis), axis=axis)


@converter("GatherND")
def gather_nd(node: Node) -> Expr:
    batch = node.int_attr("batch_dims", 0)
    return node.call("gather_nd", node.get(0), _tuples(node, batch), batch_dims=batch)


def _tuples(node: Node, batch: int = 0) -> Expr:
    """Index tuples along the last axis, each position counted from the start of its own axis."""
    indices = node.get(1)
    if not node.rank(1):
        raise node.fail("indices are a scalar, expected index tuples along the last axis")
    count = node.shape(1)[-1]
    extents = node.shape(0)[batch : batch + count]
    if len(extents) != count:
        raise node.fail(f"index tuples of {count} positions do not fit data of shape {node.shape(0)}")
    return non_negative(node, indices, node.const(extents, indices.tensor_type.dtype))


@converter("ScatterElements", "Scatter")
def scatter_elements(node: Node) -> Expr:
    axis = node.axis(node.int_attr("axis", 0), node.rank(0))
    indices, reduction = _along_axis(node, axis), _reduction(node)
    fits = all(size <= extent for at, (size, extent) in enumerate(zip(node.shape(1), node.shape(0))) if at != axis)
    if isinstance(indices, Constant) and fits and node.shape(2) == indices.data.shape:
        grid: list[NDArray[Any]] = [*np.indices(indices.data.shape)]
        grid[axis] = indices.data
        places = np.ravel_multi_index(tuple(grid), node.shape(0)).reshape(-1)
        if (found := _known_places(node, places, math.prod(node.shape(0)), 1, reduction)) is not None:
            return found
    return node.call("scatter_elements", node.get(0), indices, node.get(2), axis=axis, reduction=reduction)


@converter("ScatterND")
def scatter_nd(node: Node) -> Expr:
    tuples, reduction, shape = _tuples(node), _reduction(node), node.shape(0)
    count = node.shape(1)[-1]
    if isinstance(tuples, Constant) and count and node.shape(2) == (*node.shape(1)[:-1], *shape[count:]):
        places = np.ravel_multi_index(tuple(tuples.data.reshape(-1, count).T), shape[:count])
        rows, size = math.prod(shape[:count]), math.prod(shape[count:])
        if (found := _known_places(node, places, rows, size, reduction)) is not None:
            return found
    return node.call("scatter_nd", node.get(0), tuples, node.get(2), mode=reduction)


def _known_places(node: Node, places: NDArray[Any], rows: int, size: int, reduction: str) -> Expr | None:
    """The data, as `rows` of a size, with the rows of the updates at known places, each row taken from where it comes;
    None where that would be long, or several updates have to be combined in one place."""
    data, updates = node.get(0), node.get(2)
    if not places.size or not rows * size:
        return data
    if rows > _MOST_KNOWN_ROWS or (reduction != "update" and len(np.unique(places)) < len(places)):
        return None
    source, is_hit = np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    # of several updates in one place the last one stays
    source[places], is_hit[places] = np.arange(len(places)), True
    old = node.reshape(data, (rows, size))
    new = node.call("take", node.reshape(updates, (len(places), size)), node.const(source, "int64"), axis=0)
    if reduction != "update":
        new = node.call(_COMBINED[reduction], old, new)
    chosen = node.call("where", node.const(is_hit.reshape(rows, 1), "bool"), new, old)
    return node.reshape(chosen, node.shape(0))


_COMBINED = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


def _reduction(node: Node) -> str:
    name = node.str_attr("reduction", "none")
    known = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}
    if name not in known:
        raise node.fail(f"reduction is '{name}', expected one of {', '.join(known)}")
    return known[name]


@converter("NonZero")
def non_zero(node: Node) -> Expr:
    """Where elements of a value that is known at import are not zero: how many there are is a shape."""
    return node.const(np.array(np.nonzero(node.numbers(0, "X"))), "int64")


@converter("Compress")
def compress(node: Node) -> Expr:
    """The slices along an axis, or the elements, for which a condition that is known at import holds."""
    places = np.flatnonzero(node.numbers(1, "condition"))
    if "axis" not in node.attrs:
        return node.call(
            "take", node.reshape(node.get(0), (math.prod(node.shape(0)),)), node.const(places, "int64"), axis=0
        )
    return node.call(
        "take", node.get(0), node.const(places, "int64"), axis=node.axis(node.int_attr("axis"), node.rank(0))
    )


@converter("OneHot")
def one_hot(node: Node) -> Expr:
    """Indices from -depth to depth - 1; others give a row of the off value."""
    depth = int(node.scalar(1, "depth"))
    values = node.numbers(2, "values").reshape(-1)
    if values.size != 2:
        raise node.fail(f"'values' (input 2) has {values.size} elements, expected off and on")
    off, on = (value.item() for value in values)
    indices = node.cast(node.get(0), "int64")
    negative = node.call("less", indices, node.like(0, indices))
    counted = node.call("where", negative, node.call("add", indices, node.like(depth, indices)), indices)
    axis = node.axis(node.int_attr("axis", -1), node.rank(0) + 1)
    dtype = node.dtype(2)
    return node.call("one_hot", counted, on_value=on, off_value=off, depth=depth, axis=axis, dtype=dtype)
