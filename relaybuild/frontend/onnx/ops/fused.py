"""onnxruntime's operators that stand for several of the standard: models that it has optimised are written in these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.ops._standard import standard
from relaybuild.frontend.onnx.ops.activation import gelu as standard_gelu
from relaybuild.frontend.onnx.ops.matrix import gemm, matmul
from relaybuild.frontend.onnx.ops.normalization import layer_normalization, rms_normalization
from relaybuild.frontend.onnx.ops.window import conv
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_DOMAIN = "com.microsoft"
_SKIP_EPSILON = 1e-12


@converter("Gelu", "BiasGelu", domain=_DOMAIN)
def gelu(node: Node) -> Expr:
    return standard_gelu(_over(node, _plus(node, node.get(0), node.find(1)), approximate="none"))


@converter("FastGelu", domain=_DOMAIN)
def fast_gelu(node: Node) -> Expr:
    return standard_gelu(_over(node, _plus(node, node.get(0), node.find(1)), approximate="tanh"))


@converter("QuickGelu", domain=_DOMAIN)
def quick_gelu(node: Node) -> Expr:
    data = node.get(0)
    scaled = node.call("multiply", data, node.like(node.float_attr("alpha", 1.702), data))
    return node.call("multiply", data, node.call("sigmoid", scaled))


@converter("FusedMatMul", domain=_DOMAIN)
def fused_matmul(node: Node) -> Expr:
    product = matmul(replace(node, inputs=tuple(_operand(node, index, side) for index, side in enumerate("AB"))))
    alpha = node.float_attr("alpha", 1.0)
    return product if alpha == 1.0 else node.call("multiply", product, node.like(alpha, product))


def _operand(node: Node, index: int, side: str) -> Expr:
    """Rows that come before the axes of the batch go behind them, then they and the columns change places."""
    data, rank = node.get(index), node.rank(index)
    if rank > 2 and node.flag(f"transBatch{side}"):
        data = node.transpose(data, (*range(1, rank - 1), 0, rank - 1))
    return _last_two_swapped(node, data) if node.flag(f"trans{side}") else data


@converter("FusedGemm", domain=_DOMAIN)
def fused_gemm(node: Node) -> Expr:
    parameters = [node.float_attr(f"activation_{name}", 0.0) for name in ("alpha", "beta")]
    return _activated(node, gemm(node), parameters)


@converter("FusedConv", domain=_DOMAIN)
def fused_conv(node: Node) -> Expr:
    return _activated(node, _plus(node, conv(node), node.find(3)), node.floats_attr("activation_params", ()))


@converter("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_normalization(node: Node) -> list[Expr]:
    total = _plus(node, _plus(node, node.get(0), node.get(1)), node.find(4))
    normal = layer_normalization(
        replace(_over(node, total, node.get(2), node.find(3), epsilon=_epsilon(node)), outputs=("y",))
    )
    return _with_sum(node, normal[0], total)


@converter("SkipSimplifiedLayerNormalization", domain=_DOMAIN)
def skip_rms_normalization(node: Node) -> list[Expr]:
    total = _plus(node, _plus(node, node.get(0), node.get(1)), node.find(3))
    return _with_sum(node, rms_normalization(_over(node, total, node.get(2), epsilon=_epsilon(node))), total)


@converter("SimplifiedLayerNormalization")
def simplified_layer_normalization(node: Node) -> Expr:
    return rms_normalization(node)


@converter("EmbedLayerNormalization", domain=_DOMAIN)
def embed_layer_normalization(node: Node) -> list[Expr]:
    """Rows of tables by word, place and segment, summed and normalised."""
    if any(node.outputs[1:2]):
        raise node.unsupported("the lengths of sequences as an output ('mask_index')")
    words, places, segments = node.get(0), node.find(8), node.find(1)
    if places is None:
        batch, length = node.shape(0)
        places = node.const(np.broadcast_to(np.arange(length), (batch, length)), "int64")
    total = node.call("take", node.get(2), words, axis=0)
    total = node.call("add", total, node.call("take", node.get(3), places, axis=0))
    if segments is not None:
        total = node.call("add", total, node.call("take", node.get(4), segments, axis=0))
    normal = layer_normalization(
        replace(_over(node, total, node.get(5), node.get(6), epsilon=_epsilon(node)), outputs=("y",))
    )
    return [normal[0], total, total]


@converter("Attention", domain=_DOMAIN)
def attention(node: Node) -> Expr:
    """Self-attention of (batch, length, width), whose weights are those of queries, keys and values side by side."""
    if node.find(4) is not None or node.flag("do_rotary") or len(node.outputs) > 1:
        raise node.unsupported("Attention with keys and values of earlier steps, or rotary embeddings")
    (batch, length, _), heads = node.shape(0), node.int_attr("num_heads")
    projected = _plus(node, matmul(replace(node, inputs=(node.get(0), node.get(1)))), node.find(2))
    sizes = node.ints_attr("qkv_hidden_sizes", (projected.tensor_type.static_shape[-1] // 3,) * 3)
    query, key, value = (
        node.transpose(node.reshape(part, (batch, length, heads, size // heads)), (0, 2, 1, 3))
        for part, size in zip(node.parts(projected, sizes, -1), sizes)
    )
    scale = node.float_attr("scale", 0.0) or (sizes[0] // heads) ** -0.5
    scores = node.call("nn.matmul", query, _last_two_swapped(node, key))
    scores = node.call("multiply", scores, node.like(scale, scores))
    for mask in (_mask(node, batch, length), _causal_mask(node, length), node.find(5)):
        scores = _plus(node, scores, mask)
    mixed = node.call("nn.matmul", node.call("nn.softmax", scores, axis=-1), value)
    return node.reshape(node.transpose(mixed, (0, 2, 1, 3)), (batch, length, sizes[2]))


def _mask(node: Node, batch: int, length: int) -> Expr | None:
    """What is added to scores for the words to be left out: by word, by pair of words, or by the sequences' lengths."""
    given = node.find(3)
    if given is None:
        return None
    shape = given.tensor_type.static_shape
    if shape == (batch,):
        places = node.const(np.arange(length), given.tensor_type.dtype)
        kept = node.cast(node.call("less", places, node.reshape(given, (batch, 1))), "float32")
        shape = (batch, length)
    else:
        kept = node.cast(given, "float32")
    if shape not in ((batch, length), (batch, length, length)):
        raise node.unsupported(f"a mask of shape {shape}")
    left_out = node.call("subtract", node.like(1, kept), kept)
    added = node.call("multiply", left_out, node.like(node.float_attr("mask_filter_value", -10000.0), kept))
    return node.reshape(added, (batch, 1, length if len(shape) == 3 else 1, length))


