"""Input types: what the model fixes, what the user gives, and what stays unknown."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import ModelProto, TensorProto, helper

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model
from relaybuild.ir.types import TensorType


def model(**inputs: Any) -> ModelProto:
    """A model that adds nothing to each input; shapes may hold names and None."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    nodes = [helper.make_node("Relu", [name], [f"{name}_out"]) for name in inputs]
    outputs = [helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None) for name in inputs]
    graph = helper.make_graph(nodes, "g", values, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def types(found: ModelProto, shapes: dict[str, tuple[int, ...]] | None = None) -> dict[str, TensorType]:
    imported = import_model(found, shapes)
    return {param.name_hint: param.tensor_type for param in imported.module["main"].params}


def test_fixed_shapes_need_nothing() -> None:
    assert types(model(x=(1, 2), y=())) == {"x": TensorType((1, 2)), "y": TensorType(())}


def test_every_unknown_input_is_listed_with_the_flag_that_helps() -> None:
    with pytest.raises(UserError) as caught:
        types(model(x=("batch", 3, None, "w"), y=(4,), z=(None, "len")))
    assert str(caught.value) == (
        "g: the shape of 2 inputs is not known, expected numbers:\n"
        "  input 'x' has shape (batch, 3, ?, w): unknown in dimension 0 ('batch'), 2, 3 ('w')\n"
        "  input 'z' has shape (?, len): unknown in dimension 0, 1 ('len')\n"
        "  give the shape to compile for, as in: --shape x=1,3,224,224 --shape z=1,128"
    )


def test_negative_extents_are_unknown() -> None:
    with pytest.raises(UserError, match=r"input 'x' has shape \(\?, 3\): unknown in dimension 0"):
        types(model(x=(-1, 3)))
    assert types(model(x=(-1, 3)), {"x": (5, 3)}) == {"x": TensorType((5, 3))}


def test_an_input_without_any_shape() -> None:
    with pytest.raises(UserError, match="input 'x' has no shape at all"):
        types(model(x=None))
    assert types(model(x=None), {"x": (2, 2)}) == {"x": TensorType((2, 2))}


def test_a_given_shape_decides_its_names_in_other_inputs() -> None:
    found = types(model(x=("n", "t"), y=("n", 4)), {"x": (2, 7)})
    assert found == {"x": TensorType((2, 7)), "y": TensorType((2, 4))}


def test_unknown_input_name() -> None:
    with pytest.raises(UserError) as caught:
        types(model(images=(1, 3)), {"image": (1, 3)})
    expected = "g: a shape is given for 'image', which is no input; the inputs are 'images'; did you mean 'images'?"
    assert str(caught.value) == expected


def test_wrong_rank() -> None:
    with pytest.raises(UserError, match=r"input 'x': the given shape \(1, 3\) has rank 2, the model's \(n, 3, 4\)"):
        types(model(x=("n", 3, 4)), {"x": (1, 3)})


def test_contradiction_of_a_fixed_extent() -> None:
    with pytest.raises(UserError, match=r"dimension 1 of the given shape \(1, 4\) is 4, the model fixes it to 3"):
        types(model(x=("n", 3)), {"x": (1, 4)})


def test_negative_given_extent() -> None:
    with pytest.raises(UserError, match="has a negative extent"):
        types(model(x=("n", 3)), {"x": (-1, 3)})


def test_inputs_that_are_no_tensors() -> None:
    found = model(x=(1,))
    found.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(UserError, match="input 'x': it is of kind 'sequence', expected a tensor"):
        types(found)


def test_unsupported_input_dtype() -> None:
    found = model(x=(1,))
    found.graph.input[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    with pytest.raises(UserError, match="input 'x': element type 'complex64' is not supported"):
        types(found)
