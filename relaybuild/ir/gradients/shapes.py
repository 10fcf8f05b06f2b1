"""Gradients of operators that move elements: shapes, slices, joins, repetition, padding."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from relaybuild.ir.expr import Call, Constant, Expr, Tuple
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, inverse, laid_out, reshaped, sum_to, summed, transposed, zeros
from relaybuild.ir.op import Op, call_op
from relaybuild.ir.ops.strided_slice import StridedSliceAttrs, resolve_slices
from relaybuild.ir.ops.transpose import TransposeAttrs, resolve_axes
from relaybuild.ir.types import TensorType, TupleType


def _shape(value: Expr) -> tuple[int, ...]:
    return value.tensor_type.static_shape


def _reshape(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [reshaped(grad, _shape(call.args[0]))]


def _broadcast_to(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [sum_to(grad, call.args[0].tensor_type)]


def _transpose(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = call.attrs
    assert isinstance(attrs, TransposeAttrs)
    return [transposed(grad, inverse(resolve_axes(attrs, call.args[0].tensor_type.rank)))]


def _same_call(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """Of a linear operator that is its own transpose."""
    return [Call(call.op, [grad], call.attrs)]


def _concatenate(call: Call, grad: Expr) -> Sequence[Expr | None]:
    kind = call.args[0].checked_type
    assert isinstance(kind, TupleType)
    axis: int = attrs_of(call).axis % grad.tensor_type.rank
    parts: list[Expr] = []
    begin = 0
    for field in kind.fields:
        assert isinstance(field, TensorType)
        end = begin + field.static_shape[axis]
        parts.append(call_op("strided_slice", [grad], begin=(begin,), end=(end,), axes=(axis,)))
        begin = end
    return [Tuple(parts)]


def _stack(call: Call, grad: Expr) -> Sequence[Expr | None]:
    kind = call.args[0].checked_type
    assert isinstance(kind, TupleType)
    axis: int = attrs_of(call).axis % grad.tensor_type.rank
    slices = (
        call_op("strided_slice", [grad], begin=(number,), end=(number + 1,), axes=(axis,))
        for number in range(len(kind.fields))
    )
    return [Tuple([call_op("squeeze", [part], axis=(axis,)) for part in slices])]


def _split(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [call_op("concatenate", [grad], axis=attrs_of(call).axis)]


def _strided_slice(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = call.attrs
    assert isinstance(attrs, StridedSliceAttrs)
    shape = _shape(call.args[0])
    for axis, part in resolve_slices(shape, attrs).items():
        grad = unsliced(grad, axis, part, shape[axis])
    return [grad]


def unsliced(grad: Expr, axis: int, part: range, extent: int) -> Expr:
    """`grad` at the positions `part` of an axis of that extent, zeros between."""
    shape = list(_shape(grad))
    if not part:
        shape[axis] = extent
        return zeros(TensorType(tuple(shape), grad.tensor_type.dtype))
    if part.step < 0:
        grad, part = call_op("reverse", [grad], axis=(axis,)), part[::-1]
    if part.step > 1:
        grad = _spaced(grad, axis, part.step)
    before = part[0]
    after = extent - before - _shape(grad)[axis]
    return _padded(grad, axis, before, after)


def _spaced(grad: Expr, axis: int, step: int) -> Expr:
    """Each element followed by step - 1 zeros along the axis."""
    shape = list(_shape(grad))
    apart = reshaped(grad, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    shape[axis] *= step
    return reshaped(_padded(apart, axis + 1, 0, step - 1), shape)


def _padded(value: Expr, axis: int, before: int, after: int) -> Expr:
    """Zeros added along the axis; negative counts cut off."""
    if not before and not after:
        return value
    widths = [(0, 0)] * value.tensor_type.rank
    widths[axis] = (before, after)
    return call_op("nn.pad", [value], pad_width=tuple(widths))


def _pad(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    if attrs.pad_mode != "constant":
        return _selection(call, grad)
    widths: Sequence[tuple[int, int]] = attrs.pad_width
    return [call_op("nn.pad", [grad], pad_width=tuple((-before, -after) for before, after in widths))]


def _layout_transform(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [laid_out(grad, attrs_of(call).dst_layout, attrs_of(call).src_layout)]


def _selection(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """Of an operator that picks elements of one argument: what it does to their numbers says where they go back."""
    data = call.args[0]
    shape = _shape(data)
    numbers = np.arange(prod(shape), dtype=np.int64).reshape(shape)
    assert isinstance(call.op, Op)
    places = np.ascontiguousarray(call.op.evaluate([numbers], call.attrs)).reshape(-1, 1)
    flat = zeros(TensorType((prod(shape),), grad.tensor_type.dtype))
    index = Constant(places)
    total = call_op("scatter_nd", [flat, index, reshaped(grad, (places.size,))], mode="add")
    return [reshaped(total, shape)]


def _tile(call: Call, grad: Expr) -> Sequence[Expr | None]:
    shape, result = _shape(call.args[0]), _shape(grad)
    wide = (*(1,) * (len(result) - len(shape)), *shape)
    apart = [number for extent, whole in zip(wide, result) for number in (whole // extent if extent else 0, extent)]
    if 0 in apart:
        return [zeros(call.args[0].tensor_type)]
    total = summed(reshaped(grad, apart), range(0, len(apart), 2))
    return [reshaped(total, shape)]


def _repeat(call: Call, grad: Expr) -> Sequence[Expr | None]:
    shape = _shape(call.args[0])
    repeats, axis = attrs_of(call).repeats, attrs_of(call).axis
    if not repeats or 0 in shape:
        return [zeros(call.args[0].tensor_type)]
    flat = (prod(shape),) if axis is None else shape
    axis = 0 if axis is None else axis % len(shape)
    apart = reshaped(grad, [*flat[: axis + 1], repeats, *flat[axis + 1 :]])
    return [reshaped(summed(apart, [axis + 1]), shape)]


def _depth_to_space(call: Call, grad: Expr) -> Sequence[Expr | None]:
    block: int = attrs_of(call).block_size
    if attrs_of(call).mode == "DCR":
        return [call_op("nn.space_to_depth", [grad], block_size=block)]
    batch, depth, rows, columns = _shape(grad)
    apart = reshaped(grad, (batch, depth, rows // block, block, columns // block, block))
    return [reshaped(transposed(apart, (0, 1, 3, 5, 2, 4)), _shape(call.args[0]))]


def _space_to_depth(call: Call, grad: Expr) -> Sequence[Expr | None]:
    return [call_op("nn.depth_to_space", [grad], block_size=attrs_of(call).block_size, mode="DCR")]


def _space_to_batch(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    return [call_op("nn.batch_to_space_nd", [grad], block_shape=attrs.block_shape, crops=attrs.paddings)]


def _batch_to_space(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    return [call_op("nn.space_to_batch_nd", [grad], block_shape=attrs.block_shape, paddings=attrs.crops)]


RULES: dict[str, GradientRule] = {
    "reshape": _reshape,
    "nn.batch_flatten": _reshape,
    "expand_dims": _reshape,
    "squeeze": _reshape,
    "broadcast_to": _broadcast_to,
    "transpose": _transpose,
    "layout_transform": _layout_transform,
    "reverse": _same_call,
    "trilu": _same_call,
    "concatenate": _concatenate,
    "stack": _stack,
    "split": _split,
    "strided_slice": _strided_slice,
    "nn.pad": _pad,
    "tile": _tile,
    "repeat": _repeat,
    "nn.depth_to_space": _depth_to_space,
    "nn.space_to_depth": _space_to_depth,
    "nn.space_to_batch_nd": _space_to_batch,
    "nn.batch_to_space_nd": _batch_to_space,
}
