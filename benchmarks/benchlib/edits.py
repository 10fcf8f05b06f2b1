"""Makes other models of an ONNX model: of other weights, with one layer of another width; measures nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from relaybuild.errors import UserError

WIDENED_BY = 16
_POINTWISE = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSwish", "BatchNormalization")


def retrained(model: ModelProto, seed: int) -> ModelProto:
    """The model with each weight changed by about one percent."""
    found = ModelProto()
    found.CopyFrom(model)
    random = np.random.default_rng(seed)
    for tensor in found.graph.initializer:
        value = numpy_helper.to_array(tensor)
        if value.dtype.kind == "f" and value.size > 1:
            noise = random.standard_normal(value.shape, dtype="float32")
            tensor.CopyFrom(numpy_helper.from_array((value * (1 + 0.01 * noise)).astype(value.dtype), tensor.name))
    return found


def widened(model: ModelProto) -> tuple[ModelProto, str]:
    """The model with more channels between two of its convolutions, in the middle of all such pairs, and the name of
    the first of them.

    Raises UserError for a model that has no two convolutions of which the second alone reads the first.
    """
    found = ModelProto()
    found.CopyFrom(model)
    pairs = list(_pairs(found))
    if not pairs:
        raise UserError("no convolution of the model is read by just one other")
    first, between, second = pairs[len(pairs) // 2]
    tensors = {tensor.name: tensor for tensor in found.graph.initializer}
    for name in first.input[1:]:
        _widen(tensors[name], 0)
    for node in between:
        for name in node.input[1:]:
            if name in tensors and node.op_type == "BatchNormalization":
                _widen(tensors[name], 0)
    _widen(tensors[second.input[1]], 1)
    del found.graph.value_info[:]
    return found, first.name


def _pairs(model: ModelProto) -> Iterator[tuple[NodeProto, list[NodeProto], NodeProto]]:
    """Convolutions, what lies between them, and those that alone read them."""
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    results = {output.name for output in model.graph.output}
    weights = {tensor.name for tensor in model.graph.initializer}
    for node in model.graph.node:
        if not _is_dense(node, weights):
            continue
        value, between = node.output[0], []
        while value not in results and len(readers.get(value, ())) == 1:
            reader = readers[value][0]
            if _is_dense(reader, weights) and reader.input[0] == value:
                yield node, between, reader
                break
            if reader.op_type not in _POINTWISE:
                break
            between.append(reader)
            value = reader.output[0]


def _is_dense(node: NodeProto, weights: set[str]) -> bool:
    groups = [attribute.i for attribute in node.attribute if attribute.name == "group"]
    return node.op_type == "Conv" and groups in ([], [1]) and all(name in weights for name in node.input[1:])


def _widen(tensor: TensorProto, axis: int) -> None:
    value = numpy_helper.to_array(tensor)
    more = np.take(value, np.arange(WIDENED_BY) % value.shape[axis], axis)
    tensor.CopyFrom(numpy_helper.from_array(np.concatenate([value, more], axis), tensor.name))


def save(model: ModelProto, path: str) -> None:
    """Write a model."""
    onnx.save(model, path)
