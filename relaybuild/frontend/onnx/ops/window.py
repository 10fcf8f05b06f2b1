"""Convolution and pooling; one spatial axis is computed as two, the first of extent 1, three as planes of two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.ops import _planes
from relaybuild.frontend.onnx.ops._geometry import Window
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


def _window(node: Node, kernel: tuple[int, ...], extents: tuple[int, ...]) -> Window:
    count = _count(node, extents)
    strides = _per_axis(node, "strides", count)
    dilations = _per_axis(node, "dilations", count)
    if len(kernel) != count:
        raise node.fail(f"the kernel has {len(kernel)} spatial axes {kernel}, the data {count}")
    return Window(kernel, strides, dilations, _pads(node, kernel, strides, dilations, extents))


def _count(node: Node, extents: Sequence[int]) -> int:
    """How many spatial axes there are."""
    count = len(extents)
    if count not in (1, 2, 3):
        raise node.unsupported(f"{node.op_type} over {count} spatial axes (data of rank {count + 2})")
    return count


def _per_axis(node: Node, name: str, count: int) -> tuple[int, ...]:
    values = node.ints_attr(name, (1,) * count)
    if len(values) != count or min(values) < 1:
        raise node.fail(f"attribute '{name}' is {values}, expected {count} positive numbers")
    return values


def _pads(
    node: Node,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extents: Sequence[int],
) -> tuple[int, ...]:
    mode = node.str_attr("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = node.ints_attr("pads", (0,) * (2 * len(kernel)))
        if len(pads) != 2 * len(kernel) or min(pads) < 0:
            raise node.fail(f"attribute 'pads' is {pads}, expected {2 * len(kernel)} numbers, none below 0")
        return pads
    if mode == "VALID":
        return (0,) * (2 * len(kernel))
    totals = [
        max((math.ceil(extent / stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        for size, stride, dilation, extent in zip(kernel, strides, dilations, extents)
    ]
    return _split_pads(node, mode, totals)


def _split_pads(node: Node, mode: str, totals: Sequence[int]) -> tuple[int, ...]:
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise node.fail(f"auto_pad is '{mode}', expected NOTSET, SAME_UPPER, SAME_LOWER or VALID")
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small)]
    return (*large, *small) if mode == "SAME_LOWER" else (*small, *large)


def _kernel(node: Node) -> tuple[int, ...]:
    shape = node.shape(1)
    if node.rank(0) < 3 or len(shape) != node.rank(0):
        raise node.fail(f"data of rank {node.rank(0)} and weight of shape {shape}, expected one rank, at least 3")
    kernel = shape[2:]
    declared = node.find_ints_attr("kernel_shape")
    if declared is not None and declared != kernel:
        raise node.fail(f"attribute 'kernel_shape' is {declared}, the weight's shape is {shape}")
    return kernel


def _to_2d(node: Node, expr: Expr) -> Expr:
    return node.expand_dims(expr, 2) if expr.tensor_type.rank == 3 else expr


def _from_2d(node: Node, expr: Expr) -> Expr:
    return node.squeeze(expr, 2) if node.rank(0) == 3 else expr


@converter("Conv")
def conv(node: Node) -> Expr:
    window, groups = _window(node, _kernel(node), node.shape(0)[2:]), node.int_attr("group", 1)
    if len(window.kernel) == 3:
        return _planes.convolved(node, window, groups, lambda result: _biased(node, result))
    window = window.to_2d()
    result = node.call(
        "nn.conv2d",
        _to_2d(node, node.get(0)),
        _to_2d(node, node.get(1)),
        strides=window.strides,
        padding=window.pads,
        dilation=window.dilations,
        groups=groups,
    )
    return _from_2d(node, _biased(node, result))


@converter("ConvTranspose")
def conv_transpose(node: Node) -> Expr:
    kernel, extents = _kernel(node), node.shape(0)[2:]
    count, groups = _count(node, extents), node.int_attr("group", 1)
    strides, dilations = _per_axis(node, "strides", count), _per_axis(node, "dilations", count)
    extra = node.ints_attr("output_padding", (0,) * count)
    pads, extra = _transposed_pads(node, kernel, strides, dilations, extents, extra)
    window = Window(kernel, strides, dilations, pads)
    if count == 3:
        return _planes.transposed(node, window, extra, groups, lambda result: _biased(node, result))
    window = window.to_2d()
    result = node.call(
        "nn.conv2d_transpose",
        _to_2d(node, node.get(0)),
        _to_2d(node, node.get(1)),
        strides=window.strides,
        padding=window.pads,
        output_padding=(0,) * (2 - count) + extra,
        dilation=window.dilations,
        groups=groups,
    )
    return _from_2d(node, _biased(node, result))


def _transposed_pads(
    node: Node,
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
    extents: tuple[int, ...],
    extra: tuple[int, ...],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(pads, output padding), from `pads`, or so that the output gets `output_shape`, or stride times the input."""
    mode = node.str_attr("auto_pad", "NOTSET")
    wanted = node.find_ints_attr("output_shape")
    if wanted is None and mode in ("NOTSET", "VALID"):
        return _pads(node, kernel, strides, dilations, extents), extra
    outputs = wanted or tuple(extent * stride for extent, stride in zip(extents, strides))
    if len(outputs) != len(kernel):
        raise node.fail(f"attribute 'output_shape' is {outputs}, expected {len(kernel)} numbers")
    totals = [
        stride * (extent - 1) + padding + (size - 1) * dilation + 1 - output
        for stride, extent, padding, size, dilation, output in zip(strides, extents, extra, kernel, dilations, outputs)
    ]
    grown = tuple(padding + max(-total, 0) for padding, total in zip(extra, totals))
    lower = "SAME_UPPER" if mode == "SAME_UPPER" else "SAME_LOWER"
    return _split_pads(node, lower, [max(total, 0) for total in totals]), grown


