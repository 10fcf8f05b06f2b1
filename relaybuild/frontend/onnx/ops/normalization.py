"""Normalisation layers in the form they have at inference."""

from __future__ import annotations

import math

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


@converter("BatchNormalization")
def batch_normalization(node: Node) -> Expr:
    if node.flag("training_mode"):
        raise node.unsupported("training mode (attribute 'training_mode' is 1)")
    if node.opset < 7 and not node.flag("is_test"):
        raise node.unsupported("training mode (attribute 'is_test' is 0)")
    if not node.flag("spatial", True):
        raise node.unsupported("a mean and a variance for each element (attribute 'spatial' is 0)")
    parameters = [node.cast(node.get(index), node.dtype(0)) for index in range(1, 5)]
    result = node.call("nn.batch_norm", node.get(0), *parameters, axis=1, epsilon=node.float_attr("epsilon", 1e-5))
    return node.fields(result, 1)[0]


@converter("InstanceNormalization")
def instance_normalization(node: Node) -> Expr:
    epsilon = node.float_attr("epsilon", 1e-5)
    return node.call("nn.instance_norm", node.get(0), node.get(1), node.get(2), axis=1, epsilon=epsilon)


@converter("GroupNormalization", since=21)
def group_normalization(node: Node) -> Expr:
    return _group_norm(node, node.get(1), node.get(2))


@converter("GroupNormalization", since=18)
def group_normalization_per_group(node: Node) -> Expr:
    """Before opset 21 scale and bias are given per group."""
    groups = node.int_attr("num_groups")
    repeats = node.shape(0)[1] // max(groups, 1)
    scale, bias = (node.call("repeat", node.get(index), repeats=repeats, axis=0) for index in (1, 2))
    return _group_norm(node, scale, bias)


def _group_norm(node: Node, scale: Expr, bias: Expr) -> Expr:
    groups, epsilon = node.int_attr("num_groups"), node.float_attr("epsilon", 1e-5)
    return node.call("nn.group_norm", node.get(0), scale, bias, num_groups=groups, axis=1, epsilon=epsilon)


@converter("LayerNormalization")
def layer_normalization(node: Node) -> list[Expr]:
    """Over all axes from `axis` on, as one; the mean and inverse deviation are computed where they are used."""
    data, shape = node.get(0), node.shape(0)
    axis = node.axis(node.int_attr("axis", -1), len(shape))
    rows, size = shape[:axis], math.prod(shape[axis:])
    flat = node.reshape(data, (*rows, size))
    epsilon = node.float_attr("epsilon", 1e-5)
    result = _layer_norm(node, flat, epsilon)
    outputs = [node.reshape(result, shape)]
    if any(node.outputs[1:]):
        outputs.extend(_statistics(node, flat, epsilon, (*rows, *(1 for _ in shape[axis:]))))
    return outputs


def _layer_norm(node: Node, flat: Expr, epsilon: float) -> Expr:
    size = flat.tensor_type.static_shape[-1]
    scale, bias = node.get(1), node.find(2)
    if _elements(scale) == size and (bias is None or _elements(bias) == size):
        beta = node.const([0.0] * size, flat.tensor_type.dtype) if bias is None else node.reshape(bias, (size,))
        gamma = node.reshape(scale, (size,))
        return node.call("nn.layer_norm", flat, gamma, beta, axis=-1, epsilon=epsilon, center=bias is not None)
    dtype = flat.tensor_type.dtype
    ones, zeros = node.const([1.0] * size, dtype), node.const([0.0] * size, dtype)
    plain = node.call("nn.layer_norm", flat, ones, zeros, axis=-1, epsilon=epsilon, center=False, scale=False)
    scaled = node.call("multiply", node.reshape(plain, node.shape(0)), scale)
    return scaled if bias is None else node.call("add", scaled, bias)


def _elements(expr: Expr) -> int:
    return expr.tensor_type.num_elements


def _statistics(node: Node, flat: Expr, epsilon: float, shape: tuple[int, ...]) -> list[Expr]:
    flat = node.cast(flat, "float32")
    mean = node.call("mean", flat, axis=(-1,), keepdims=True)
    centred = node.call("subtract", flat, mean)
    variance = node.call("mean", node.call("multiply", centred, centred), axis=(-1,), keepdims=True)
    inverse = node.call("rsqrt", node.call("add", variance, node.like(epsilon, variance)))
    return [node.reshape(mean, shape), node.reshape(inverse, shape)]


@converter("RMSNormalization")
def rms_normalization(node: Node) -> Expr:
    data, rank = node.get(0), node.rank(0)
    axes = tuple(range(node.axis(node.int_attr("axis", -1), rank), rank))
    wide = node.cast(data, "float32") if node.dtype(0) == "float16" else data
    square = node.call("mean", node.call("multiply", wide, wide), axis=axes, keepdims=True)
    epsilon = node.like(node.float_attr("epsilon", 1e-5), wide)
    inverse = node.call("rsqrt", node.call("add", square, epsilon))
    return node.call("multiply", node.cast(node.call("multiply", wide, inverse), node.dtype(0)), node.get(1))


@converter("LRN")
def local_response_normalization(node: Node) -> Expr:
    return node.call(
        "nn.lrn",
        node.get(0),
        size=node.int_attr("size"),
        axis=1,
        bias=node.float_attr("bias", 1.0),
        alpha=node.float_attr("alpha", 1e-4),
        beta=node.float_attr("beta", 0.75),
    )


@converter("LpNormalization")
def lp_normalization(node: Node) -> Expr:
    """A row of zeros stays one."""
    data, axis, order = node.get(0), node.int_attr("axis", -1), node.int_attr("p", 2)
    if order not in (1, 2):
        raise node.fail(f"p is {order}, expected 1 or 2")
    powers = node.call("abs", data) if order == 1 else node.call("multiply", data, data)
    total = node.call("sum", powers, axis=(node.axis(axis, node.rank(0)),), keepdims=True)
    norm = total if order == 1 else node.call("sqrt", total)
    zero = node.call("equal", norm, node.like(0, norm))
    return node.call("divide", data, node.call("where", zero, node.like(1, norm), norm))


@converter("MeanVarianceNormalization")
def mean_variance_normalization(node: Node) -> Expr:
    data, axes = node.get(0), node.ints_attr("axes", (0, 2, 3))
    centred = node.call("subtract", data, node.call("mean", data, axis=axes, keepdims=True))
    variance = node.call("mean", node.call("multiply", centred, centred), axis=axes, keepdims=True)
    deviation = node.call("sqrt", variance)
    return node.call("divide", centred, node.call("add", deviation, node.like(1e-9, deviation)))
