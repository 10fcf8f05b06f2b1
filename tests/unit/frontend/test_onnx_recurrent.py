"""Recurrent layers against onnxruntime, in the forms that ONNX's node tests do not reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper
from onnx_cases import assert_same, run

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 5, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = np.array([4, 1, 3], np.int32)

Arrays = dict[str, NDArray[Any]]


def layer(
    op: str, *, bias: bool = False, initial: bool = False, lengths: bool = False, peepholes: bool = False, **attrs: Any
) -> tuple[ModelProto, Arrays]:
    """A model of one layer whose weights are initializers, and its inputs."""
    rng = np.random.default_rng(len(op) + 2 * bias + 4 * initial)
    ways = 2 if attrs.get("direction") == "bidirectional" else 1
    rows = GATES[op] * HIDDEN

    def random(*shape: int) -> NDArray[Any]:
        return (0.5 * rng.standard_normal(shape)).astype(np.float32)

    weights: Arrays = {"w": random(ways, rows, INPUTS), "r": random(ways, rows, HIDDEN)}
    inputs: Arrays = {"x": random(STEPS, BATCH, INPUTS)}
    if bias:
        weights["b"] = random(ways, 2 * rows)
    if lengths:
        inputs["lengths"] = LENGTHS
    names = ["x", "w", "r", "b" if bias else "", "lengths" if lengths else ""]
    for state in ("h", "c")[: 2 if op == "LSTM" else 1]:
        names.append(state if initial else "")
        if initial:
            inputs[state] = random(ways, BATCH, HIDDEN)
    if peepholes:
        names.append("p")
        weights["p"] = random(ways, 3 * HIDDEN)
    return _model(op, names, inputs, weights, attrs), inputs


def _model(op: str, names: Sequence[str], inputs: Arrays, weights: Arrays, attrs: dict[str, Any]) -> ModelProto:
    outputs = [f"y{number}" for number in range(3 if op == "LSTM" else 2)]
    node = helper.make_node(op, names, outputs, name="layer", hidden_size=HIDDEN, **attrs)
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(model: ModelProto, inputs: Arrays) -> None:
    """Compare all outputs with onnxruntime."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_same(run(import_model(model), inputs), session.run(None, inputs), 1e-5, 1e-5)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("lengths", [False, True])
@pytest.mark.parametrize("op", GATES)
def test_directions_and_lengths(op: str, lengths: bool, direction: str) -> None:
    check(*layer(op, bias=True, initial=True, lengths=lengths, direction=direction))


@pytest.mark.parametrize("op", GATES)
def test_what_is_left_out(op: str) -> None:
    check(*layer(op))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("linear", [0, 1])
def test_the_reset_gate_before_or_behind_the_product(linear: int, bias: bool) -> None:
    check(*layer("GRU", bias=bias, linear_before_reset=linear, direction="bidirectional"))


@pytest.mark.parametrize("coupled", [0, 1])
def test_gates_that_see_the_cell(coupled: int) -> None:
    check(*layer("LSTM", bias=True, initial=True, peepholes=True, input_forget=coupled, direction="bidirectional"))


@pytest.mark.parametrize("op", GATES)
def test_arguments_of_activations_are_clipped(op: str) -> None:
    check(*layer(op, bias=True, clip=0.25))


def test_activations_take_their_parameters_in_order() -> None:
    activations = ["HardSigmoid", "Affine", "Softsign", "Sigmoid", "LeakyRelu", "ScaledTanh"]
    parameters: dict[str, Any] = {"activation_alpha": [0.3, 0.7, 0.05, 1.5], "activation_beta": [0.4, 0.1, 0.6]}
    check(*layer("LSTM", bias=True, direction="bidirectional", activations=activations, **parameters))


def test_lengths_that_are_known_to_be_whole_cost_nothing() -> None:
    model, inputs = layer("GRU", lengths=True)
    del model.graph.input[1]
    model.graph.initializer.append(numpy_helper.from_array(np.full(BATCH, STEPS, np.int32), "lengths"))
    assert "where" not in str(import_model(model).module["main"])
    inputs.pop("lengths")
    check(model, inputs)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"activations": ["Erf"]}, "the activation 'Erf' is not supported"),
        ({"activations": ["Tanh", "Tanh"]}, "2 activations, expected 1"),
        ({"direction": "sideways"}, "expected forward, reverse or bidirectional"),
        ({"direction": "reverse", "hidden_size": 7}, "do not fit direction 'reverse' or 'hidden_size'"),
    ],
)
def test_what_does_not_fit_is_told(attrs: dict[str, Any], message: str) -> None:
    model, _ = layer("RNN")
    node = model.graph.node[0]
    for name, value in attrs.items():
        kept = [each for each in node.attribute if each.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])
    with pytest.raises(UserError, match=message):
        import_model(model)


@pytest.mark.parametrize(("name", "number"), [("x", 0), ("w", 1), ("r", 2), ("b", 3), ("h", 5)])
def test_shapes_that_do_not_belong_together_are_told(name: str, number: int) -> None:
    model, _ = layer("LSTM", bias=True, initial=True)
    for given in model.graph.input:
        if given.name == name:
            given.type.tensor_type.shape.dim.add().dim_value = 2
    for weight in model.graph.initializer:
        if weight.name == name:
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[..., :-1], name))
    with pytest.raises(UserError, match=f"input {number} has shape"):
        import_model(model)


def test_a_sequence_without_steps_is_refused() -> None:
    model, _ = layer("GRU")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 0
    with pytest.raises(UserError, match="a layer or a sequence without elements is not supported"):
        import_model(model)
