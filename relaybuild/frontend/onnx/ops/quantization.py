"""Linear quantization, composed of arithmetic; per tensor or per axis."""

from __future__ import annotations

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


def _along(node: Node, parameter: Expr, rank: int, axis: int) -> Expr:
    """A scale or zero point, reshaped to broadcast along its axis."""
    if parameter.tensor_type.num_elements == 1:
        return node.reshape(parameter, ())
    if parameter.tensor_type.rank != 1:
        raise node.unsupported("blocked quantization")
    extent = parameter.tensor_type.static_shape[0]
    return node.reshape(parameter, tuple(extent if position == axis else 1 for position in range(rank)))


def _parameters(node: Node) -> tuple[Expr, Expr | None]:
    rank = node.rank(0)
    axis = node.axis(node.int_attr("axis", 1), rank) if node.type_of(node.get(1)).num_elements != 1 else 0
    zero = node.find(2)
    return _along(node, node.get(1), rank, axis), None if zero is None else _along(node, zero, rank, axis)


@converter("DequantizeLinear")
def dequantize_linear(node: Node) -> Expr:
    scale, zero = _parameters(node)
    wide = scale.tensor_type.dtype
    data = node.cast(node.get(0), wide)
    if zero is not None:
        data = node.call("subtract", data, node.cast(zero, wide))
    return node.cast(node.call("multiply", data, scale), node.dtype_attr("output_dtype", wide))


@converter("QuantizeLinear")
def quantize_linear(node: Node) -> Expr:
    scale, zero = _parameters(node)
    wide = node.dtype_attr("precision", scale.tensor_type.dtype)
    dtype = zero.tensor_type.dtype if zero is not None else node.dtype_attr("output_dtype", "uint8")
    if np.dtype(dtype).kind not in "iu":
        raise node.fail(f"the zero point is {dtype}, expected an integer type")
    ratio = node.call("divide", node.cast(node.get(0), wide), node.cast(scale, wide))
    return _saturated(node, ratio, zero, dtype)


def _saturated(node: Node, ratio: Expr, zero: Expr | None, dtype: str) -> Expr:
    rounded = node.cast(node.call("round", ratio), "float32")
    if zero is not None:
        rounded = node.call("add", rounded, node.cast(zero, "float32"))
    bounds = np.iinfo(np.dtype(dtype))
    return node.cast(node.call("clip", rounded, a_min=float(bounds.min), a_max=float(bounds.max)), dtype)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[Expr]:
    """To uint8 over the range of the data, which always contains 0."""
    data, zero = node.get(0), node.like(0, node.get(0))
    low = node.call("minimum", node.call("min", data), zero)
    high = node.call("maximum", node.call("max", data), zero)
    scale = node.call("divide", node.call("subtract", high, low), node.like(255, data))
    offset = _saturated(node, node.call("negative", node.call("divide", low, scale)), None, "uint8")
    return [_saturated(node, node.call("divide", data, scale), offset, "uint8"), scale, offset]


@converter("MatMulInteger")
def matmul_integer(node: Node) -> Expr:
    if node.rank(0) < 2 or node.rank(1) < 2:
        raise node.unsupported("MatMulInteger of vectors")
    left, right = (node.cast(node.get(index), "int32") for index in (0, 1))
    for position, index in ((0, 2), (1, 3)):
        zero = node.find(index)
        if zero is None:
            continue
        rank = node.rank(position)
        wide = node.cast(_along(node, zero, rank, rank - 2 if position == 0 else rank - 1), "int32")
        if position == 0:
            left = node.call("subtract", left, wide)
        else:
            right = node.call("subtract", right, wide)
    return node.call("nn.matmul", left, right)
