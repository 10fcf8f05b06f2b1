"""Rewrites operators that the host has no kernel for into ones it has; each rule keeps the result's type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

import numpy as np

from relaybuild.contrib.host.anchor import all_anchors
from relaybuild.contrib.host.values import slice_starts
from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, const
from relaybuild.ir.op import call_op
from relaybuild.ir.ops._resample import Axis
from relaybuild.ir.ops.reduce import reduced_axes
from relaybuild.ir.ops.resize2d import resized_axes
from relaybuild.ir.visitor import rewrite

Rule = Callable[[Call], Expr]


@dataclass(frozen=True)
class Legalized:
    """What nodes became, by id, first by operators' own decompositions and then by the rules here.

    Handed from function to function it makes what they share the same in each; the caller keeps them alive meanwhile.
    """

    decomposed: dict[int, Expr] = field(default_factory=dict)
    ruled: dict[int, Expr] = field(default_factory=dict)


def legalize(function: Function, known: Legalized | None = None) -> Function:
    """The function with every rule applied, its own results included, and operators' own decompositions before."""
    done = Legalized() if known is None else known
    return function.with_body(rewrite(rewrite(function.body, _decomposed, done.decomposed), _apply, done.ruled))


def _decomposed(node: Expr) -> Expr:
    """What the operator itself says it is in terms of others."""
    if not isinstance(node, Call) or isinstance(node.op, Expr):
        return _field(node)
    if node.op.static_form is not None:
        raise UnsupportedError(
            f"'{node.op_name}' over shapes that are not known when the host compiles: run DynamicToStatic, or fix them",
            where=str(node.span) if node.span else None,
        )
    if node.op.decompose is None:
        return node
    return node.op.decompose(node)


def _field(node: Expr) -> Expr:
    """Of a tuple that an operator has become, a field is taken."""
    if isinstance(node, TupleGetItem) and isinstance(node.tuple_value, Tuple):
        return node.tuple_value.fields[node.index]
    return node


def _apply(node: Expr) -> Expr:
    if not isinstance(node, Call):
        return _field(node)
    return _RULES.get(node.op_name, _widened)(node)


def _widened(call: Call) -> Expr:
    """What an operator computes in single precision of numbers of half precision, where its template wants that."""
    anchor, attrs = all_anchors().get(call.op_name), _attrs(call)
    if anchor is None or not anchor.widens or not any(each.tensor_type.dtype in _WIDE for each in (*call.args, call)):
        return call
    if getattr(attrs, "out_dtype", ""):
        attrs = replace(attrs, out_dtype="")
    types = [argument.tensor_type.dtype for argument in call.args]
    args = [_cast(call, argument, _WIDE.get(dtype, dtype)) for argument, dtype in zip(call.args, types)]
    return _cast(call, Call(call.op, args, attrs, call.span), call.tensor_type.dtype)


def _attrs(call: Call) -> Any:
    return call.attrs


def _op(call: Call, name: str, *args: Expr, **attrs: object) -> Call:
    return call_op(name, args, call.span, **attrs)


def _scalar(call: Call, value: float) -> Expr:
    return const(value, call.args[0].tensor_type.dtype)


def _mean(call: Call) -> Expr:
    """A sum times the reciprocal of the count; of integers, a sum of 64 bits divided by it."""
    data = call.args[0].tensor_type
    axes = reduced_axes(_attrs(call), data.rank)
    count = prod(data.static_shape[axis] for axis in axes)
    wide = _WIDE.get(data.dtype, data.dtype if data.dtype.startswith("float") else "int64")
    total = _op(call, "sum", _cast(call, call.args[0], wide), axis=axes, keepdims=_attrs(call).keepdims)
    if wide == "int64":
        return _cast(call, _op(call, "divide", total, const(count, wide)), data.dtype)
    share = 1.0 / count if count else np.nan
    return _cast(call, _op(call, "multiply", total, const(share, wide)), data.dtype)


