"""Makes other models of an ONNX model: of other weights, with one layer of another width; measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

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
    weights = _weights(found)
    for node in (first, *(node for node in between if node.op_type == "BatchNormalization")):
        for number in range(1, len(node.input)):
            _widen(found, node, number, weights, 0)
    _widen(found, second, 1, weights, 1)
    del found.graph.value_info[:]
    return found, first.name


def _pairs(model: ModelProto) -> Iterator[tuple[NodeProto, list[NodeProto], NodeProto]]:
    """Convolutions, what lies between them, and those that alone read them."""
    readers: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    results = {output.name for output in model.graph.output}
    weights = _weights(model)
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


def _weights(model: ModelProto) -> dict[str, TensorProto]:
    """Initializers by the names that they have, some more than one: exporters name equal ones by Identity nodes."""
    found = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Identity" and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found


def _is_dense(node: NodeProto, weights: Mapping[str, TensorProto]) -> bool:
    groups = [attribute.i for attribute in node.attribute if attribute.name == "group"]
    return node.op_type == "Conv" and groups in ([], [1]) and all(name in weights for name in node.input[1:])


def _widen(model: ModelProto, node: NodeProto, number: int, weights: Mapping[str, TensorProto], axis: int) -> None:
    """Give a node a larger weight of its own."""
    value = numpy_helper.to_array(weights[node.input[number]])
    more = np.take(value, np.arange(WIDENED_BY) % value.shape[axis], axis)
    name = f"{node.input[number]}.wider.{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(np.concatenate([value, more], axis), name))
    node.input[number] = name


def save(model: ModelProto, path: str) -> None:
    """Write a model."""
    onnx.save(model, path)
