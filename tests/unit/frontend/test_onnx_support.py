"""Unsupported operators are reported all at once; what nothing uses does not count."""

from __future__ import annotations

import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from relaybuild.errors import UnsupportedError
from relaybuild.frontend.onnx import import_model
from relaybuild.frontend.onnx.registry import all_converters, find_converter


def model(nodes: list[NodeProto], output: str, opset: int = 17) -> ModelProto:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, (2,))
    y = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.acme", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=8)


def test_all_unsupported_operators_are_listed() -> None:
    inner = helper.make_graph(
        [helper.make_node("Fused", ["x"], ["i"], name="inner", domain="com.acme")],
        "branch",
        [],
        [helper.make_tensor_value_info("i", TensorProto.FLOAT, None)],
    )
    nodes = [
        helper.make_node("Unique", ["x"], ["a"], name="u0"),
        helper.make_node("Fused", ["a"], ["b"], domain="com.acme"),
        helper.make_node("Relu", ["b"], ["c"]),
        *(helper.make_node("Unique", ["c"], [f"d{i}"], name=f"u{i + 1}") for i in range(4)),
        helper.make_node("Sum", ["d0", "d1", "d2", "d3"], ["e"]),
        helper.make_node("If", ["x"], ["f"], then_branch=inner, else_branch=inner),
        helper.make_node("Add", ["e", "f"], ["y"]),
    ]
    with pytest.raises(UnsupportedError) as caught:
        import_model(model(nodes, "y"))
    assert str(caught.value) == (
        "g: the model uses 2 operators that relaybuild does not support in opset 17:\n"
        "  Unique: 5 nodes ('u0', 'u1', 'u2', ...)\n"
        "  com.acme.Fused: 3 nodes ('b', 'inner', 'inner')"
    )


def test_nodes_that_no_output_needs_are_left_out() -> None:
    nodes = [helper.make_node("Unique", ["x"], ["a"]), helper.make_node("Relu", ["x"], ["y"])]
    import_model(model(nodes, "y"))


def test_an_operator_before_its_first_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="does not support in opset 17:\n  GroupNormalization: 1 node"):
        import_model(model([helper.make_node("GroupNormalization", ["x", "x", "x"], ["y"])], "y"))


def test_the_newest_version_not_above_the_opset_converts() -> None:
    old, new = find_converter("", "Softmax", 12), find_converter("", "Softmax", 13)
    assert old is not None
    assert new is not None
    assert old is not new
    assert find_converter("", "Softmax", 23) is new
    assert find_converter("com.acme", "Softmax", 13) is None


def test_every_converter_is_of_a_known_operator_and_version() -> None:
    from onnx.defs import get_all_schemas_with_history
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    versions: dict[tuple[str, str], set[int]] = {}
    for schema in (*get_all_schemas_with_history(), *get_all_operator_schema()):
        versions.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    for operator, converters in all_converters().items():
        for since, _ in converters:
            assert since == 1 or since in versions[operator], operator
        assert operator in versions
