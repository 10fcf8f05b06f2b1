"""Whole graphs: names, spans, outputs, folded shape arithmetic, branches, long chains."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx_cases import run

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import ImportedModel, import_model
from relaybuild.ir.expr import Call, Constant, Tuple, Var
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order


def node(op_type: str, inputs: str, output: str, **attrs: Any) -> NodeProto:
    return helper.make_node(op_type, inputs.split(), output.split(), **attrs)


def constant(name: str, value: object, dtype: type = np.int64) -> TensorProto:
    return numpy_helper.from_array(np.array(value, dtype), name)


def model(
    nodes: list[NodeProto],
    outputs: str,
    initializers: tuple[TensorProto, ...] = (),
    x: tuple[int | str, ...] = (2, 3),
    opset: int = 17,
) -> ModelProto:
    """A model over the float input `x`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split()],
        list(initializers),
    )
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
        producer_name="maker",
        producer_version="1.5",
    )


def calls(imported: ImportedModel) -> list[str]:
    return [item.op_name for item in post_order(imported.module["main"].body) if isinstance(item, Call)]


def x_of(*shape: int) -> NDArray[Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_names_spans_and_provenance() -> None:
    imported = import_model(model([node("Relu", "x", "a", name="act"), node("Neg", "a", "y")], "y"))
    main = imported.module["main"]
    assert (imported.input_names, imported.output_names) == (("x",), ("y",))
    assert (imported.opset, imported.producer) == (17, "maker 1.5")
    assert main.attrs == {"input_names": ("x",), "output_names": ("y",)}
    assert [param.name_hint for param in main.params] == ["x"]
    assert isinstance(main.body, Call)
    assert str(main.body.span) == "g: node 'y'"
    assert str(main.body.args[0].span) == "g: node 'act'"
    assert main.body.checked_type == TensorType((2, 3))


def test_several_outputs_are_a_tuple_that_shares_nodes() -> None:
    imported = import_model(model([node("Relu", "x", "a"), node("Neg", "a", "b")], "b a b"))
    body = imported.module["main"].body
    assert isinstance(body, Tuple)
    assert body.fields[0] is body.fields[2]
    assert imported.output_names == ("b", "a", "b")
    assert calls(imported) == ["nn.relu", "negative"]
    first, second, third = run(imported, {"x": x_of(2, 3)})
    np.testing.assert_array_equal(first, -second)
    np.testing.assert_array_equal(first, third)


def test_an_output_may_be_an_input_or_a_constant() -> None:
    imported = import_model(model([node("Identity", "x", "y")], "y w", (constant("w", [1.5], np.float32),)))
    body = imported.module["main"].body
    assert isinstance(body, Tuple)
    assert isinstance(body.fields[0], Var)
    assert isinstance(body.fields[1], Constant)


def test_initializers_among_the_inputs_are_constants() -> None:
    found = model([node("Add", "x w", "y")], "y", (constant("w", [1, 2, 3], np.float32),))
    found.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, (3,)))
    imported = import_model(found)
    assert imported.input_names == ("x",)
    with pytest.raises(UserError, match="a shape is given for 'w', which is no input"):
        import_model(found, {"w": (3,)})


@pytest.mark.parametrize("opset", [5, 29])
def test_other_opsets_are_refused(opset: int) -> None:
    with pytest.raises(UserError, match=rf"^g: it is of opset {opset}, expected 6 to 28; export the model"):
        import_model(model([node("Relu", "x", "y")], "y", opset=opset))


def test_two_nodes_with_one_output_are_refused() -> None:
    with pytest.raises(UserError, match=r"node 'n2' \(Neg\): its output 'y' is that of another node, too"):
        import_model(model([node("Relu", "x", "y", name="n1"), node("Neg", "x", "y", name="n2")], "y"))


def test_no_opset_at_all() -> None:
    found = model([node("Relu", "x", "y")], "y")
    del found.opset_import[:]
    with pytest.raises(UserError, match="imports no version of the standard operator set"):
        import_model(found)


def test_values_must_be_computed_before_they_are_used() -> None:
    with pytest.raises(UserError, match=r"^g: node 'y' \(Relu\): input 'a' is not computed by any node before"):
        import_model(model([node("Relu", "a", "y"), node("Relu", "x", "a")], "y"))
    with pytest.raises(UserError, match=r"^g: output 'z' is not computed"):
        import_model(model([node("Relu", "x", "y")], "z"))


def test_unused_optional_outputs_are_left_out() -> None:
    nodes = [node("MaxPool", "x", "y indices", kernel_shape=[2, 2])]
    import_model(model(nodes, "y", x=(1, 1, 4, 4)))
    with pytest.raises(UserError, match=r"\(MaxPool\): its output 'indices' is used, but not supported"):
        import_model(model(nodes, "y indices", x=(1, 1, 4, 4)))


