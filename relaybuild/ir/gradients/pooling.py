"""Gradients of pooling and resampling of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.expr import Call, Constant, Expr
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, laid_out, scalar, shares, spread
from relaybuild.ir.gradients.shapes import unsliced
from relaybuild.ir.op import Op, call_op
from relaybuild.ir.ops._windows import overhang
from relaybuild.ir.ops.global_pool2d import adaptive_windows
from relaybuild.ir.ops.pool2d import AvgPool2DAttrs, MaxPool2DAttrs, divisors

_IMAGE = (2, 3)


def _in_nchw(rule: GradientRule) -> GradientRule:
    """A rule for images in NCHW made one for images in any layout."""

    def in_any_layout(call: Call, grad: Expr) -> Sequence[Expr | None]:
        layout = attrs_of(call).layout
        if layout == "NCHW":
            return rule(call, grad)
        plain = Call(call.op, [laid_out(call.args[0], layout, "NCHW")], replace(attrs_of(call), layout="NCHW"))
        (found,) = rule(plain, laid_out(grad, layout, "NCHW"))
        return [found and laid_out(found, "NCHW", layout)]

    return in_any_layout


def _max_pool2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """Divided among the elements of a window that are its maximum."""
    data = call.args[0]
    attrs = attrs_of(call)
    shape, places = data.tensor_type.static_shape, grad.tensor_type.static_shape[2:]
    widths = _grown(shape[2:], places, attrs)
    padded = call_op("nn.pad", [data], pad_width=((0, 0), (0, 0), *widths), pad_value=float("-inf"))
    taps = [_tap(position, places, attrs) for position in np.ndindex(*attrs.pool_size)]
    equal = [call_op("equal", [_sliced(padded, tap), call]) for tap in taps]
    hits = [call_op("cast", [mask], dtype=data.tensor_type.dtype) for mask in equal]
    share = grad / reduce(lambda a, b: a + b, hits)
    extents = padded.tensor_type.static_shape[2:]
    back = [_unsliced_image(share * hit, tap, extents) for hit, tap in zip(hits, taps)]
    total = reduce(lambda a, b: a + b, back)
    return [_cropped(total, widths)]


def _grown(spatial: Sequence[int], places: Sequence[int], attrs: MaxPool2DAttrs) -> list[tuple[int, int]]:
    beyond = overhang(spatial, attrs.pool_size, places, attrs.strides, attrs.dilation, attrs.padding)
    return [(attrs.padding[axis], attrs.padding[axis + 2] + beyond[axis]) for axis in (0, 1)]


def _tap(position: Sequence[int], places: Sequence[int], attrs: MaxPool2DAttrs) -> list[range]:
    """The rows and columns of the padded image that one position of the window visits."""
    starts = [position[axis] * attrs.dilation[axis] for axis in (0, 1)]
    return [
        range(start, start + (count - 1) * stride + 1, stride)
        for start, count, stride in zip(starts, places, attrs.strides)
    ]


def _sliced(image: Expr, tap: Sequence[range]) -> Expr:
    begin, end, strides = (tuple(getattr(part, name) for part in tap) for name in ("start", "stop", "step"))
    return call_op("strided_slice", [image], begin=begin, end=end, strides=strides, axes=_IMAGE)


def _unsliced_image(grad: Expr, tap: Sequence[range], extents: Sequence[int]) -> Expr:
    for axis, part, extent in zip(_IMAGE, tap, extents):
        grad = unsliced(grad, axis, part, extent)
    return grad


def _cropped(image: Expr, widths: Sequence[tuple[int, int]]) -> Expr:
    cut = tuple((-before, -after) for before, after in widths)
    return call_op("nn.pad", [image], pad_width=((0, 0), (0, 0), *cut)) if any(map(any, cut)) else image


def _avg_pool2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    attrs = attrs_of(call)
    assert isinstance(attrs, AvgPool2DAttrs)
    kind = call.args[0].tensor_type
    places = grad.tensor_type.static_shape[2:]
    with np.errstate(divide="ignore"):
        weights = np.nan_to_num(1 / divisors(kind.static_shape[2:], attrs), posinf=0.0)
    share = grad * Constant(weights.astype(kind.dtype))
    channels = kind.static_shape[1]
    window = call_op("full", [], shape=(channels, 1, *attrs.pool_size), fill_value=1.0, dtype=kind.dtype)
    widths = _grown(kind.static_shape[2:], places, attrs)
    missing = []
    for axis in (0, 1):
        reached = (places[axis] - 1) * attrs.strides[axis] + (attrs.pool_size[axis] - 1) * attrs.dilation[axis] + 1
        missing.append(kind.static_shape[axis + 2] + sum(widths[axis]) - reached)
    return [
        call_op(
            "nn.conv2d_transpose",
            [share, window],
            strides=attrs.strides,
            padding=tuple(width[side] for side in (0, 1) for width in widths),
            dilation=attrs.dilation,
            groups=channels,
            output_padding=tuple(missing),
        )
    ]


def _global_avg_pool2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    shape = call.args[0].tensor_type.static_shape
    return [spread(grad * scalar(1 / prod(shape[2:]), grad), _IMAGE, shape)]


def _global_max_pool2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data = call.args[0]
    shape = data.tensor_type.static_shape
    return [spread(grad, _IMAGE, shape) * shares(data, spread(call, _IMAGE, shape), _IMAGE)]


def _adaptive_avg_pool2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    extents, places = (value.tensor_type.static_shape[2:] for value in (call.args[0], grad))
    rows, columns = (_averages(extent, count) for extent, count in zip(extents, places))
    return [_resampled_back(grad, rows, columns)]


def _averages(extent: int, places: int) -> NDArray[np.float64]:
    """(places, extent): the mean over each window."""
    matrix = np.zeros((places, extent))
    for place, (begin, end) in enumerate(adaptive_windows(extent, places)):
        matrix[place, begin:end] = 1 / (end - begin)
    return matrix


def _resize2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    extents = call.args[0].tensor_type.static_shape[2:]
    rows, columns = (_resampling(call, extents[axis], attrs_of(call).size[axis], axis) for axis in (0, 1))
    return [_resampled_back(grad, rows, columns)]


def _resampling(call: Call, extent: int, places: int, axis: int) -> NDArray[np.float64]:
    """(places, extent): how one axis is resampled, found by resampling the rows of an identity matrix."""
    attrs = attrs_of(call)
    scales = (attrs.scales[axis], 1.0) if attrs.scales else ()
    rows_only = replace(attrs, size=(places, extent), scales=scales)
    assert isinstance(call.op, Op)
    image: NDArray[np.float64] = call.op.evaluate([np.eye(extent)[None, None]], rows_only)
    return image.reshape(places, extent)


def _resampled_back(grad: Expr, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> Expr:
    """rowsᵀ · grad · columns for each channel of an NCHW image."""
    dtype = grad.tensor_type.dtype
    tall = call_op("nn.matmul", [Constant(rows.T.astype(dtype)), grad])
    return call_op("nn.matmul", [tall, Constant(columns.astype(dtype))])


RULES: dict[str, GradientRule] = {
    "nn.max_pool2d": _in_nchw(_max_pool2d),
    "nn.avg_pool2d": _in_nchw(_avg_pool2d),
    "nn.global_avg_pool2d": _in_nchw(_global_avg_pool2d),
    "nn.global_max_pool2d": _in_nchw(_global_max_pool2d),
    "nn.adaptive_avg_pool2d": _in_nchw(_adaptive_avg_pool2d),
    "image.resize2d": _in_nchw(_resize2d),
}
