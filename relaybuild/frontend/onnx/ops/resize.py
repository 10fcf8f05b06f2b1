"""Resize and Upsample, two axes at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_COORDINATES = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
_ROUNDING = {
    "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round",
    "floor": "floor",
    "ceil": "ceil",
}


@converter("Resize", since=11)
def resize(node: Node) -> Expr:
    """Inputs are X, roi, scales, sizes; from opset 18 on `axes` says which axes the last two count for."""
    shape = node.shape(0)
    axes = tuple(node.axis(axis, len(shape)) for axis in node.find_ints_attr("axes") or range(len(shape)))
    sizes, scales = _extents(node, axes)
    return _resized(
        node, sizes, scales, _coordinates(node, scales), node.str_attr("nearest_mode", "round_prefer_floor")
    )


@converter("Upsample", since=9)
@converter("Resize", since=10)
def upsample(node: Node) -> Expr:
    shape = node.shape(0)
    scales = _numbers(node, 1, "scales", tuple(range(len(shape)))) or [1.0] * len(shape)
    sizes = [math.floor(extent * scale) for extent, scale in zip(shape, scales)]
    return _resized(node, sizes, scales, "asymmetric", "floor")


def _extents(node: Node, axes: Sequence[int]) -> tuple[list[int], list[float]]:
    shape = node.shape(0)
    sizes, scales = list(shape), [1.0] * len(shape)
    given = _numbers(node, 2, "scales", axes)
    wanted = _numbers(node, 3, "sizes", axes)
    if (given is None) == (wanted is None):
        raise node.fail("expected either 'scales' (input 2) or 'sizes' (input 3)")
    policy = node.str_attr("keep_aspect_ratio_policy", "stretch")
    if wanted is not None and policy != "stretch":
        choose = {"not_larger": min, "not_smaller": max}.get(policy)
        if choose is None:
            raise node.fail(f"keep_aspect_ratio_policy is '{policy}'")
        common = choose(size / shape[axis] for axis, size in zip(axes, wanted))
        wanted = [math.floor(common * shape[axis] + 0.5) for axis in axes]
        given = [common] * len(axes)
        policy = "keep"
    for position, axis in enumerate(axes):
        if wanted is not None:
            sizes[axis] = int(wanted[position])
            scales[axis] = given[position] if given else sizes[axis] / max(shape[axis], 1)
        elif given is not None:
            scales[axis] = given[position]
            sizes[axis] = math.floor(shape[axis] * scales[axis])
    return sizes, scales


def _numbers(node: Node, index: int, what: str, axes: Sequence[int]) -> list[float] | None:
    if node.find(index) is None:
        return None
    values: list[float] = node.numbers(index, what).reshape(-1).tolist()
    if not values:
        return None
    if len(values) != len(axes) or min(values) <= 0:
        raise node.fail(f"'{what}' is {values}, expected {len(axes)} positive numbers")
    return values


def _coordinates(node: Node, scales: Sequence[float]) -> str:
    mode = node.str_attr("coordinate_transformation_mode", "half_pixel")
    if mode == "half_pixel_symmetric" and all(
        float(extent * scale).is_integer() for extent, scale in zip(node.shape(0), scales)
    ):
        return "half_pixel"
    if mode not in _COORDINATES:
        raise node.unsupported(f"coordinate_transformation_mode '{mode}'")
    return mode


def _resized(node: Node, sizes: Sequence[int], scales: Sequence[float], coordinates: str, rounding: str) -> Expr:
    shape, method = node.shape(0), node.str_attr("mode", "nearest")
    if 0 in sizes or 0 in shape:
        raise node.fail(f"data of shape {shape} resized to {tuple(sizes)} has no elements")
    if method not in _METHODS or rounding not in _ROUNDING:
        raise node.fail(f"mode '{method}' with nearest_mode '{rounding}' is unknown")
    if node.flag("antialias") and method != "nearest" and min(scales, default=1.0) < 1.0:
        raise node.unsupported("antialias where the size shrinks")
    moved = [axis for axis, scale in enumerate(scales) if scale != 1.0 or sizes[axis] != shape[axis]]
    if not moved:
        return node.get(0)
    data, extents = node.get(0), list(shape)
    while moved:
        moved, now = moved[:-2], moved[-2:]
        for axis in now:
            extents[axis] = sizes[axis]
        order, restored = _last(len(shape), _spatial(now, len(shape)))
        step = _Step(order, tuple(extents), tuple(scales[axis] if axis in now else 1.0 for axis in order[-2:]))
        data = node.transpose(_two_axes(node, data, step, coordinates, rounding), restored)
    return data


class _Step(NamedTuple):
    """The resizing of two axes at most: the order of axes that puts them last, all extents behind it, their scales."""

    order: tuple[int, ...]
    extents: tuple[int, ...]
    scales: tuple[float, ...]


def _two_axes(node: Node, data: Expr, step: _Step, coordinates: str, rounding: str) -> Expr:
    """The result with its axes in the order of the step."""
    data = node.transpose(data, step.order)
    target = tuple(step.extents[axis] for axis in step.order)
    result = node.call(
        "image.resize2d",
        node.reshape(data, _four(data.tensor_type.static_shape)),
        size=target[-2:] if len(target) > 1 else (1, *target),
        layout="NCHW",
        method=_METHODS[node.str_attr("mode", "nearest")],
        coordinate_transformation_mode=coordinates,
        rounding_method=_ROUNDING[rounding],
        cubic_alpha=node.float_attr("cubic_coeff_a", -0.75),
        cubic_exclude=node.int_attr("exclude_outside", 0),
        extrapolation_value=node.float_attr("extrapolation_value", 0.0),
        scales=step.scales if len(step.scales) > 1 else (1.0, *step.scales),
    )
    return node.reshape(result, target)


def _spatial(moved: Sequence[int], rank: int) -> tuple[int, ...]:
    """The one or two axes to resize; a lone axis takes its neighbour along, unchanged."""
    if len(moved) == 2 or rank == 1:
        return tuple(moved)
    axis = moved[0]
    return (axis - 1, axis) if axis == rank - 1 or axis - 1 >= 2 else (axis, axis + 1)


def _last(rank: int, spatial: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The order of axes that puts `spatial` last, and the order that undoes it."""
    order = (*(axis for axis in range(rank) if axis not in spatial), *spatial)
    return order, tuple(order.index(axis) for axis in range(rank))


def _four(shape: Sequence[int]) -> tuple[int, int, int, int]:
    if len(shape) == 1:
        return 1, 1, 1, shape[0]
    batch = shape[0] if len(shape) > 3 else 1
    return batch, math.prod(shape[1:-2] if len(shape) > 3 else shape[:-2]), shape[-2], shape[-1]
