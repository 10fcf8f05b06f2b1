"""Attention and RotaryEmbedding, composed of matrix products, softmax and slices."""

from __future__ import annotations

import math

import numpy as np

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr


@converter("Attention", since=23)
def attention(node: Node) -> list[Expr]:
    """softmax(Q K' * scale + mask) V over heads, with cached keys and values before the given ones."""
    if node.find(6) is not None or any(node.int_attr(f"{side}_window_size", -1) >= 0 for side in ("left", "right")):
        raise node.unsupported("Attention within windows or over padded keys")
    query = _heads(node, 0, "q_num_heads")
    key, value = _cached(node, 1, 4), _cached(node, 2, 5)
    scores = _scores(node, query, key)
    raw = scores
    scores = _capped(node, scores)
    allowed, scores = _masked(node, scores)
    weights = _softmax(node, scores)
    if allowed is not None:
        weights = node.call("where", allowed, weights, node.like(0, weights))
    result = node.call("nn.matmul", weights, _repeated(node, value, query))
    if node.rank(0) == 3:
        result = _joined(node, result)
    if len(node.outputs) > 3 and node.outputs[3]:
        if node.int_attr("qk_matmul_output_mode", 0) != 0:
            raise node.unsupported("qk_matmul_output_mode other than 0")
        return [result, key, value, raw]
    return [result, key, value]


