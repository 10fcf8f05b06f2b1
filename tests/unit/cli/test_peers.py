"""The peers repeat an inference in place and agree with each other; one that is missing is known to be."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest

from relaybuild.cli import _peers
from relaybuild.errors import UserError


@pytest.mark.parametrize("name", sorted(_peers.PEERS))
def test_a_peer_computes_what_the_reference_does(digits_model: Path, name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(_peers.PEERS[name].missing_message)
    inputs = {"image": np.random.default_rng(0).random((1, 1, 8, 8), np.float32)}
    expected = _peers.expected_outputs("reference", digits_model, inputs, {"image": (1, 1, 8, 8)})
    runner = _peers.PEERS[name].open(digits_model, inputs, 1)
    runner.run()
    found = runner.outputs()
    assert (runner.name, bool(runner.version)) == (name, True)
    assert list(found) == list(expected) == ["scores"]
    del runner
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", sorted(_peers.PEERS))
def test_a_model_that_tells_a_wrong_rank_of_its_output(digits_model: Path, tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(_peers.PEERS[name].missing_message)
    model = onnx.load(digits_model)
    model.graph.node.append(onnx.helper.make_node("Unsqueeze", ["scores", "axes"], ["raised"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([0]), "axes"))
    model.graph.output[0].name = "raised"
    model.graph.output.append(onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, (1, 10)))
    onnx.save(model, tmp_path / "model.onnx")
    runner = _peers.PEERS[name].open(tmp_path / "model.onnx", {"image": np.zeros((1, 1, 8, 8), np.float32)}, 1)
    for _ in range(3):
        runner.run()
    assert [value.shape for value in runner.outputs().values()] == [(1, 1, 10), (1, 10)]


@pytest.mark.parametrize("name", ["reference", *sorted(_peers.PEERS)])
def test_inputs_of_another_model(digits_model: Path, name: str) -> None:
    if name != "reference" and importlib.util.find_spec(name) is None:
        pytest.skip(_peers.PEERS[name].missing_message)
    with pytest.raises(UserError, match="has the inputs 'image', the library 'x'; was it compiled from this"):
        _peers.expected_outputs(name, digits_model, {"x": np.zeros(1, np.float32)}, {})
