"""Activation functions, composed of arithmetic where Relay has no operator of their own."""

from __future__ import annotations

import math

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


@converter("LeakyRelu")
def leaky_relu(node: Node) -> Expr:
    return node.call("nn.leaky_relu", node.get(0), alpha=node.float_attr("alpha", 0.01))


@converter("PRelu", since=7)
def prelu(node: Node) -> Expr:
    """One slope per channel is `nn.prelu`; any other that broadcasts is a choice by sign."""
    data, slope = node.get(0), node.get(1)
    shape, channels = node.shape(1), node.shape(0)[1:2]
    per_channel = math.prod(shape) == math.prod(channels) and shape[: 2 - node.rank(0)][-1:] == channels
    if node.rank(0) > 2 and len(shape) == node.rank(0) - 1 and per_channel:
        return node.call("nn.prelu", data, node.reshape(slope, channels), axis=1)
    negative = node.call("less", data, node.like(0, data))
    return node.call("where", negative, node.call("multiply", data, slope), data)


@converter("Elu")
def elu(node: Node) -> Expr:
    return _exponential_below_zero(node, node.get(0), node.float_attr("alpha", 1.0))


@converter("Selu")
def selu(node: Node) -> Expr:
    gamma = node.float_attr("gamma", _SELU_GAMMA)
    inner = _exponential_below_zero(node, node.get(0), node.float_attr("alpha", _SELU_ALPHA))
    return node.call("multiply", inner, node.like(gamma, inner))


@converter("Celu")
def celu(node: Node) -> Expr:
    alpha = node.float_attr("alpha", 1.0)
    if alpha == 0.0:
        raise node.fail("alpha is 0, expected another number")
    return _exponential_below_zero(node, node.get(0), alpha, 1.0 / alpha)


def _exponential_below_zero(node: Node, data: Expr, alpha: float, scale: float = 1.0) -> Expr:
    """x where x > 0, else alpha * (exp(scale * x) - 1); the exponent is bounded, since both sides are computed."""
    bounded = node.call("minimum", data, node.like(0, data))
    if scale != 1.0:
        bounded = node.call("multiply", bounded, node.like(scale, data))
    grown = node.call("subtract", node.call("exp", bounded), node.like(1, data))
    below = node.call("multiply", grown, node.like(alpha, data))
    return node.call("where", node.call("greater", data, node.like(0, data)), data, below)


@converter("ThresholdedRelu")
def thresholded_relu(node: Node) -> Expr:
    data = node.get(0)
    above = node.call("greater", data, node.like(node.float_attr("alpha", 1.0), data))
    return node.call("where", above, data, node.like(0, data))


@converter("Shrink")
def shrink(node: Node) -> Expr:
    data = node.get(0)
    bias, lambd = (node.like(node.float_attr(name, default), data) for name, default in (("bias", 0.0), ("lambd", 0.5)))
    low = node.call("less", data, node.call("negative", lambd))
    high = node.call("greater", data, lambd)
    inner = node.call("where", high, node.call("subtract", data, bias), node.like(0, data))
    return node.call("where", low, node.call("add", data, bias), inner)


@converter("Softplus")
def softplus(node: Node) -> Expr:
    return _softplus(node, node.get(0))


def _softplus(node: Node, data: Expr) -> Expr:
    """max(x, 0) + log(1 + exp(-|x|)), which does not overflow."""
    decay = node.call("exp", node.call("negative", node.call("abs", data)))
    tail = node.call("log", node.call("add", decay, node.like(1, data)))
    return node.call("add", node.call("maximum", data, node.like(0, data)), tail)


@converter("Softsign")
def softsign(node: Node) -> Expr:
    data = node.get(0)
    return node.call("divide", data, node.call("add", node.call("abs", data), node.like(1, data)))


@converter("Mish")
def mish(node: Node) -> Expr:
    return node.call("multiply", node.get(0), node.call("tanh", _softplus(node, node.get(0))))


@converter("HardSigmoid")
def hard_sigmoid(node: Node) -> Expr:
    return _hard_sigmoid(node, node.get(0), node.float_attr("alpha", 0.2), node.float_attr("beta", 0.5))


@converter("HardSwish")
def hard_swish(node: Node) -> Expr:
    return node.call("multiply", node.get(0), _hard_sigmoid(node, node.get(0), 1.0 / 6.0, 0.5))


def _hard_sigmoid(node: Node, data: Expr, alpha: float, beta: float) -> Expr:
    line = node.call("add", node.call("multiply", data, node.like(alpha, data)), node.like(beta, data))
    return node.call("clip", line, a_min=0.0, a_max=1.0)


@converter("Gelu")
def gelu(node: Node) -> Expr:
    data = node.get(0)
    approximate = node.str_attr("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise node.fail(f"approximate is '{approximate}', expected 'none' or 'tanh'")
    curve = _tanh_curve(node, data) if approximate == "tanh" else _erf_curve(node, data)
    half = node.call("multiply", data, node.like(0.5, data))
    return node.call("multiply", half, node.call("add", curve, node.like(1, data)))


def _erf_curve(node: Node, data: Expr) -> Expr:
    return node.call("erf", node.call("multiply", data, node.like(math.sqrt(0.5), data)))


def _tanh_curve(node: Node, data: Expr) -> Expr:
    cube = node.call("multiply", node.call("multiply", data, data), data)
    inner = node.call("add", data, node.call("multiply", cube, node.like(0.044715, data)))
    return node.call("tanh", node.call("multiply", inner, node.like(math.sqrt(2.0 / math.pi), data)))


@converter("Softmax", "LogSoftmax", since=13)
def softmax(node: Node) -> Expr:
    name = "nn.softmax" if node.op_type == "Softmax" else "nn.log_softmax"
    return node.call(name, node.get(0), axis=node.axis(node.int_attr("axis", -1), node.rank(0)))


@converter("Softmax", "LogSoftmax")
def flattened_softmax(node: Node) -> Expr:
    """Before opset 13 all axes from `axis` on are one."""
    name = "nn.softmax" if node.op_type == "Softmax" else "nn.log_softmax"
    data, rank = node.get(0), node.rank(0)
    axis = node.axis(node.int_attr("axis", 1), rank)
    if axis == rank - 1:
        return node.call(name, data, axis=axis)
    return node.reshape(node.call(name, _rows(node, axis), axis=1), node.shape(0))


@converter("Hardmax", since=13)
def hardmax(node: Node) -> Expr:
    return _hardmax(node, node.get(0), node.axis(node.int_attr("axis", -1), node.rank(0)))


@converter("Hardmax")
def flattened_hardmax(node: Node) -> Expr:
    axis = node.axis(node.int_attr("axis", 1), node.rank(0))
    return node.reshape(_hardmax(node, _rows(node, axis), 1), node.shape(0))


def _rows(node: Node, axis: int) -> Expr:
    shape = node.shape(0)
    return node.reshape(node.get(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _hardmax(node: Node, data: Expr, axis: int) -> Expr:
    found = data.tensor_type
    first = node.call("argmax", data, axis=axis, keepdims=False, select_last_index=False)
    depth = found.static_shape[axis]
    return node.call("one_hot", first, on_value=1.0, off_value=0.0, depth=depth, axis=axis, dtype=found.dtype)