def _sum(call: Call) -> Expr:
    """Half-precision numbers are added in single precision."""
    dtype = call.tensor_type.dtype
    if dtype not in _WIDE:
        return call
    data = _cast(call, call.args[0], _WIDE[dtype])
    attrs = _attrs(call)
    axes = reduced_axes(attrs, data.tensor_type.rank)
    return _cast(call, _op(call, call.op_name, data, axis=axes, keepdims=attrs.keepdims), dtype)


def _cast(call: Call, data: Expr, dtype: str) -> Expr:
    return data if data.tensor_type.dtype == dtype else _op(call, "cast", data, dtype=dtype)


_WIDE = {"float16": "float32"}
"""In what the sums of narrow numbers are formed."""


def _variance(call: Call) -> Expr:
    axes = reduced_axes(_attrs(call), call.args[0].tensor_type.rank)
    _, centred = _centre(call, call.args[0], axes)
    squared = _op(call, "multiply", centred, centred)
    return _mean(_op(call, "mean", squared, axis=axes, keepdims=_attrs(call).keepdims))


def _centre(call: Call, data: Expr, axes: tuple[int, ...]) -> tuple[Expr, Expr]:
    """(mean over `axes`, data minus it)."""
    mean = _mean(_op(call, "mean", data, axis=axes, keepdims=True))
    return mean, _op(call, "subtract", data, mean)


def _normalized(call: Call, data: Expr, axes: tuple[int, ...], epsilon: float) -> Expr:
    """(data - mean) / sqrt(variance + epsilon)."""
    _, centred = _centre(call, data, axes)
    squared = _op(call, "multiply", centred, centred)
    variance = _mean(_op(call, "mean", squared, axis=axes, keepdims=True))
    scale = _op(call, "rsqrt", _op(call, "add", variance, _scalar(call, epsilon)))
    return _op(call, "multiply", centred, scale)


def _affine(call: Call, data: Expr, gamma: Expr, beta: Expr, shape: list[int]) -> Expr:
    if _attrs(call).scale:
        data = _op(call, "multiply", data, _op(call, "reshape", gamma, newshape=shape))
    if _attrs(call).center:
        data = _op(call, "add", data, _op(call, "reshape", beta, newshape=shape))
    return data


def _layer_norm(call: Call) -> Expr:
    rank = call.args[0].tensor_type.rank
    axis = _attrs(call).axis % rank
    axes = tuple(range(axis, rank)) if call.args[1].tensor_type.rank > 1 else (axis,)
    shape = [1] * rank
    for dimension in axes:
        shape[dimension] = call.args[0].tensor_type.static_shape[dimension]
    normal = _normalized(call, call.args[0], axes, _attrs(call).epsilon)
    return _affine(call, normal, call.args[1], call.args[2], shape)


def _instance_norm(call: Call) -> Expr:
    data = call.args[0].tensor_type
    axis = _attrs(call).axis % data.rank
    axes = tuple(d for d in range(data.rank) if d not in (0, axis))
    shape = [data.static_shape[d] if d == axis else 1 for d in range(data.rank)]
    normal = _normalized(call, call.args[0], axes, _attrs(call).epsilon)
    return _affine(call, normal, call.args[1], call.args[2], shape)


def _group_norm(call: Call) -> Expr:
    data = call.args[0].tensor_type
    axis = _attrs(call).axis % data.rank
    groups = _attrs(call).num_groups
    shape = list(data.static_shape)
    split = [*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]]
    axes = tuple(d for d in range(len(split)) if d not in (0, axis))
    normal = _normalized(call, _op(call, "reshape", call.args[0], newshape=split), axes, _attrs(call).epsilon)
    affine = [shape[d] if d == axis else 1 for d in range(data.rank)]
    return _affine(call, _op(call, "reshape", normal, newshape=shape), call.args[1], call.args[2], affine)


