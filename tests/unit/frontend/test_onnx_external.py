"""Files that a model's tensors are in: all of them, wherever in the model a tensor stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from onnx import TensorProto, helper

from relaybuild.errors import UserError
from relaybuild.frontend.onnx.external import external_files


def tensor(name: str, location: str) -> TensorProto:
    made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    made.external_data.add(key="location", value=location)
    made.external_data.add(key="offset", value="0")
    return made


def test_tensors_of_graphs_attributes_and_subgraphs(tmp_path: Path) -> None:
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    inner = helper.make_graph(
        [helper.make_node("Identity", ["v"], ["y"])], "inner", [], [y], [tensor("v", "inner.bin")]
    )
    nodes = [
        helper.make_node("Constant", [], ["k"], value=tensor("k", "attribute.bin")),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
    ]
    c = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    plain = helper.make_tensor("p", TensorProto.FLOAT, [1], [1.0])
    initializers = [tensor("a", "first.bin"), tensor("b", "first.bin"), plain]
    model = helper.make_model(helper.make_graph(nodes, "outer", [c], [y], initializers))
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert sorted(external_files(tmp_path / "m.onnx")) == ["attribute.bin", "first.bin", "inner.bin"]


def test_what_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"location")
    with pytest.raises(UserError, match="not an ONNX model"):
        external_files(tmp_path / "m.onnx")
