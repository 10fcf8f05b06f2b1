"""Gathering and scattering by index; ONNX counts negative indices from the end, Relay does not."""

from __future__ import annotations

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Constant, Expr


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
    return node.call(
        "scatter_elements",
        node.get(0),
        _along_axis(node, axis),
        node.get(2),
        axis=axis,
        reduction=_reduction(node),
    )


@converter("ScatterND")
def scatter_nd(node: Node) -> Expr:
    return node.call("scatter_nd", node.get(0), _tuples(node), node.get(2), mode=_reduction(node))


def _reduction(node: Node) -> str:
    name = node.str_attr("reduction", "none")
    known = {"none": "update", "add": "add", "mul": "mul", "max": "max", "min": "min"}
    if name not in known:
        raise node.fail(f"reduction is '{name}', expected one of {', '.join(known)}")
    return known[name]


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
