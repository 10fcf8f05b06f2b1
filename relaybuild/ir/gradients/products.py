"""Gradients of matrix products and convolutions, which are products and convolutions again."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.gradients import GradientRule
from relaybuild.ir.gradients._build import attrs_of, laid_out, pair_of, reshaped, sum_to, transposed
from relaybuild.ir.op import call_op
from relaybuild.ir.ops.conv2d import Conv2DAttrs
from relaybuild.ir.ops.conv2d_transpose import Conv2DTransposeAttrs


def _matmul(call: Call, grad: Expr) -> Sequence[Expr | None]:
    a, b = pair_of(call)
    ta: bool = attrs_of(call).transpose_a
    tb: bool = attrs_of(call).transpose_b
    if ta:
        to_a = call_op("nn.matmul", [b, grad], transpose_a=tb, transpose_b=True)
    else:
        to_a = call_op("nn.matmul", [grad, b], transpose_b=not tb)
    if tb:
        to_b = call_op("nn.matmul", [grad, a], transpose_a=True, transpose_b=ta)
    else:
        to_b = call_op("nn.matmul", [a, grad], transpose_a=not ta)
    return [sum_to(to_a, a.tensor_type), sum_to(to_b, b.tensor_type)]


def _dense(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data, weight = pair_of(call)
    rows = prod(data.tensor_type.static_shape[:-1])
    columns, inner = weight.tensor_type.static_shape
    to_data = call_op("nn.dense", [grad, transposed(weight, (1, 0))])
    left = transposed(reshaped(grad, (rows, columns)), (1, 0))
    right = transposed(reshaped(data, (rows, inner)), (1, 0))
    return [to_data, call_op("nn.dense", [left, right])]


def _conv2d(call: Call, grad: Expr) -> Sequence[Expr | None]:
    """In NCHW and OIHW, whatever the call's layouts are."""
    attrs = attrs_of(call)
    assert isinstance(attrs, Conv2DAttrs)
    data = laid_out(call.args[0], attrs.data_layout, "NCHW")
    weight = laid_out(call.args[1], attrs.kernel_layout, "OIHW")
    grad = laid_out(grad, attrs.out_layout or attrs.data_layout, "NCHW")
    to_data = _spread_windows(grad, weight, attrs, data.tensor_type.static_shape)
    to_weight = _correlated(data, grad, attrs, weight.tensor_type.static_shape)
    return [laid_out(to_data, "NCHW", attrs.data_layout), laid_out(to_weight, "OIHW", attrs.kernel_layout)]


def _spread_windows(grad: Expr, weight: Expr, attrs: Conv2DAttrs | Conv2DTransposeAttrs, shape: Sequence[int]) -> Expr:
    """What reaches the data of a convolution; rows and columns that no window reached are `output_padding`."""
    places, window = grad.tensor_type.static_shape[2:], weight.tensor_type.static_shape[2:]
    missing = []
    for axis in (0, 1):
        reached = (places[axis] - 1) * attrs.strides[axis] + (window[axis] - 1) * attrs.dilation[axis] + 1
        missing.append(shape[axis + 2] - (reached - attrs.padding[axis] - attrs.padding[axis + 2]))
    return call_op(
        "nn.conv2d_transpose",
        [grad, weight],
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        groups=attrs.groups,
        output_padding=tuple(missing),
    )


def _correlated(data: Expr, grad: Expr, attrs: Conv2DAttrs | Conv2DTransposeAttrs, shape: Sequence[int]) -> Expr:
    """What reaches the weights: the data correlated with `grad`, strides and dilation having changed places.

    The batch becomes the channels that are summed over, and the channels of a group the batch.
    """
    groups = attrs.groups
    batch, channels, rows, columns = data.tensor_type.static_shape
    inner, outputs = channels // groups, grad.tensor_type.static_shape[1]
    apart = transposed(reshaped(data, (batch, groups, inner, rows, columns)), (2, 1, 0, 3, 4))
    images = reshaped(apart, (inner, groups * batch, rows, columns))
    kernels = transposed(grad, (1, 0, 2, 3))
    found = call_op(
        "nn.conv2d",
        [images, kernels],
        strides=attrs.dilation,
        dilation=attrs.strides,
        padding=attrs.padding,
        groups=groups,
    )
    height, width = shape[2:]
    if found.tensor_type.static_shape[2:] != (height, width):
        found = call_op("strided_slice", [found], begin=(0, 0), end=(height, width), axes=(2, 3))
    assert found.tensor_type.static_shape == (inner, outputs, height, width)
    return transposed(found, (1, 0, 2, 3))


def _conv2d_transpose(call: Call, grad: Expr) -> Sequence[Expr | None]:
    data, weight = pair_of(call)
    attrs = call.attrs
    assert isinstance(attrs, Conv2DTransposeAttrs)
    to_data: Expr = call_op(
        "nn.conv2d",
        [grad, weight],
        strides=attrs.strides,
        padding=attrs.padding,
        dilation=attrs.dilation,
        groups=attrs.groups,
    )
    height, width = data.tensor_type.static_shape[2:]
    if to_data.tensor_type.static_shape[2:] != (height, width):
        to_data = call_op("strided_slice", [to_data], begin=(0, 0), end=(height, width), axes=(2, 3))
    return [to_data, _correlated(grad, data, attrs, weight.tensor_type.static_shape)]


RULES: dict[str, GradientRule] = {
    "nn.matmul": _matmul,
    "nn.dense": _dense,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d_transpose,
}