def _biased(node: Node, result: Expr) -> Expr:
    bias = node.find(2)
    return result if bias is None else node.call("nn.bias_add", result, bias, axis=1)


@converter("MaxPool")
def max_pool(node: Node) -> Expr:
    return _pool(node, "nn.max_pool2d")


@converter("AveragePool")
def average_pool(node: Node) -> Expr:
    return _pool(node, "nn.avg_pool2d", count_include_pad=node.flag("count_include_pad"))


def _pool(node: Node, name: str, **attrs: object) -> Expr:
    if node.rank(0) < 3:
        raise node.fail(f"data has rank {node.rank(0)}, expected at least 3")
    window = _window(node, node.ints_attr("kernel_shape"), node.shape(0)[2:])
    dtype = node.dtype(0)
    # float32 holds whole numbers so short
    data = node.cast(node.get(0), "float32") if dtype in ("int8", "uint8") else node.get(0)

    def pool(data: Expr, window: Window) -> Expr:
        geometry = {"strides": window.strides, "padding": window.pads, "dilation": window.dilations}
        return node.call(name, data, pool_size=window.kernel, ceil_mode=node.flag("ceil_mode"), **geometry, **attrs)

    if len(window.kernel) == 3:
        return node.cast(_planes.pooled(node, data, window, pool), dtype)
    return _from_2d(node, node.cast(pool(_to_2d(node, data), window.to_2d()), dtype))


