"""Loops and scans, against onnxruntime, as the interpreter runs them and as they are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper
from onnx_cases import assert_same

import relaybuild
from relaybuild.errors import UnsupportedError, UserError
from relaybuild.frontend.onnx import import_model
from relaybuild.runtime import load_module

INT, BOOL, FLOAT = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
RNG = np.random.default_rng(1)
X = RNG.standard_normal((4, 4)).astype(np.float32)
Arrays = dict[str, NDArray[Any]]
make = helper.make_node


def value(name: str, kind: int, *shape: int) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def scalar(name: str, number: float, kind: int = FLOAT) -> NodeProto:
    return make("Constant", [], [name], value=helper.make_tensor(name, kind, [], [number]))


def body(nodes: list[NodeProto], *collected: str) -> GraphProto:
    """What makes `next` and `on_next` of the state `s`, in step `i`, in which `on` held."""
    outputs = [value("on_next", BOOL), value("next", FLOAT, 4, 4)]
    outputs += [helper.make_empty_tensor_value_info(name) for name in collected]
    return helper.make_graph(nodes, "body", [value("i", INT), value("on", BOOL), value("s", FLOAT, 4, 4)], outputs)


def model(node: NodeProto, inputs: Arrays, *before: NodeProto, steps: int | None = None) -> ModelProto:
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
        for name, each in inputs.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    known = [] if steps is None else [helper.make_tensor("steps", INT, [], [steps])]
    graph = helper.make_graph([*before, node], "graph", given, outputs, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def expected(proto: ModelProto, inputs: Arrays) -> list[NDArray[Any]]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, inputs)]


def check(proto: ModelProto, inputs: Arrays) -> None:
    wanted = expected(proto, inputs)
    module = import_model(proto).module
    found = relaybuild.interpret(module, *inputs.values())
    assert_same(list(found) if isinstance(found, tuple) else [found], wanted, 1e-4, 1e-5)
    artifact = relaybuild.compile(proto, cache_dir=False)
    assert_same(list(load_module(artifact.path).run(inputs).values()), wanted, 1e-4, 1e-5)


WHILE = body(
    [
        make("MatMul", ["s", "square"], ["product"]),
        make("Tanh", ["product"], ["next"]),
        make("ReduceSum", ["next"], ["sum"], keepdims=1),
        scalar("least", -3.0),
        make("Greater", ["sum", "least"], ["on_next"]),
    ]
)
"""Reads a value of the graph around it, and decides by what it computes; a condition of shape (1, 1)."""


@pytest.mark.parametrize("steps", [0, 1, 9])
def test_steps_that_are_computed(steps: int) -> None:
    inputs = {"x": X, "steps": np.array(steps)}
    check(
        model(make("Loop", ["steps", "", "x"], ["y"], body=WHILE), inputs, make("Mul", ["x", "x"], ["square"])), inputs
    )


@pytest.mark.parametrize("begins", [True, False])
def test_a_condition_alone_ends_it(begins: bool) -> None:
    inner = body(
        [
            make("Add", ["s", "x"], ["next"]),
            make("ReduceMax", ["next"], ["most"], keepdims=0),
            scalar("limit", 20.0),
            make("Less", ["most", "limit"], ["on_next"]),
        ]
    )
    inputs = {"x": np.abs(X), "begins": np.array(begins)}
    check(model(make("Loop", ["", "begins", "x"], ["y"], body=inner), inputs), inputs)


COLLECTING = body(
    [
        make("Cast", ["i"], ["number"], to=FLOAT),
        make("Add", ["s", "number"], ["next"]),
        make("Mul", ["next", "x"], ["z"]),
        make("Identity", ["on"], ["on_next"]),
    ],
    "z",
)


@pytest.mark.parametrize("steps", [5, 0])
def test_known_steps_are_written_out_and_collect(steps: int) -> None:
    proto = model(make("Loop", ["steps", "", "x"], ["y", "all"], body=COLLECTING), {"x": X}, steps=steps)
    check(proto, {"x": X})


def test_a_known_step_that_ends_it() -> None:
    inner = body(
        [
            scalar("last", 3, INT),
            make("Less", ["i", "last"], ["on_next"]),
            make("Mul", ["s", "x"], ["next"]),
        ],
        "next",
    )
    check(model(make("Loop", ["", "", "x"], ["y", "all"], body=inner), {"x": X}), {"x": X})


def test_many_steps_are_a_loop() -> None:
    inner = body([make("Mul", ["s", "x"], ["t"]), make("Sin", ["t"], ["next"]), make("Identity", ["on"], ["on_next"])])
    proto = model(make("Loop", ["steps", "", "x"], ["y"], body=inner), {"x": X}, steps=50_000)
    assert import_model(proto).module.astext().count("sin(") == 1
    artifact = relaybuild.compile(proto, cache_dir=False)
    assert_same(list(load_module(artifact.path).run({"x": X}).values()), expected(proto, {"x": X}), 1e-4, 1e-5)


def test_loops_within_loops() -> None:
    inner = helper.make_graph(
        [make("Add", ["t", "s"], ["t_next"]), make("Identity", ["go"], ["go_next"])],
        "inner",
        [value("j", INT), value("go", BOOL), value("t", FLOAT, 4, 4)],
        [value("go_next", BOOL), value("t_next", FLOAT, 4, 4)],
    )
    outer = body(
        [
            make("Loop", ["i", "", "x"], ["sum"], body=inner),
            make("Tanh", ["sum"], ["next"]),
            make("Identity", ["on"], ["on_next"]),
        ]
    )
    inputs = {"x": X, "steps": np.array(4)}
    check(model(make("Loop", ["steps", "", "x"], ["y"], body=outer), inputs), inputs)


def test_collecting_needs_a_known_number_of_steps() -> None:
    inputs = {"x": X, "steps": np.array(4)}
    with pytest.raises(UnsupportedError, match=r"node 'y' \(Loop\): a loop whose number of steps is computed"):
        import_model(model(make("Loop", ["steps", "", "x"], ["y", "all"], body=COLLECTING), inputs))


def test_a_body_of_other_inputs() -> None:
    proto = model(make("Loop", ["steps", "", "x", "x"], ["y", "z"], body=COLLECTING), {"x": X}, steps=5)
    with pytest.raises(UserError, match="its body has 3 inputs and 3 outputs, expected 4 inputs and 3 outputs or more"):
        import_model(proto)


def test_scans_in_all_directions() -> None:
    inner = helper.make_graph(
        [make("Add", ["s", "e"], ["s_next"]), make("Relu", ["s_next"], ["o"])],
        "body",
        [value("s", FLOAT, 4), value("e", FLOAT, 4)],
        [value("s_next", FLOAT, 4), value("o", FLOAT, 4)],
    )
    inputs = {"s0": X[0], "x": RNG.standard_normal((4, 6)).astype(np.float32)}
    for forwards, backwards in ((0, 1), (1, 0), (1, 1)):
        node = make(
            "Scan",
            ["s0", "x"],
            ["y", "z"],
            body=inner,
            num_scan_inputs=1,
            scan_input_axes=[-1],
            scan_input_directions=[forwards],
            scan_output_axes=[1],
            scan_output_directions=[backwards],
        )
        check(model(node, inputs), inputs)
