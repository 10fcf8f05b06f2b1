"""onnxruntime's operators that stand for several, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper
from onnx_cases import assert_same, run

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model

RNG = np.random.default_rng(3)
Arrays = dict[str, NDArray[Any]]


def rand(*shape: int) -> NDArray[Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(low: int, high: int, *shape: int) -> NDArray[Any]:
    return RNG.integers(low, high, shape).astype(np.int32)


def model(op_type: str, inputs: Arrays, outputs: str, domain: str, **attrs: Any) -> ModelProto:
    """A model of one node; an input whose name begins with `x` is given where it runs, "_" is left out."""
    names = ["" if name.startswith("_") else name for name in inputs]
    node = helper.make_node(
        op_type, names, [name.strip() for name in outputs.split(",")], name="n", domain=domain, **attrs
    )
    given = {name: value for name, value in inputs.items() if name.startswith("x")}
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
        ],
        [helper.make_empty_tensor_value_info(name.strip()) for name in outputs.split(",") if name.strip()],
        [numpy_helper.from_array(value, name) for name, value in inputs.items() if name in names and name not in given],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


NONE = np.zeros(0, np.float32)
IMAGE, FILTERS = rand(2, 4, 6, 7), rand(5, 4, 3, 3)
WORDS, LENGTHS = rand(2, 5, 12), np.array([3, 5], np.int32)
KEPT = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
PAIRS = np.tril(np.ones((2, 5, 5), np.int32))
SELF = {"x": WORDS, "w": rand(12, 36) * 0.3, "b": rand(36)}
TABLES = {"t": rand(9, 8), "p": rand(6, 8), "s": rand(2, 8), "g": rand(8), "b": rand(8)}

CASES: dict[str, tuple[str, Arrays, str, dict[str, Any]]] = {
    "gelu": ("Gelu", {"x": rand(3, 4)}, "y", {}),
    "gelu with a bias": ("BiasGelu", {"x": rand(3, 4), "b": rand(4)}, "y", {}),
    "fast gelu": ("FastGelu", {"x": rand(3, 4)}, "y", {}),
    "fast gelu with a bias": ("FastGelu", {"x": rand(3, 4), "b": rand(4)}, "y", {}),
    "quick gelu": ("QuickGelu", {"x": rand(3, 4)}, "y", {"alpha": 1.5}),
    "product": ("FusedMatMul", {"x": rand(2, 3, 4), "b": rand(4, 5)}, "y", {"alpha": 0.5}),
    "product of transposed": (
        "FusedMatMul",
        {"x": rand(2, 4, 3), "x2": rand(2, 5, 4)},
        "y",
        {"transA": 1, "transB": 1},
    ),
    "product of rows before batches": (
        "FusedMatMul",
        {"x": rand(3, 2, 6, 4), "x2": rand(5, 2, 6, 4)},
        "y",
        {"transBatchA": 1, "transBatchB": 1, "transB": 1},
    ),
    "layer": ("FusedGemm", {"x": rand(3, 4), "w": rand(5, 4), "b": rand(5)}, "y", {"transB": 1, "activation": "Relu"}),
    "leaky layer": (
        "FusedGemm",
        {"x": rand(3, 4), "w": rand(4, 5)},
        "y",
        {"activation": "LeakyRelu", "activation_alpha": 0.2},
    ),
    "convolution": (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS, "b": rand(5)},
        "y",
        {"activation": "Tanh", "pads": [1] * 4},
    ),
    "convolution with a sum": (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS, "b": rand(5), "x2": rand(2, 5, 4, 5)},
        "y",
        {"activation": "Relu"},
    ),
    "convolution between bounds": (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS},
        "y",
        {"activation": "Clip", "activation_params": [0.0, 1.5]},
    ),
    "convolution with a hard sigmoid": (
        "FusedConv",
        {"x": IMAGE, "w": FILTERS},
        "y",
        {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]},
    ),
    "sum normalised": (
        "SkipLayerNormalization",
        {"x": WORDS, "x2": rand(2, 5, 12), "g": rand(12), "b": rand(12), "c": rand(12)},
        "y, , , sum",
        {"epsilon": 1e-5},
    ),
    "sum normalised without bias": ("SkipLayerNormalization", {"x": WORDS, "x2": WORDS * 2, "g": rand(12)}, "y", {}),
    "sum over its root": (
        "SkipSimplifiedLayerNormalization",
        {"x": WORDS, "x2": rand(2, 5, 12), "g": rand(12)},
        "y, , , sum",
        {"epsilon": 1e-6},
    ),
    "words": (
        "EmbedLayerNormalization",
        {"x": ints(0, 9, 2, 5), "x2": ints(0, 2, 2, 5), **TABLES},
        "y, , sum",
        {"epsilon": 1e-5},
    ),
    "attention": ("Attention", SELF, "y", {"num_heads": 3}),
    "attention to words kept": ("Attention", {**SELF, "x2": KEPT}, "y", {"num_heads": 3}),
    "attention to so many words": ("Attention", {**SELF, "x2": LENGTHS}, "y", {"num_heads": 2, "scale": 0.7}),
    "attention to pairs": ("Attention", {**SELF, "x2": PAIRS}, "y", {"num_heads": 2}),
    "attention backwards": ("Attention", SELF, "y", {"num_heads": 2, "unidirectional": 1}),
    "attention with a bias": (
        "Attention",
        {**SELF, "_mask": NONE, "_past": NONE, "x2": rand(2, 3, 5, 5)},
        "y",
        {"num_heads": 3},
    ),
}


def check(op_type: str, inputs: Arrays, outputs: str, domain: str, attrs: dict[str, Any]) -> None:
    found = model(op_type, inputs, outputs, domain, **attrs)
    given = {name: value for name, value in inputs.items() if name.startswith("x")}
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    assert_same(run(import_model(found), given), session.run(None, given), 2e-5, 2e-5)


@pytest.mark.parametrize("name", CASES)
def test_operators_of_onnxruntime(name: str) -> None:
    op_type, inputs, outputs, attrs = CASES[name]
    check(op_type, inputs, outputs, "com.microsoft", attrs)


def test_a_norm_that_onnxruntime_has_among_the_standards() -> None:
    check("SimplifiedLayerNormalization", {"x": WORDS, "g": rand(12)}, "y", "", {"epsilon": 1e-6})


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "attrs", "message"),
    [
        (
            "FusedConv",
            {"x": IMAGE, "w": FILTERS},
            "y",
            {"activation": "Swish"},
            "the activation 'Swish' is not supported",
        ),
        ("SkipLayerNormalization", {"x": WORDS, "x2": WORDS, "g": rand(12)}, "y, m", {}, "the mean or the deviation"),
        ("Attention", SELF, "y, past", {"num_heads": 3}, "keys and values of earlier steps"),
        ("Attention", {**SELF, "x2": ints(0, 2, 7)}, "y", {"num_heads": 3}, r"a mask of shape \(7,\)"),
    ],
)
def test_forms_that_are_not_supported(
    op_type: str, inputs: Arrays, outputs: str, attrs: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        import_model(model(op_type, inputs, outputs, "com.microsoft", **attrs))