@converter("LpPool")
def lp_pool(node: Node) -> Expr:
    """(sum of |x|**p in a window)**(1/p); what lies beyond the data counts as zeros."""
    order, extents = _order(node), node.shape(0)[2:]
    window = _window(node, node.ints_attr("kernel_shape"), extents)
    pads = list(window.pads)
    for axis, (extent, size) in enumerate(zip(extents, window.kernel)):
        stride, covered = window.strides[axis], (size - 1) * window.dilations[axis] + 1
        spare = (extent + pads[axis] + pads[axis + len(extents)] - covered) % stride
        if node.flag("ceil_mode") and spare:
            pads[axis + len(extents)] += stride - spare
    widths = ((0, 0), (0, 0), *((pads[axis], pads[axis + len(extents)]) for axis in range(len(extents))))
    powers = node.call("nn.pad", _power(node, node.call("abs", node.get(0)), order), pad_width=widths)
    attrs = {name: value for name, value in node.attrs.items() if name in ("kernel_shape", "strides", "dilations")}
    means = _pool(replace(node, inputs=(powers,), attrs=attrs), "nn.avg_pool2d", count_include_pad=True)
    return _power(node, node.call("multiply", means, node.like(math.prod(window.kernel), means)), 1 / order)


@converter("GlobalLpPool")
def global_lp_pool(node: Node) -> Expr:
    order = _order(node)
    powers = _power(node, node.call("abs", node.get(0)), order)
    return _power(node, node.call("sum", powers, axis=tuple(range(2, node.rank(0))), keepdims=True), 1 / order)


def _order(node: Node) -> int:
    order = node.int_attr("p", 2)
    if order < 1:
        raise node.fail(f"attribute 'p' is {order}, expected a positive number")
    return order


def _power(node: Node, data: Expr, exponent: float) -> Expr:
    if exponent == 1:
        return data
    if exponent == 2:
        return node.call("multiply", data, data)
    return node.call("sqrt", data) if exponent == 0.5 else node.call("power", data, node.like(exponent, data))


@converter("Col2Im", since=18)
def col2im(node: Node) -> Expr:
    """Columns, a block each, summed where blocks overlap: a transposed convolution in which a channel is one place."""
    image, block = node.ints(1, "image_shape"), node.ints(2, "block_shape")
    if node.rank(0) != 3:
        raise node.fail(f"data has rank {node.rank(0)}, expected 3")
    batch, rows, columns = node.shape(0)
    size = math.prod(block)
    if min(block, default=0) < 1 or len(image) != len(block) or rows % size:
        raise node.fail(f"{rows} rows are no blocks of shape {block} in an image of shape {image}")
    strides, dilations = (_per_axis(node, name, len(block)) for name in ("strides", "dilations"))
    pads = node.ints_attr("pads", (0,) * (2 * len(block)))
    if len(pads) != 2 * len(block):
        raise node.fail(f"attribute 'pads' is {pads}, expected {2 * len(block)} numbers")
    spans = [
        extent + pads[axis] + pads[axis + len(block)] - (block[axis] - 1) * dilations[axis] - 1
        for axis, extent in enumerate(image)
    ]
    counts = tuple(span // stride + 1 for span, stride in zip(spans, strides))
    if math.prod(counts) != columns:
        raise node.fail(f"there are {columns} columns, expected {math.prod(counts)}: {counts} blocks")
    channels, dtype = rows // size, node.dtype(0)
    places = np.tile(np.eye(size).reshape(size, 1, *block), (channels, *(1,) * (len(block) + 1)))
    data = node.reshape(node.get(0), (batch, rows, *counts))
    attrs = {"group": channels, "strides": strides, "dilations": dilations, "pads": pads}
    attrs["output_padding"] = tuple(span % stride for span, stride in zip(spans, strides))
    return conv_transpose(replace(node, inputs=(data, node.const(places, dtype)), attrs=attrs))


@converter("GlobalAveragePool")
def global_average_pool(node: Node) -> Expr:
    return _global_pool(node, "nn.global_avg_pool2d", "mean")


@converter("GlobalMaxPool")
def global_max_pool(node: Node) -> Expr:
    return _global_pool(node, "nn.global_max_pool2d", "max")


def _global_pool(node: Node, pool: str, reduction: str) -> Expr:
    if node.rank(0) == 4:
        return node.call(pool, node.get(0))
    return node.call(reduction, node.get(0), axis=tuple(range(2, node.rank(0))), keepdims=True)
