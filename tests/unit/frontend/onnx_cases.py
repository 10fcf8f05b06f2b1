"""Runs imported models on the operators' reference semantics, and holds ONNX's own node tests by operator."""

from __future__ import annotations

import importlib
import pkgutil
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import ImportedModel, import_model
from relaybuild.frontend.onnx.importer import MAX_OPSET, MIN_OPSET
from relaybuild.ir.expr import Call, Constant, If, Tuple, TupleGetItem, Var
from relaybuild.ir.op import Op
from relaybuild.ir.types import DTYPES, TensorType
from relaybuild.ir.visitor import post_order

_SLOW_MODULES = ("averagepool", "lppool", "maxpool")
_ROUNDING = {"float16": 2e-3, "bfloat16": 1.6e-2}
NEEDS_CONSTANT = "computed from the model's inputs"


def run(model: ImportedModel, inputs: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs, checking every value against the type its node was given."""
    main = model.module["main"]
    values: dict[int, Any] = {}
    for node in post_order(main.body):
        if isinstance(node, Var):
            values[id(node)] = inputs[node.name_hint]
        elif isinstance(node, Constant):
            values[id(node)] = node.data
        elif isinstance(node, Tuple):
            values[id(node)] = tuple(values[id(item)] for item in node.fields)
        elif isinstance(node, TupleGetItem):
            values[id(node)] = values[id(node.tuple_value)][node.index]
        elif isinstance(node, If):
            values[id(node)] = values[id(node.true_branch if values[id(node.cond)] else node.false_branch)]
        elif isinstance(node, Call) and isinstance(node.op, Op):
            with np.errstate(all="ignore"):
                values[id(node)] = node.op.evaluate([values[id(arg)] for arg in node.args], node.attrs)
        else:
            raise AssertionError(f"unexpected {type(node).__name__}")
        if isinstance(node.checked_type, TensorType):
            found = np.asarray(values[id(node)])
            assert (found.shape, found.dtype.name) == (node.checked_type.shape, node.checked_type.dtype), str(node.span)
    result = values[id(main.body)]
    return list(result) if isinstance(result, tuple) else [result]


def import_case(model: ModelProto, inputs: Mapping[str, NDArray[Any]]) -> ImportedModel:
    """Import with as few inputs frozen to their values as the operators need: none, all but the first, all."""
    names = list(inputs)
    for frozen in ([], names[1:], names):
        try:
            shapes = {name: value.shape for name, value in inputs.items() if name not in frozen}
            return import_model(_frozen(model, {name: inputs[name] for name in frozen}), shapes)
        except UserError as error:
            if NEEDS_CONSTANT not in str(error):
                raise
    raise AssertionError("with every input a constant, nothing is computed from inputs")


def _frozen(model: ModelProto, constants: Mapping[str, NDArray[Any]]) -> ModelProto:
    changed = ModelProto()
    changed.CopyFrom(model)
    for entry in changed.opset_import:
        if entry.domain in ("", "ai.onnx"):
            entry.version = min(max(entry.version, MIN_OPSET), MAX_OPSET)
    changed.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    return changed


def assert_same(found: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], rtol: float, atol: float) -> None:
    """Equal shapes and dtypes, values within the tolerance."""
    assert len(found) == len(expected)
    for left, right in zip(found, expected):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        rounding = _ROUNDING.get(left.dtype.name, 0.0)
        np.testing.assert_allclose(left, right, rtol=max(rtol, rounding), atol=max(atol, rounding))


@cache
def node_tests(slow: bool = False) -> Mapping[str, list[Any]]:
    """ONNX's node tests by the operator of their first node; the functions' expansions are left out.

    Making the pooling cases takes seconds, so they come with `slow` only.
    """
    package = importlib.import_module("onnx.backend.test.case.node")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.iter_modules(package.__path__):
            if slow or module.name not in _SLOW_MODULES:
                importlib.import_module(f"{package.__name__}.{module.name}")
    by_operator: dict[str, list[Any]] = {}
    for case in package._NodeTestCases:
        if not case.name.endswith("_expanded") and "_expanded_" not in case.name:
            by_operator.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return by_operator


def inputs_of(case: Any) -> dict[str, NDArray[Any]]:
    """The inputs of a node test by name; none where they are not all tensors of a numeric type."""
    names = [value.name for value in case.model.graph.input]
    values = {name: _as_array(value) for name, value in zip(names, case.data_sets[0][0])}
    numeric = all(value.dtype.name in DTYPES for value in values.values())
    return values if numeric else {}


def check_node_test(case: Any) -> None:
    """Import a node test and compare with its expected outputs."""
    names = [value.name for value in case.model.graph.input]
    for inputs, expected in case.data_sets:
        values = {name: _as_array(value) for name, value in zip(names, inputs)}
        found = run(import_case(case.model, values), values)
        assert_same(found, [_as_array(value) for value in expected], case.rtol, max(case.atol, 1e-6))


def _as_array(value: Any) -> NDArray[Any]:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def single(
    op_type: str, inputs: Mapping[str, NDArray[Any]], opset: int = 17, outputs: int = 1, **attrs: Any
) -> ModelProto:
    """A model of one node over these inputs; output types are left to onnxruntime."""
    node = onnx.helper.make_node(op_type, list(inputs), [f"y{i}" for i in range(outputs)], name="node", **attrs)
    graph = onnx.helper.make_graph(
        [node],
        "graph",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in inputs.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(f"y{i}") for i in range(outputs)],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
