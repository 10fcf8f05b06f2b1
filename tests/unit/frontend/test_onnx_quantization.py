"""Quantized operators against onnxruntime, its own ones among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, helper, numpy_helper
from onnx_cases import run

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (2, 6, 8, 9)).astype(np.uint8)
WEIGHT = RNG.integers(-127, 128, (10, 6, 3, 3)).astype(np.int8)

Arrays = Mapping[str, NDArray[Any]]


def scalar(value: float, dtype: str = "float32") -> NDArray[Any]:
    return np.array(value, dtype)


def quantized(name: str, data: NDArray[Any], scale: float, zero: int) -> dict[str, NDArray[Any]]:
    """A tensor as three inputs."""
    return {name: data, f"{name}_scale": scalar(scale), f"{name}_zero": scalar(zero, data.dtype.name)}


def model(op_type: str, inputs: Arrays, domain: str = "", **attrs: Any) -> ModelProto:
    """A model of one node whose first input, and others of its kind, are given where it runs."""
    node = helper.make_node(op_type, list(inputs), ["result"], name="node", domain=domain, **attrs)
    graph = helper.make_graph(
        [node],
        "graph",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in inputs.items()
            if name in ("x", "y")
        ],
        [helper.make_empty_tensor_value_info("result")],
        [numpy_helper.from_array(value, name) for name, value in inputs.items() if name not in ("x", "y")],
    )
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


def check(op_type: str, inputs: Arrays, domain: str = "", quanta: int = 0, **attrs: Any) -> None:
    """Compare with onnxruntime, which may round differently by so many quanta where two numbers are as near."""
    found = model(op_type, inputs, domain, **attrs)
    given = {name: inputs[name] for name in ("x", "y") if name in inputs}
    session = onnxruntime.InferenceSession(found.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,), (result,) = session.run(None, given), run(import_model(found), given)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    assert np.ptp(expected.astype(np.int64)) > 20
    assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max() <= quanta


def result_of(scale: float, zero: int, dtype: str = "uint8") -> dict[str, NDArray[Any]]:
    return {"scale": scalar(scale), "zero": scalar(zero, dtype)}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("by_channel", [False, True])
def test_convolution(by_channel: bool, has_bias: bool) -> None:
    scales = RNG.random(10).astype(np.float32) * 0.01 + 0.002 if by_channel else scalar(0.007)
    zeros = np.zeros(10, np.int8) if by_channel else scalar(0, "int8")
    inputs = quantized("x", X, 0.02, 117) | {"w": WEIGHT, "w_scale": scales, "w_zero": zeros} | result_of(0.9, 128)
    if has_bias:
        inputs["bias"] = RNG.integers(-3000, 3000, 10).astype(np.int32)
    check("QLinearConv", inputs, pads=[1, 1, 1, 1], strides=[2, 1])


@pytest.mark.parametrize("zero", [None, 117])
def test_convolution_to_integers(zero: int | None) -> None:
    inputs = {"x": X, "w": WEIGHT} | ({} if zero is None else {"x_zero": scalar(zero, "uint8")})
    check("ConvInteger", inputs, pads=[1, 1, 1, 1])


def test_product() -> None:
    left, right = X.reshape(16, 54), WEIGHT.reshape(54, 10)
    inputs = quantized("x", left, 0.02, 117) | quantized("w", right, 0.01, 0) | result_of(0.5, 100)
    check("QLinearMatMul", inputs)


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("swapped", [False, True])
def test_product_with_a_bias(swapped: bool, by_column: bool) -> None:
    left, right = X.reshape(16, 54), WEIGHT.reshape(54, 10)
    scales = RNG.random(10).astype(np.float32) * 0.01 + 0.002 if by_column else scalar(0.01)
    zeros = np.zeros(10, np.int8) if by_column else scalar(0, "int8")
    inputs = quantized("x", left, 0.02, 117)
    inputs |= {"w": right.T.copy() if swapped else right, "w_scale": scales, "w_zero": zeros}
    inputs |= {"bias": RNG.integers(-3000, 3000, 10).astype(np.int32)}
    check("QGemm", inputs | result_of(0.5, 100), "com.microsoft", quanta=1, transB=int(swapped))
    check("QGemm", inputs, "com.microsoft", alpha=2.0, transB=int(swapped))


@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_arithmetic(op_type: str) -> None:
    inputs = quantized("x", X, 0.02, 117) | quantized("y", X[:, ::-1], 0.03, 40) | result_of(0.06, 90)
    check(op_type, inputs, "com.microsoft", quanta=1)


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.3}), ("QLinearSoftmax", {"axis": 3})],
)
def test_activations(op_type: str, attrs: dict[str, Any]) -> None:
    versions = {"opset": 17} if op_type == "QLinearSoftmax" else {}
    scale, zero = (0.02, 60) if op_type == "QLinearLeakyRelu" else (1 / 256, 0)
    check(
        op_type, quantized("x", X, 0.02, 117) | result_of(scale, zero), "com.microsoft", quanta=1, **attrs, **versions
    )


@pytest.mark.parametrize(
    ("op_type", "attrs"),
    [("QLinearAveragePool", {"kernel_shape": [3, 2], "strides": [2, 2]}), ("QLinearGlobalAveragePool", {})],
)
def test_pools(op_type: str, attrs: dict[str, Any]) -> None:
    inputs = quantized("x", X, 0.02, 117) | result_of(0.01, 120)
    check(op_type, inputs, "com.microsoft", quanta=1, **attrs)
    with pytest.raises(UserError, match="channels in the last axis is not supported"):
        import_model(model(op_type, inputs, "com.microsoft", channels_last=1, **attrs))


def test_concatenation() -> None:
    inputs = result_of(0.03, 100) | quantized("x", X, 0.02, 117) | quantized("y", X, 0.03, 40)
    check("QLinearConcat", inputs, "com.microsoft", quanta=1, axis=1)


def test_a_pool_of_short_integers() -> None:
    check("MaxPool", {"x": X}, kernel_shape=[3, 3])