def _arg_reduce(call: Call) -> Expr:
    """The position in the flattened tensor is the position along its one axis."""
    if _attrs(call).axis is not None:
        return call
    data = call.args[0].tensor_type
    flat = _op(call, "reshape", call.args[0], newshape=(data.num_elements,))
    last = _attrs(call).select_last_index
    found = _op(call, call.op_name, flat, axis=0, keepdims=False, select_last_index=last)
    return _op(call, "reshape", found, newshape=call.tensor_type.static_shape)


def _adaptive_pool(call: Call) -> Expr:
    """A window of fixed size where the extents divide; the global pool where the result is one pixel."""
    _, _, height, width = call.args[0].tensor_type.static_shape
    rows, columns = call.tensor_type.static_shape[2:]
    if (rows, columns) == (1, 1):
        return _op(call, "nn.global_avg_pool2d", call.args[0])
    if height % rows or width % columns:
        return call
    size = (height // rows, width // columns)
    return _op(call, "nn.avg_pool2d", call.args[0], pool_size=size, strides=size)


def _concatenate(call: Call) -> Expr:
    """Neighbouring slices of one value are one slice, or the value itself: then it can be written in place."""
    parts = list(call.args[0].fields) if isinstance(call.args[0], Tuple) else []
    if not parts:
        return call
    axis = _attrs(call).axis % call.tensor_type.rank
    joined: list[Expr] = []
    for part in parts:
        both = _join(call, joined[-1], part, axis) if joined else None
        if both is None:
            joined.append(part)
        else:
            joined[-1] = both
    if len(joined) == len(parts):
        return call
    return joined[0] if len(joined) == 1 else _op(call, "concatenate", Tuple(joined), axis=axis)


def _join(call: Call, left: Expr, right: Expr, axis: int) -> Expr | None:
    """One slice for two that adjoin along `axis` and agree elsewhere; None where they do not."""
    first, second = _slice_of(left), _slice_of(right)
    if first is None or second is None or first[0] is not second[0]:
        return None
    source, begin, end = first
    _, next_begin, next_end = second
    others = [d for d in range(len(begin)) if d != axis]
    if end[axis] != next_begin[axis] or any((begin[d], end[d]) != (next_begin[d], next_end[d]) for d in others):
        return None
    end = [*end[:axis], next_end[axis], *end[axis + 1 :]]
    if not any(begin) and tuple(end) == source.tensor_type.static_shape:
        return source
    return _op(call, "strided_slice", source, begin=begin, end=end, axes=range(len(begin)))


def _slice_of(expr: Expr) -> tuple[Expr, list[int], list[int]] | None:
    """(source, first position, position past the last) of a slice of step 1."""
    if not isinstance(expr, Call) or expr.op_name != "strided_slice":
        return None
    begins, steps = slice_starts(expr)
    if any(step != 1 for step in steps):
        return None
    ends = [begin + extent for begin, extent in zip(begins, expr.tensor_type.static_shape)]
    return expr.args[0], begins, ends


def _l2_normalize(call: Call) -> Expr:
    """x / sqrt(max(sum of squares, eps)), in single precision at least."""
    dtype = call.tensor_type.dtype
    wide = _WIDE.get(dtype, dtype)
    data = _cast(call, call.args[0], wide)
    squares = _op(call, "multiply", data, data)
    total = _op(call, "sum", squares, axis=_attrs(call).axis, keepdims=True)
    length = _op(call, "sqrt", _op(call, "maximum", total, const(_attrs(call).eps, wide)))
    return _cast(call, _op(call, "divide", data, length), dtype)


def _lrn(call: Call) -> Expr:
    """x / (bias + alpha / size * sum of squares of neighbouring channels) ** beta."""
    attrs, dtype = _attrs(call), call.tensor_type.dtype
    wide = _WIDE.get(dtype, dtype)
    data = _cast(call, call.args[0], wide)
    axis = attrs.axis % call.tensor_type.rank
    before, channels = (attrs.size - 1) // 2, call.tensor_type.static_shape[axis]
    widths = [(before, attrs.size - 1 - before) if d == axis else (0, 0) for d in range(call.tensor_type.rank)]
    squares = _op(call, "nn.pad", _op(call, "multiply", data, data), pad_width=widths)
    parts = [
        _op(call, "strided_slice", squares, begin=(offset,), end=(offset + channels,), axes=(axis,))
        for offset in range(attrs.size)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = _op(call, "add", total, part)
    scaled = _op(call, "multiply", total, const(attrs.alpha / attrs.size, wide))
    base = _op(call, "add", scaled, const(attrs.bias, wide))
    return _cast(call, _op(call, "divide", data, _op(call, "power", base, const(attrs.beta, wide))), dtype)


def _shape_of(call: Call) -> Expr:
    """The shape is known."""
    return const(np.asarray(call.args[0].tensor_type.static_shape, call.tensor_type.dtype))


def _identity(call: Call) -> Expr:
    return call.args[0]


MOST_BETWEEN = 4 << 20
"""Bytes of an image resized along its rows only, where one kernel writes it and another reads it back."""


def _resize(call: Call) -> Expr:
    """Columns, then rows: a row's columns are computed once for all results that it is part of, in the same order.

    Where few rows are part of any result, one pass does less, and where columns are not innermost, so that all rows lie
    in memory until they are read, too many of them would not stay in a cache.
    """
    attrs = _attrs(call)
    taps = {"linear": 2, "cubic": 4}.get(attrs.method, 1)
    rows, columns = resized_axes(call.args[0].tensor_type.shape, attrs)
    weighted = taps > 1 and call.tensor_type.dtype in ("float32", "float64")
    if not weighted or _is_taken(rows) or _is_taken(columns) or rows.extent > taps * rows.places:
        return call
    of_rows, of_columns = ((attrs.scales[0], 1.0), (1.0, attrs.scales[1])) if attrs.scales else ((), ())
    half = Call(call.op, call.args, replace(attrs, size=(rows.extent, columns.places), scales=of_columns), call.span)
    by_rows = attrs.layout.startswith("NCHW")
    if not by_rows and half.tensor_type.num_elements * half.tensor_type.itemsize > MOST_BETWEEN:
        return call
    return Call(call.op, [half], replace(attrs, scales=of_rows), call.span)


def _is_taken(axis: Axis) -> bool:
    """Whether each point of a resized axis is one of the original's."""
    return axis.step % axis.denominator == 0 and axis.offset % axis.denominator == 0


def _softmax(call: Call) -> Expr:
    """In double precision by its parts: the template computes in single."""
    if call.tensor_type.dtype != "float64":
        return call
    data, over = call.args[0], {"axis": (_attrs(call).axis,), "keepdims": True}
    shifted = _op(call, "subtract", data, _op(call, "max", data, **over))
    weights = _op(call, "exp", shifted)
    total = _op(call, "sum", weights, **over)
    if call.op_name == "nn.softmax":
        return _op(call, "divide", weights, total)
    return _op(call, "subtract", shifted, _op(call, "log", total))


def _running_sum(call: Call) -> Expr:
    """Sums over the elements before each one: in blocks, and over the blocks before each block, of which the sums are
    running sums again. So an element costs as many additions as a block has elements, however many there are."""
    attrs, given = _attrs(call), call.args[0]
    shape = given.tensor_type.static_shape
    if not prod(shape):
        return given
    axis = attrs.axis % len(shape) if attrs.axis is not None else 0
    dtype = given.tensor_type.dtype
    data = _cast(call, given, _WIDE.get(dtype, dtype))
    if attrs.axis is None:
        data, shape = _op(call, "reshape", data, newshape=(prod(shape),)), (prod(shape),)
    order = (*(each for each in range(len(shape)) if each != axis), axis)
    moved = _op(call, "transpose", data, axes=order)
    rows = _op(call, "reshape", moved, newshape=(-1, shape[axis]))
    sums = _running_sums_of_rows(call, rows, attrs.exclusive, attrs.reverse)
    back = _op(call, "reshape", sums, newshape=tuple(shape[each] for each in order))
    result = _op(call, "transpose", back, axes=tuple(order.index(each) for each in range(len(shape))))
    return _cast(call, result, dtype)


_RUN = 64
"""Elements in a block of running sums."""


def _running_sums_of_rows(call: Call, rows: Expr, exclusive: bool, reverse: bool) -> Expr:
    count, length = rows.tensor_type.static_shape
    if length <= _RUN:
        compare = {(False, False): "less_equal", (True, False): "less", (False, True): "greater_equal"}
        places = _op(call, "arange", stop=length, dtype="int32")
        own = _op(call, "expand_dims", places, axis=1)
        is_summed = _op(call, compare.get((exclusive, reverse), "greater"), places, own)
        every = _op(call, "expand_dims", rows, axis=1)
        zero = const(0, rows.tensor_type.dtype)
        return _op(call, "sum", _op(call, "where", is_summed, every, zero), axis=(2,))
    blocks = -(-length // _RUN)
    padded = _op(call, "nn.pad", rows, pad_width=((0, 0), (0, blocks * _RUN - length)))
    short = _op(call, "reshape", padded, newshape=(count * blocks, _RUN))
    inner = _running_sums_of_rows(call, short, exclusive, reverse)
    totals = _op(call, "reshape", _op(call, "sum", short, axis=(1,)), newshape=(count, blocks))
    before = _op(call, "reshape", _running_sums_of_rows(call, totals, True, reverse), newshape=(count * blocks, 1))
    whole = _op(call, "reshape", _op(call, "add", inner, before), newshape=(count, blocks * _RUN))
    return _op(call, "strided_slice", whole, begin=(0,), end=(length,), strides=(1,), axes=(1,))


def _ordered(call: Call) -> Expr:
    """Places of elements along the last dimension, in int64, and the elements taken from there."""
    attrs, data = _attrs(call), call.args[0].tensor_type
    count = getattr(attrs, "k", 0)
    axis, extent = attrs.axis % data.rank, data.static_shape[attrs.axis % data.rank]
    count = count if count > 0 else extent
    wanted = getattr(attrs, "ret_type", "values" if call.op_name == "sort" else "indices")
    is_native = call.op_name == "topk" and axis == data.rank - 1 and wanted == "indices" and attrs.dtype == "int64"
    if is_native and data.dtype not in _WIDE:
        return call
    order = (*(each for each in range(data.rank) if each != axis), axis)
    back = tuple(order.index(each) for each in range(data.rank))
    moved = _cast(call, _transposed(call, call.args[0], order), _WIDE.get(data.dtype, data.dtype))
    found = _op(call, "topk", moved, k=count, axis=-1, is_ascend=attrs.is_ascend, ret_type="indices", dtype="int64")
    places = _transposed(call, found, back)
    indices = _cast(call, places, getattr(attrs, "dtype", "int64"))
    if wanted == "indices":
        return indices
    elements = _op(call, "gather", call.args[0], places, axis=axis)
    return elements if wanted == "values" else Tuple([elements, indices], call.span)


def _transposed(call: Call, data: Expr, axes: tuple[int, ...]) -> Expr:
    return data if axes == tuple(sorted(axes)) else _op(call, "transpose", data, axes=axes)


def _scattered_elements(call: Call) -> Expr:
    """Elements of the flattened data at places computed of all positions."""
    data, indices = call.args[0].tensor_type, call.args[1].tensor_type
    axis = _attrs(call).axis % data.rank
    parts = [
        _cast(call, call.args[1], "int64") if dimension == axis else _counted(call, dimension, indices.static_shape)
        for dimension in range(data.rank)
    ]
    place = _linear(call, parts, data.static_shape, [axis])
    return _scattered_rows(call, (prod(data.static_shape), 1), place, _attrs(call).reduction)


def _scattered_nd(call: Call) -> Expr:
    """Rows at places computed of tuples of positions."""
    data, indices = call.args[0].tensor_type, call.args[1].tensor_type
    depth = indices.static_shape[-1]
    extents, size = data.static_shape[:depth], prod(data.static_shape[depth:])
    if depth == 1 and data.rank == 2 and indices.rank == 2 and indices.dtype == "int64":
        return call
    if not depth:
        place: Expr = const(np.zeros(indices.static_shape[:-1], np.int64))
    else:
        tuples = _cast(call, call.args[1], "int64")
        columns = [_op(call, "take", tuples, const(np.int64(number)), axis=indices.rank - 1) for number in range(depth)]
        place = _linear(call, columns, extents, range(depth))
    return _scattered_rows(call, (prod(extents), size), place, _attrs(call).mode)


def _counted(call: Call, dimension: int, shape: Sequence[int]) -> Expr:
    """The position along a dimension, which broadcasts to `shape`."""
    places = _op(call, "arange", stop=shape[dimension], dtype="int64")
    return _op(call, "reshape", places, newshape=tuple(n if each == dimension else 1 for each, n in enumerate(shape)))


def _linear(call: Call, positions: Sequence[Expr], shape: Sequence[int], given: Sequence[int]) -> Expr:
    """The place of positions in a tensor of this shape, row by row; -1 where one of those `given` is outside."""
    place: Expr = const(np.int64(0))
    is_inside: Expr = const(np.bool_(True))
    for dimension, (position, extent) in enumerate(zip(positions, shape)):
        place = _op(call, "add", _op(call, "multiply", place, const(np.int64(extent))), position)
        if dimension in given:
            least = _op(call, "greater_equal", position, const(np.int64(0)))
            most = _op(call, "less", position, const(np.int64(extent)))
            is_inside = _op(call, "logical_and", is_inside, _op(call, "logical_and", least, most))
    return _op(call, "where", is_inside, place, const(np.int64(-1)))


def _scattered_rows(call: Call, rows: tuple[int, int], place: Expr, mode: str) -> Expr:
    data, updates = call.args[0], call.args[2]
    shape, count = data.tensor_type.static_shape, place.tensor_type.num_elements
    if not prod(rows) or not count:
        return data
    places = _op(call, "reshape", place, newshape=(count, 1))
    matrix = _op(call, "reshape", data, newshape=rows)
    new = _op(call, "reshape", updates, newshape=(count, rows[1]))
    return _op(call, "reshape", _op(call, "scatter_nd", matrix, places, new, mode=mode), newshape=shape)


def _power(call: Call) -> Expr:
    """A root, whatever a C compiler takes a power of one half for: that of -0 is 0, and that of -inf inf."""
    base, exponent = call.args
    if not isinstance(exponent, Constant) or exponent.is_weight or exponent.data.size != 1:
        return call
    if exponent.data.item() != 0.5 or base.checked_type != call.checked_type:
        return call
    root = _op(call, "sqrt", _op(call, "add", base, _scalar(call, 0.0)))
    return _op(call, "where", _op(call, "equal", base, _scalar(call, -np.inf)), _scalar(call, np.inf), root)


_RULES: dict[str, Rule] = {
    "power": _power,
    "scatter_elements": _scattered_elements,
    "scatter_nd": _scattered_nd,
    "sort": _ordered,
    "argsort": _ordered,
    "topk": _ordered,
    "cumsum": _running_sum,
    "nn.softmax": _softmax,
    "nn.log_softmax": _softmax,
    "mean": _mean,
    "sum": _sum,
    "prod": _sum,
    "shape_of": _shape_of,
    "nn.l2_normalize": _l2_normalize,
    "nn.lrn": _lrn,
    "variance": _variance,
    "nn.layer_norm": _layer_norm,
    "nn.instance_norm": _instance_norm,
    "nn.group_norm": _group_norm,
    "nn.adaptive_avg_pool2d": _adaptive_pool,
    "concatenate": _concatenate,
    "nn.dropout": _identity,
    "copy": _identity,
    "image.resize2d": _resize,
    "argmax": _arg_reduce,
    "argmin": _arg_reduce,
}
