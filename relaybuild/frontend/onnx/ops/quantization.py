"""Linear quantization, composed of arithmetic; per tensor or per axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter, find_converter
from relaybuild.ir.expr import Expr

_MICROSOFT = "com.microsoft"
"""The domain of onnxruntime's operators."""


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
    ratio = node.call("divide", node.cast(node.get(0), wide), node.cast(scale, wide))
    return _saturated(node, ratio, zero, dtype)


def _saturated(node: Node, ratio: Expr, zero: Expr | None, dtype: str) -> Expr:
    if np.dtype(dtype).kind not in "iu":
        raise node.fail(f"the zero point is {dtype}, expected an integer type")
    rounded = node.cast(node.call("round", ratio), "float32")
    if zero is not None:
        rounded = node.call("add", rounded, node.cast(zero, "float32"))
    bounds = np.iinfo(np.dtype(dtype))
    return node.cast(node.call("clip", rounded, a_min=float(bounds.min), a_max=float(bounds.max)), dtype)


@converter("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node) -> list[Expr]:
    """To uint8 over the range of the data, which always contains 0; of zeros alone the scale is 1."""
    data, zero = node.get(0), node.like(0, node.get(0))
    low = node.call("minimum", node.call("min", data), zero)
    high = node.call("maximum", node.call("max", data), zero)
    span = node.call("divide", node.call("subtract", high, low), node.like(255, data))
    scale = node.call("where", node.call("equal", span, zero), node.like(1, data), span)
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


@converter("QLinearMatMul")
def qlinear_matmul(node: Node) -> Expr:
    """Sums of products of float32 numbers that are whole, which are exact up to 2^24, scaled and rounded once."""
    (left, left_scale), (right, right_scale) = (_centred(node, index) for index in (0, 3))
    sums = _converted(node, "MatMul", left, right)
    return _requantized(node, sums, left_scale, right_scale, sums.tensor_type.rank - 1)


@converter("QLinearConv")
def qlinear_conv(node: Node) -> Expr:
    """As `qlinear_matmul`; the bias has the scale of the sums."""
    (data, scale), (weight, weight_scale) = (_centred(node, index, axis=0) for index in (0, 3))
    bias = node.find(8)
    rest = () if bias is None else (node.cast(bias, "float32"),)
    return _requantized(node, _converted(node, "Conv", data, weight, *rest), scale, weight_scale, 1)


@converter("QGemm", domain=_MICROSOFT)
def qgemm(node: Node) -> Expr:
    """As `qlinear_matmul`; the bias has the scale of the sums, and without a scale of its own the result is float."""
    columns = 0 if node.flag("transB") else 1
    (left, left_scale), (right, right_scale) = _centred(node, 0, axis=0), _centred(node, 3, axis=columns)
    bias, alpha = node.find(6), node.float_attr("alpha", 1.0)
    rest = () if bias is None else (node.cast(bias, "float32"),)
    only = replace(node, attrs={name: node.flag(name) for name in ("transA", "transB")})
    sums = _converted(only, "Gemm", left, right, *rest)
    scale = node.call("multiply", left_scale, node.like(alpha, left_scale))
    if node.find(7) is not None:
        return _requantized(node, sums, scale, right_scale, 1, output=7)
    factor = node.call("multiply", _along(node, scale, 2, 0), _along(node, right_scale, 2, 1))
    return node.call("multiply", sums, factor)


@converter("ConvInteger")
def conv_integer(node: Node) -> Expr:
    """Sums of float32 numbers that are whole, to the nearest int32: as exact as float32 is, which large sums exceed."""
    data, weight = (node.cast(node.get(index), "float32") for index in (0, 1))
    if (zero := node.find(2)) is not None:
        data = node.call("subtract", data, node.cast(_along(node, zero, node.rank(0), 0), "float32"))
    if (zero := node.find(3)) is not None:
        weight = node.call("subtract", weight, node.cast(_along(node, zero, node.rank(1), 0), "float32"))
    return node.cast(node.call("round", _converted(node, "Conv", data, weight)), "int32")


def _converted(node: Node, op_type: str, *inputs: Expr) -> Expr:
    """What another operator makes of inputs, with the attributes of this one."""
    convert = find_converter("", op_type, node.opset)
    assert convert is not None
    result = convert(replace(node, domain="", op_type=op_type, inputs=inputs))
    assert isinstance(result, Expr)
    return result


def _centred(node: Node, index: int, axis: int | None = None) -> tuple[Expr, Expr]:
    """A quantized input without its zero point, which is the input after the next, in float32, and its scale.

    Parameters that are vectors lie along `axis` (default: of matrices, rows of the first, columns of the second).
    """
    rank = node.rank(index)
    along = axis if axis is not None else rank - 2 if index == 0 else rank - 1
    zero = node.cast(_along(node, node.get(index + 2), rank, along), "float32")
    return node.call("subtract", node.cast(node.get(index), "float32"), zero), node.get(index + 1)


def _requantized(node: Node, sums: Expr, scale: Expr, other: Expr, axis: int, output: int = 6) -> Expr:
    """Sums by both scales in terms of the output's, which is input number `output`, rounded and saturated.

    `scale` may lie along the rows of matrices, `other` and the output's along `axis`.
    """
    rank, zero = sums.tensor_type.rank, node.get(output + 1)
    places = ((scale, rank - 2), (other, axis), (node.get(output), axis))
    first, second, result = (_along(node, node.cast(each, "float32"), rank, along) for each, along in places)
    factor = node.call("divide", node.call("multiply", first, second), result)
    return _saturated(node, node.call("multiply", sums, factor), _along(node, zero, rank, axis), zero.tensor_type.dtype)


@converter("QLinearAdd", "QLinearMul", domain=_MICROSOFT)
def qlinear_arithmetic(node: Node) -> Expr:
    return _quantized_result(node, _dequantized(node, 0), _dequantized(node, 3), output=6)


@converter("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=_MICROSOFT)
def qlinear_activation(node: Node) -> Expr:
    return _quantized_result(node, _dequantized(node, 0), output=3)


@converter("QLinearAveragePool", "QLinearGlobalAveragePool", domain=_MICROSOFT)
def qlinear_pool(node: Node) -> Expr:
    if node.flag("channels_last"):
        raise node.unsupported("channels in the last axis")
    return _quantized_result(node, _dequantized(node, 0), output=3)


@converter("QLinearConcat", domain=_MICROSOFT)
def qlinear_concat(node: Node) -> Expr:
    parts = [_dequantized(node, index) for index in range(2, len(node.inputs), 3)]
    return _quantized_result(node, *parts, output=0)


def _dequantized(node: Node, index: int) -> Expr:
    """A quantized input as numbers; scale and zero point, which may be left out, are the inputs behind it."""
    data, scale = node.cast(node.get(index), "float32"), node.get(index + 1)
    if (zero := node.find(index + 2)) is not None:
        data = node.call("subtract", data, node.cast(_along(node, zero, 0, 0), "float32"))
    return node.call("multiply", data, _along(node, scale, 0, 0))


def _quantized_result(node: Node, *inputs: Expr, output: int) -> Expr:
    """What the operator without "QLinear" before its name makes of numbers, in terms of the scale and the zero point
    that begin with input `output`."""
    result = _converted(node, node.op_type.removeprefix("QLinear"), *inputs)
    zero = node.find(output + 1)
    dtype = node.dtype(0 if output else 2) if zero is None else zero.tensor_type.dtype
    ratio = node.call("divide", result, _along(node, node.get(output), 0, 0))
    return _saturated(node, ratio, None if zero is None else _along(node, zero, 0, 0), dtype)
