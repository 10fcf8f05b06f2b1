"""Gradients of operators that read or write at indices; the indices themselves get none."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Tuple, const
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, inverse, masked, reshaped, transposed, zeros
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType


def _int64(indices: Expr) -> Expr:
    return indices if indices.tensor_type.dtype == "int64" else call_op("cast", [indices], dtype="int64")


def _limited(indices: Expr, extent: int) -> Expr:
    wide = _int64(indices)
    low = call_op("maximum", [wide, const(0, "int64")])
    return call_op("minimum", [low, const(max(extent - 1, 0), "int64")])


def _gather(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data, indices = call.args
    axis: int = attrs_of(call).axis % data.tensor_type.rank
    where = _limited(indices, data.tensor_type.static_shape[axis])
    return [
        call_op("scatter_elements", [zeros(data.tensor_type), where, grad], axis=axis, reduction="add"),
        None,
    ]


def _gather_nd(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data, indices = call.args
    batch: int = attrs_of(call).batch_dims
    *places, depth = indices.tensor_type.static_shape
    extents = data.tensor_type.static_shape[batch : batch + depth]
    top = Constant(np.asarray([max(extent - 1, 0) for extent in extents], np.int64))
    where = call_op("minimum", [call_op("maximum", [_int64(indices), const(0, "int64")]), top])
    if batch:
        grid = np.stack(list(np.indices(places)[:batch]), -1).astype(np.int64)
        where = call_op("concatenate", [Tuple([Constant(grid), where])], axis=-1)
    return [call_op("scatter_nd", [zeros(data.tensor_type), where, grad], mode="add"), None]


def _take(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data, indices = call.args
    shape = data.tensor_type.static_shape
    axis, mode = attrs_of(call).axis, attrs_of(call).mode
    flat = (prod(shape),) if axis is None else shape
    axis = 0 if axis is None else axis % len(shape)
    extent, rank = flat[axis], indices.tensor_type.rank
    if mode == "wrap":
        where: Expr = call_op("floor_mod", [_int64(indices), const(extent, "int64")])
    else:
        where = _limited(indices, extent)
    # the indexed axis first, as scatter_nd wants it
    order = [axis, *(a for a in range(len(flat)) if a != axis)]
    first = [*range(axis, axis + rank), *(a for a in range(grad.tensor_type.rank) if not axis <= a < axis + rank)]
    into = zeros(TensorType(tuple(flat[a] for a in order), grad.tensor_type.dtype))
    tuples = reshaped(where, (*indices.tensor_type.static_shape, 1))
    total = call_op("scatter_nd", [into, tuples, transposed(grad, first)], mode="add")
    return [reshaped(transposed(total, inverse(order)), shape), None]


def _scatter_elements(call: Call, grad: Expr) -> Sequence[Expr | None]:
    _, indices, updates = call.args
    axis: int = attrs_of(call).axis
    to_updates = call_op("gather", [grad, indices], axis=axis)
    if _adds(call, attrs_of(call).reduction):
        extent = call.tensor_type.static_shape[axis % call.tensor_type.rank]
        return [grad, None, masked(_inside(indices, const(extent, "int64")), to_updates)]
    kept = call_op("scatter_elements", [grad, indices, zeros(updates.tensor_type)], axis=axis)
    nobody, numbers = _numbers(call)
    winners = call_op("scatter_elements", [nobody, indices, numbers], axis=axis)
    won = call_op("equal", [call_op("gather", [winners, indices], axis=axis), numbers])
    return [kept, None, masked(won, to_updates)]


def _scatter_nd(call: Call, grad: Expr) -> Sequence[Expr | None]:
    _, indices, updates = call.args
    to_updates = call_op("gather_nd", [grad, indices])
    if _adds(call, attrs_of(call).mode):
        return [grad, None, masked(_tuples_inside(call), to_updates)]
    nobody, numbers = _numbers(call)
    winners = call_op("scatter_nd", [nobody, indices, numbers])
    won = call_op("equal", [call_op("gather_nd", [winners, indices]), numbers])
    return [call_op("scatter_nd", [grad, indices, zeros(updates.tensor_type)]), None, masked(won, to_updates)]


def _numbers(call: Call) -> tuple[Expr, Expr]:
    """Of a scatter that lets the last update of a place win: -1 in the data's shape, and a number for each update."""
    shape = call.args[2].tensor_type.static_shape
    nobody = call_op("full", [], shape=call.tensor_type.static_shape, fill_value=-1.0, dtype="int64")
    return nobody, Constant(np.arange(prod(shape), dtype=np.int64).reshape(shape))


def _inside(indices: Expr, extents: Expr) -> Expr:
    wide = _int64(indices)
    above = call_op("greater_equal", [wide, const(0, "int64")])
    return call_op("logical_and", [above, call_op("less", [wide, extents])])


def _tuples_inside(call: Call) -> Expr:
    """Whether each index tuple of a scatter_nd lies within the data, of extent 1 along the axes of a slice."""
    _, indices, updates = call.args
    *places, depth = indices.tensor_type.static_shape
    extents = Constant(np.asarray(call.tensor_type.static_shape[:depth], np.int64))
    every = call_op("all", [_inside(indices, extents)], axis=(-1,))
    return reshaped(every, (*places, *(1,) * (updates.tensor_type.rank - len(places))))


def _adds(call: Call, mode: str) -> bool:
    """Whether updates are added rather than put in; other modes have no gradient here."""
    if mode in ("add", "update"):
        return mode == "add"
    where = f"{call.span}: " if call.span else ""
    raise UnsupportedError(f"{where}'{call.op_name}' has a gradient where it adds or updates, found '{mode}'")


RULES: dict[str, GradientRule] = {
    "gather": _gather,
    "gather_nd": _gather_nd,
    "take": _take,
    "scatter_elements": _scatter_elements,
    "scatter_nd": _scatter_nd,
}