def _heads(node: Node, index: int, count: str) -> Expr:
    """(batch, heads, sequence, size) of an input that may be (batch, sequence, heads * size)."""
    data, shape = node.get(index), node.shape(index)
    if len(shape) == 4:
        return data
    heads = node.int_attr(count)
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise node.fail(f"input {index} has shape {shape}, expected rank 4, or rank 3 and a multiple of {heads} heads")
    parted = node.reshape(data, (shape[0], shape[1], heads, shape[2] // heads))
    return node.transpose(parted, (0, 2, 1, 3))


def _joined(node: Node, result: Expr) -> Expr:
    batch, heads, steps, size = result.tensor_type.static_shape
    return node.reshape(node.transpose(result, (0, 2, 1, 3)), (batch, steps, heads * size))


def _cached(node: Node, index: int, past: int) -> Expr:
    data = _heads(node, index, "kv_num_heads")
    before = node.find(past)
    return data if before is None else node.call_tuple("concatenate", [before, data], axis=2)


def _repeated(node: Node, data: Expr, query: Expr) -> Expr:
    """Keys or values with each head repeated for the query heads that share it."""
    heads, shared = query.tensor_type.static_shape[1], data.tensor_type.static_shape[1]
    if heads == shared:
        return data
    if not shared or heads % shared:
        raise node.fail(f"{heads} query heads are no multiple of {shared} key and value heads")
    return node.call("repeat", data, repeats=heads // shared, axis=1)


def _scores(node: Node, query: Expr, key: Expr) -> Expr:
    size = query.tensor_type.static_shape[3]
    scale = node.float_attr("scale", 1.0 / math.sqrt(max(size, 1)))
    scaled = node.call("multiply", query, node.like(scale, query))
    return node.call("nn.matmul", scaled, _repeated(node, key, query), transpose_b=True)


def _capped(node: Node, scores: Expr) -> Expr:
    cap = node.float_attr("softcap", 0.0)
    if cap <= 0:
        return scores
    bounded = node.call("tanh", node.call("divide", scores, node.like(cap, scores)))
    return node.call("multiply", bounded, node.like(cap, scores))


def _masked(node: Node, scores: Expr) -> tuple[Expr | None, Expr]:
    """(what may be attended to, None for all; scores with the float mask added and the rest at the lowest number).

    A row that attends to nothing gives zeros, which minus infinity in a softmax would not.
    """
    lowest = float(np.finfo(np.float16 if scores.tensor_type.dtype == "float16" else np.float32).min)
    allowed: Expr | None = None
    mask = node.find(3)
    if mask is not None:
        mask = _padded(node, mask, scores.tensor_type.static_shape[-1])
        if mask.tensor_type.dtype == "bool":
            allowed = mask
        else:
            scores = node.call("add", scores, mask)
            allowed = node.call("greater", mask, node.like(lowest, mask))
    if node.flag("is_causal"):
        causal = _causal(node, scores.tensor_type.static_shape)
        allowed = causal if allowed is None else node.call("logical_and", allowed, causal)
    if allowed is None:
        return None, scores
    return allowed, node.call("where", allowed, scores, node.like(lowest, scores))


def _padded(node: Node, mask: Expr, extent: int) -> Expr:
    """A mask over fewer keys than there are forbids the rest."""
    missing = extent - mask.tensor_type.static_shape[-1]
    if missing <= 0:
        return mask
    fill = 0.0 if mask.tensor_type.dtype == "bool" else -math.inf
    widths = ((0, 0),) * (mask.tensor_type.rank - 1) + ((0, missing),)
    return node.call("nn.pad", mask, pad_width=widths, pad_value=fill, pad_mode="constant")


def _causal(node: Node, shape: tuple[int, ...]) -> Expr:
    past = 0 if node.find(4) is None else node.shape(4)[2]
    rows = node.call("arange", start=0, stop=shape[-2], step=1, dtype="int64")
    columns = node.call("arange", start=0, stop=shape[-1], step=1, dtype="int64")
    limits = node.call("add", node.reshape(rows, (shape[-2], 1)), node.const(past, "int64"))
    return node.call("less_equal", node.reshape(columns, (1, shape[-1])), limits)


def _softmax(node: Node, scores: Expr) -> Expr:
    dtype = scores.tensor_type.dtype
    precise = node.dtype_attr("softmax_precision", dtype)
    return node.cast(node.call("nn.softmax", node.cast(scores, precise), axis=-1), dtype)


@converter("RotaryEmbedding", since=23)
def rotary_embedding(node: Node) -> Expr:
    """Pairs of features of each head turned by the angle of their position; features beyond the turned stay."""
    data = _by_position(node)
    batch, steps, heads, size = data.tensor_type.static_shape
    turned = node.int_attr("rotary_embedding_dim", 0) or size
    half = turned // 2
    cosine, sine = (_angles(node, index, half) for index in (1, 2))
    if node.flag("interleaved"):
        first, second = (_features(node, data, start, turned, 2) for start in (0, 1))
    else:
        first, second = _features(node, data, 0, half), _features(node, data, half, turned)
    real = node.call("subtract", node.call("multiply", cosine, first), node.call("multiply", sine, second))
    imaginary = node.call("add", node.call("multiply", sine, first), node.call("multiply", cosine, second))
    if node.flag("interleaved"):
        pairs = node.call_tuple("stack", [real, imaginary], axis=4)
        parts = [node.reshape(pairs, (batch, steps, heads, turned))]
    else:
        parts = [real, imaginary]
    if turned < size:
        parts.append(_features(node, data, turned, size))
    result = parts[0] if len(parts) == 1 else node.call_tuple("concatenate", parts, axis=3)
    return node.transpose(result, (0, 2, 1, 3)) if node.rank(0) == 4 else node.reshape(result, node.shape(0))


def _by_position(node: Node) -> Expr:
    """(batch, sequence, heads, size)"""
    shape = node.shape(0)
    if len(shape) == 4:
        return node.transpose(node.get(0), (0, 2, 1, 3))
    heads = node.int_attr("num_heads")
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise node.fail(f"data has shape {shape}, expected rank 4, or rank 3 and a multiple of {heads} heads")
    return node.reshape(node.get(0), (shape[0], shape[1], heads, shape[2] // heads))


def _angles(node: Node, index: int, half: int) -> Expr:
    """(batch, sequence, 1, half) of a cache that is given by position, or for every step already."""
    cache, positions = node.get(index), node.find(3)
    if positions is not None:
        cache = node.call("take", cache, positions, axis=0)
    if cache.tensor_type.rank != 3 or cache.tensor_type.shape[2] != half:
        raise node.fail(f"the angles have type {cache.tensor_type}, expected {half} for every step of every row")
    return node.expand_dims(cache, 2)


def _features(node: Node, data: Expr, begin: int, end: int, step: int = 1) -> Expr:
    return node.call("strided_slice", data, begin=(begin,), end=(end,), strides=(step,), axes=(3,))