def shape_arithmetic() -> ModelProto:
    """Reshape(x, Concat(shape(x)[0:1] * 2, [-1])), the way exporters write it."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Mul", "n two", "m"),
        node("Unsqueeze", "m axes", "u"),
        node("Concat", "u minus", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    constants = (constant("zero", 0), constant("two", 2), constant("axes", [0]), constant("minus", [-1]))
    return model(nodes, "y", constants, x=("n", 6))


def test_shape_arithmetic_folds() -> None:
    imported = import_model(shape_arithmetic(), {"x": (4, 6)})
    assert calls(imported) == ["reshape"]
    assert imported.module["main"].body.checked_type == TensorType((8, 3))


def test_shape_arithmetic_in_floats_folds() -> None:
    """What older exporters write for a resize by computed scales."""
    nodes = [
        node("Shape", "x", "s"),
        node("Cast", "s", "f", to=TensorProto.FLOAT),
        node("Slice", "f two four", "hw"),
        node("Mul", "hw scale", "scaled"),
        node("Floor", "scaled", "whole"),
        node("Div", "whole hw", "ratio"),
        node("Concat", "ones ratio", "scales", axis=0),
        node("Resize", "x  scales".replace("  ", " roi "), "y", mode="nearest"),
    ]
    constants = (
        constant("two", [2]),
        constant("four", [4]),
        constant("scale", 1.5, np.float32),
        constant("ones", [1, 1], np.float32),
        constant("roi", [], np.float32),
    )
    imported = import_model(model(nodes, "y", constants, x=(1, 2, 4, 6)))
    assert imported.module["main"].body.checked_type == TensorType((1, 2, 6, 9))
    assert calls(imported) == ["image.resize2d"]


def test_arithmetic_over_weights_is_not_done_at_import() -> None:
    weight = constant("w", np.ones(3), np.float32)
    imported = import_model(model([node("Mul", "w w", "v"), node("Add", "x v", "y")], "y", (weight,)))
    assert calls(imported) == ["multiply", "add"]


def test_a_size_that_depends_on_weights_is_evaluated_when_it_is_needed() -> None:
    weight = constant("w", [2.0, 1.0], np.float32)
    nodes = [node("Add", "w one", "a"), node("Cast", "a", "s", to=TensorProto.INT64), node("Reshape", "x s", "y")]
    imported = import_model(model(nodes, "y", (weight, constant("one", 1, np.float32)), x=(6,)))
    assert imported.module["main"].body.checked_type == TensorType((3, 2))


def branch(name: str, nodes: list[NodeProto], output: str) -> GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)])


@pytest.mark.parametrize(("extent", "expected"), [(1, "negative"), (3, "abs")])
def test_a_branch_on_a_shape_is_decided_at_import(extent: int, expected: str) -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "n", axis=0),
        node("Equal", "n one", "c"),
        node("Relu", "x", "outer"),
        node(
            "If",
            "c",
            "y",
            then_branch=branch("then", [node("Neg", "outer", "t")], "t"),
            else_branch=branch("else", [node("Abs", "outer", "e")], "e"),
        ),
    ]
    found = model(nodes, "y", (constant("one", 1),), x=(2, extent))
    assert calls(import_model(found)) == ["nn.relu", expected]


def branching(then: NodeProto, other: NodeProto) -> ModelProto:
    """A model that takes one of two nodes, whose outputs are 't' and 'e', by whether an element of 'x' is not 0."""
    nodes = [
        node("ReduceMax", "x", "m", keepdims=1),
        node("Cast", "m", "c", to=TensorProto.BOOL),
        node("Relu", "x", "outer"),
        node("If", "c", "y", then_branch=branch("then", [then], "t"), else_branch=branch("else", [other], "e")),
    ]
    return model(nodes, "y")


@pytest.mark.parametrize(("value", "expected"), [(0.0, 1.0), (2.0, -2.0)])
def test_of_a_branch_on_a_value_both_ways_are_there(value: float, expected: float) -> None:
    imported = import_model(branching(node("Neg", "outer", "t"), node("Exp", "x", "e")))
    (found,) = run(imported, {"x": np.full((2, 3), value, np.float32)})
    assert (found == expected).all()


def test_both_ways_of_a_branch_on_a_value_have_one_type() -> None:
    found = branching(node("Neg", "x", "t"), node("ReduceMax", "x", "e", keepdims=0))
    message = r"node 'y' \(If\): output 0 is a Tensor\[\(2, 3\), float32\] of one branch and a float32 of"
    with pytest.raises(UserError, match=message):
        import_model(found)


def test_an_error_in_a_branch_names_the_inner_node() -> None:
    inner = branch("then", [node("Softmax", "x", "t", name="inner", axis=7)], "t")
    nodes = [node("If", "c", "y", then_branch=inner, else_branch=inner)]
    with pytest.raises(UserError, match=r"^g: node 'inner' \(Softmax\): axis 7 is out of range"):
        import_model(model(nodes, "y", (constant("c", True, np.bool_),)))


def test_a_long_chain_takes_no_recursion_and_little_time() -> None:
    length = 20_000
    nodes = [node("Relu", f"v{i}" if i else "x", f"v{i + 1}") for i in range(length)]
    found = model(nodes, f"v{length}")
    start = time.perf_counter()
    imported = import_model(found)
    assert time.perf_counter() - start < 20
    assert len(calls(imported)) == length