def _causal_mask(node: Node, length: int) -> Expr | None:
    if not node.flag("unidirectional"):
        return None
    lowest = node.float_attr("mask_filter_value", -10000.0)
    return node.const(np.triu(np.full((length, length), lowest), 1), "float32")


def _over(node: Node, *inputs: Expr | None, **attrs: float | str) -> Node:
    """The node with other inputs, and with these attributes alone."""
    return replace(node, inputs=inputs, attrs=attrs)


def _plus(node: Node, data: Expr, other: Expr | None) -> Expr:
    return data if other is None else node.call("add", data, other)


def _epsilon(node: Node) -> float:
    return node.float_attr("epsilon", _SKIP_EPSILON)


def _with_sum(node: Node, normal: Expr, total: Expr) -> list[Expr]:
    """The outputs of a sum that is normalised, which may be the sum, too."""
    if any(node.outputs[1:3]):
        raise node.unsupported("the mean or the deviation as an output")
    return [normal, total, total, total]


def _last_two_swapped(node: Node, data: Expr) -> Expr:
    rank = data.tensor_type.rank
    return data if rank < 2 else node.transpose(data, (*range(rank - 2), rank - 1, rank - 2))


def _activated(node: Node, data: Expr, parameters: Sequence[float]) -> Expr:
    name = node.str_attr("activation", "")
    if not name:
        return data
    if name not in _PARAMETERS:
        raise node.unsupported(f"the activation '{name}'")
    attrs = dict(zip(_PARAMETERS[name], parameters))
    if name == "Clip":
        return node.call("clip", data, a_min=attrs["min"], a_max=attrs["max"])
    return standard(node, name, data, attrs)


_PARAMETERS: Mapping[str, Sequence[str]] = {
    "Clip": ("min", "max"),
    "HardSigmoid": ("alpha", "beta"),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
}
"""The attributes that an activation's parameters are, in order."""
