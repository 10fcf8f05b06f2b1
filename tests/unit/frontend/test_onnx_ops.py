"""Converters against onnxruntime, over the versions and forms that ONNX's node tests do not reach."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, helper
from onnx_cases import assert_same, import_case, run, single

from relaybuild.errors import UserError
from relaybuild.frontend.onnx import import_model
from relaybuild.ir.expr import Call, Constant, Expr
from relaybuild.ir.visitor import post_order


def rand(*shape: int, dtype: str = "float32") -> NDArray[Any]:
    rng = np.random.default_rng(abs(hash(shape)) % 1000)
    if np.dtype(dtype).kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(-9 if np.dtype(dtype).kind == "i" else 0, 9, shape).astype(dtype)


def ints(*values: int) -> NDArray[Any]:
    return np.array(values, np.int64)


def check(model: ModelProto, inputs: dict[str, NDArray[Any]], tolerance: float = 2e-5) -> list[Expr]:
    """Compare with onnxruntime; returns the nodes of the imported body."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    imported = import_case(model, inputs)
    assert_same(run(imported, inputs), session.run(None, inputs), tolerance, tolerance)
    return list(post_order(imported.module["main"].body))


def op_names(nodes: list[Expr]) -> list[str]:
    return [node.op_name for node in nodes if isinstance(node, Call)]


Case = tuple[str, int, dict[str, NDArray[Any]], dict[str, Any]]
X4 = rand(2, 4, 7, 9)
X5 = rand(2, 4, 5, 6, 7)
U8 = rand(2, 3, dtype="uint8")
CASES: list[Case] = [
    # convolution
    ("Conv", 11, {"x": X4, "w": rand(6, 4, 3, 3), "b": rand(6)}, {"pads": [1, 0, 2, 1], "strides": [2, 3]}),
    ("Conv", 22, {"x": X4, "w": rand(6, 2, 3, 2)}, {"group": 2, "dilations": [2, 1]}),
    ("Conv", 17, {"x": X4, "w": rand(4, 1, 3, 3), "b": rand(4)}, {"group": 4, "auto_pad": "SAME_UPPER"}),
    ("Conv", 17, {"x": X4, "w": rand(5, 4, 4, 2)}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("Conv", 17, {"x": X4, "w": rand(5, 4, 3, 3)}, {"auto_pad": "VALID", "kernel_shape": [3, 3]}),
    ("Conv", 17, {"x": rand(2, 4, 11), "w": rand(6, 2, 3), "b": rand(6)}, {"group": 2, "pads": [2, 1], "strides": [2]}),
    ("ConvTranspose", 11, {"x": X4, "w": rand(4, 3, 3, 3), "b": rand(3)}, {"strides": [2, 2], "pads": [1, 0, 1, 2]}),
    ("ConvTranspose", 17, {"x": X4, "w": rand(4, 3, 3, 3)}, {"strides": [3, 2], "output_padding": [1, 1], "group": 2}),
    ("ConvTranspose", 17, {"x": X4, "w": rand(4, 3, 3, 3)}, {"strides": [2, 2], "output_shape": [12, 18]}),
    ("ConvTranspose", 17, {"x": X4, "w": rand(4, 3, 4, 4)}, {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("ConvTranspose", 17, {"x": X4, "w": rand(4, 3, 3, 3)}, {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ("ConvTranspose", 17, {"x": rand(1, 4, 6), "w": rand(4, 2, 3)}, {"strides": [2], "output_padding": [1]}),
    # opsets before 11
    ("Clip", 7, {"x": X4}, {"min": -0.5}),
    ("Clip", 10, {"x": X4}, {"min": -0.5, "max": 0.25}),
    ("Pad", 8, {"x": X4}, {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "value": 2.5}),
    ("Pad", 10, {"x": X4}, {"pads": [0, 0, 1, 2, 0, 0, 0, 1], "mode": "reflect"}),
    ("Slice", 9, {"x": X4}, {"starts": [1, -3], "ends": [4, 1000], "axes": [2, 3]}),
    ("Slice", 7, {"x": X4}, {"starts": [0, 1], "ends": [1, 3]}),
    ("Slice", 10, {"x": X4, "s": ints(5), "e": ints(0), "a": ints(2), "t": ints(-2)}, {}),
    ("Upsample", 7, {"x": X4}, {"scales": [1.0, 1.0, 2.0, 3.0]}),
    ("Upsample", 9, {"x": X4, "s": np.array([1, 1, 2, 1.5], np.float32)}, {"mode": "linear"}),
    ("Resize", 10, {"x": X4, "s": np.array([1, 1, 2, 0.5], np.float32)}, {}),
    ("PRelu", 7, {"x": X4, "s": rand(4, 1, 1)}, {}),
    # three spatial axes
    ("Conv", 17, {"x": X5, "w": rand(6, 4, 3, 3, 3), "b": rand(6)}, {"pads": [1, 0, 2, 1, 1, 0], "strides": [2, 1, 3]}),
    ("Conv", 17, {"x": X5, "w": rand(6, 2, 2, 1, 3)}, {"group": 2, "dilations": [3, 1, 2]}),
    ("Conv", 17, {"x": X5, "w": rand(8, 1, 3, 3, 3)}, {"group": 4, "auto_pad": "SAME_UPPER", "strides": [2, 2, 2]}),
    ("Conv", 17, {"x": X5, "w": rand(5, 4, 1, 1, 1), "b": rand(5)}, {}),
    ("ConvTranspose", 17, {"x": X5, "w": rand(4, 3, 2, 2, 2), "b": rand(3)}, {"strides": [2, 2, 2]}),
    (
        "ConvTranspose",
        17,
        {"x": X5, "w": rand(4, 3, 3, 2, 3), "b": rand(6)},
        {
            "strides": [3, 2, 1],
            "group": 2,
            "pads": [1, 0, 1, 2, 1, 0],
            "dilations": [2, 1, 1],
            "output_padding": [2, 1, 0],
        },
    ),
    ("ConvTranspose", 17, {"x": X5, "w": rand(4, 2, 3, 3, 3)}, {"strides": [2, 1, 2], "auto_pad": "SAME_LOWER"}),
    ("MaxPool", 12, {"x": X5}, {"kernel_shape": [3, 2, 2], "strides": [2, 2, 2], "pads": [1, 0, 1, 1, 1, 1]}),
    (
        "MaxPool",
        12,
        {"x": X5},
        {"kernel_shape": [2, 2, 2], "dilations": [2, 3, 1], "ceil_mode": 1, "strides": [2, 1, 2]},
    ),
    ("AveragePool", 19, {"x": X5}, {"kernel_shape": [3, 3, 2], "pads": [1, 1, 0, 1, 1, 1], "strides": [2, 2, 1]}),
    ("AveragePool", 11, {"x": X5}, {"kernel_shape": [2, 3, 3], "pads": [1, 1, 1, 0, 1, 1], "count_include_pad": 1}),
    ("Resize", 13, {"x": X5, "r": rand(0), "s": np.array([1, 1, 2, 1.5, 3], np.float32)}, {"mode": "linear"}),
    ("Resize", 13, {"x": X5, "r": rand(0), "s": np.array([1, 1, 2, 2, 2], np.float32)}, {"mode": "nearest"}),
    # pooling
    ("MaxPool", 12, {"x": X4}, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1], "ceil_mode": 1}),
    ("MaxPool", 12, {"x": X4}, {"kernel_shape": [2, 2], "dilations": [2, 3], "auto_pad": "VALID"}),
    ("MaxPool", 12, {"x": rand(2, 3, 10)}, {"kernel_shape": [3], "strides": [2], "auto_pad": "SAME_LOWER"}),
    ("AveragePool", 11, {"x": X4}, {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("AveragePool", 19, {"x": X4}, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 0, 1], "ceil_mode": 1}),
    ("AveragePool", 17, {"x": rand(2, 3, 10)}, {"kernel_shape": [4], "strides": [3], "auto_pad": "SAME_UPPER"}),
    ("GlobalAveragePool", 17, {"x": rand(2, 3, 10)}, {}),
    ("GlobalMaxPool", 17, {"x": rand(2, 3, 4, 5, 6)}, {}),
    # matrices
    ("Gemm", 11, {"a": rand(3, 5), "b": rand(5, 4), "c": rand(4)}, {"alpha": 0.5, "beta": 2.0}),
    ("Gemm", 13, {"a": rand(5, 3), "b": rand(4, 5), "c": rand(3, 1)}, {"transA": 1, "transB": 1}),
    ("Gemm", 13, {"a": rand(3, 5), "b": rand(5, 4), "c": rand(1, 4)}, {}),
    ("Gemm", 13, {"a": rand(3, 5), "b": rand(5, 4), "c": np.array(2, np.float32)}, {}),
    ("Gemm", 13, {"a": rand(3, 5), "b": rand(5, 4)}, {"alpha": 3.0}),
    ("MatMul", 13, {"a": rand(5), "b": rand(5)}, {}),
    ("MatMul", 13, {"a": rand(5), "b": rand(2, 5, 4)}, {}),
    ("MatMul", 13, {"a": rand(2, 3, 4, 5), "b": rand(5)}, {}),
    ("MatMul", 13, {"a": rand(2, 1, 4, 5), "b": rand(3, 5, 6)}, {}),
    # versions of normalisations and activations
    *(("Softmax", 11, {"x": rand(2, 3, 4)}, {"axis": axis}) for axis in (0, 1, -1)),
    *(("LogSoftmax", 13, {"x": rand(2, 3, 4)}, {"axis": axis}) for axis in (0, 1, -1)),
    ("Hardmax", 11, {"x": rand(2, 3, 4)}, {"axis": 1}),
    ("BatchNormalization", 11, {"x": X4, "s": rand(4), "b": rand(4), "m": rand(4), "v": abs(rand(4))}, {}),
    ("BatchNormalization", 15, {"x": rand(3, 4), "s": rand(4), "b": rand(4), "m": rand(4), "v": abs(rand(4))}, {}),
    ("InstanceNormalization", 11, {"x": X4, "s": rand(4), "b": rand(4)}, {"epsilon": 1e-3}),
    ("LayerNormalization", 17, {"x": rand(2, 3, 4, 5), "s": rand(4, 5), "b": rand(4, 5)}, {"axis": 2}),
    ("LayerNormalization", 17, {"x": rand(2, 3, 5), "s": rand(5)}, {}),
    ("LRN", 13, {"x": rand(2, 7, 3, 3)}, {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 2.0}),
    ("LpNormalization", 11, {"x": rand(3, 4)}, {"p": 1, "axis": 0}),
    ("PRelu", 16, {"x": X4, "s": rand(4, 1, 1)}, {}),
    ("PRelu", 16, {"x": X4, "s": rand(1)}, {}),
    ("PRelu", 16, {"x": X4, "s": rand(7, 1)}, {}),
    ("PRelu", 16, {"x": X4, "s": rand(4, 7, 9)}, {}),
    ("Elu", 11, {"x": 100 * rand(3, 4)}, {"alpha": 2.0}),
    ("Selu", 11, {"x": 100 * rand(3, 4)}, {}),
    ("Celu", 12, {"x": 100 * rand(3, 4)}, {"alpha": 0.7}),
    ("Softplus", 11, {"x": 100 * rand(3, 4)}, {}),
    ("Shrink", 11, {"x": rand(3, 4)}, {"lambd": 0.4, "bias": 0.1}),
    ("ThresholdedRelu", 11, {"x": rand(3, 4)}, {"alpha": 0.3}),
    ("HardSigmoid", 11, {"x": 5 * rand(3, 4)}, {}),
    # reductions
    *(
        (name, opset, {"x": abs(rand(2, 3, 4)) + 0.5}, {"axes": [0, -1], "keepdims": keepdims})
        for name in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin")
        for opset, keepdims in ((11, 1), (13, 0))
    ),
    ("ReduceSum", 11, {"x": rand(2, 3, 4)}, {"axes": [1]}),
    ("ReduceSum", 13, {"x": rand(2, 3, 4), "axes": ints(0, -1)}, {"keepdims": 0}),
    ("ReduceSum", 13, {"x": rand(2, 3, 4), "axes": ints()}, {"noop_with_empty_axes": 1}),
    ("ReduceProd", 11, {"x": rand(2, 3, 4)}, {"keepdims": 0}),
    ("ReduceSumSquare", 18, {"x": rand(2, 3, 4), "axes": ints(1)}, {}),
    ("ReduceMean", 18, {"x": rand(2, 3, 4), "axes": ints(-2)}, {"keepdims": 0}),
    ("ReduceLogSumExp", 18, {"x": 100 * rand(2, 3, 4), "axes": ints(1)}, {"keepdims": 0}),
    ("ReduceLogSumExp", 18, {"x": np.float32([[-np.inf] * 2, [1, np.inf], [0, 1]]), "axes": ints(1)}, {}),
    ("ReduceMax", 18, {"x": rand(2, 3, dtype="int32")}, {}),
    ("ArgMax", 11, {"x": rand(2, 3, 4)}, {"axis": -1, "keepdims": 0}),
    ("ArgMin", 13, {"x": rand(2, 3, dtype="int32")}, {"axis": 1, "select_last_index": 1}),
    ("CumSum", 11, {"x": rand(2, 3), "axis": np.array(-1, np.int64)}, {"reverse": 1, "exclusive": 1}),
    # shapes
    ("Reshape", 13, {"x": rand(2, 3, 4), "shape": ints(0, -1, 2)}, {}),
    ("Flatten", 13, {"x": rand(2, 3, 4)}, {"axis": -1}),
    ("Flatten", 13, {"x": rand(2, 3, 4)}, {"axis": 0}),
    ("Squeeze", 11, {"x": rand(1, 3, 1)}, {"axes": [-1]}),
    ("Squeeze", 13, {"x": rand(1, 3, 1), "axes": ints(0)}, {}),
    ("Squeeze", 13, {"x": rand(1, 3, 1)}, {}),
    ("Unsqueeze", 11, {"x": rand(3, 4)}, {"axes": [3, 0]}),
    ("Unsqueeze", 13, {"x": rand(3, 4), "axes": ints(-1, 1)}, {}),
    ("Transpose", 13, {"x": rand(2, 3, 4)}, {}),
    ("Expand", 13, {"x": rand(3, 1), "shape": ints(2, 1, 4)}, {}),
    ("Tile", 13, {"x": rand(2, 3), "repeats": ints(2, 3)}, {}),
    ("Pad", 11, {"x": rand(3, 4), "pads": ints(1, 0, 2, 3), "value": np.array(1.5, np.float32)}, {}),
    ("Pad", 13, {"x": rand(5, 6), "pads": ints(1, -2, -1, 2)}, {}),
    ("Pad", 13, {"x": rand(5, 6), "pads": ints(2, 1, 0, 3)}, {"mode": "reflect"}),
    ("Pad", 13, {"x": rand(5, 6), "pads": ints(2, 1, 0, 3)}, {"mode": "edge"}),
    ("Pad", 19, {"x": rand(5, 6), "pads": ints(2, 1, 0, 3)}, {"mode": "wrap"}),
    ("Slice", 11, {"x": rand(5, 6, 7), "s": ints(-1, 1), "e": ints(-100, 100), "a": ints(-1, 0), "t": ints(-2, 2)}, {}),
    ("Slice", 13, {"x": rand(5, 6), "s": ints(1), "e": ints(-1)}, {}),
    ("Slice", 13, {"x": rand(5, 6), "s": ints(4), "e": ints(2), "a": ints(1)}, {}),
    ("Slice", 13, {"x": rand(5, 6), "s": ints(0), "e": ints(2**63 - 1), "a": ints(1)}, {}),
    ("Gather", 13, {"x": rand(5, 6), "i": rand(2, 3, dtype="int64") % 5 - 3}, {"axis": -1}),
    ("Gather", 11, {"x": rand(5, 6), "i": np.array(-1, np.int32)}, {}),
    ("GatherElements", 11, {"x": rand(3, 4), "i": ints(0, -1, 2, 1).reshape(1, 4)}, {}),
    ("GatherND", 12, {"x": rand(2, 3, 4), "i": ints(1, -1).reshape(2, 1)}, {"batch_dims": 1}),
    ("ScatterElements", 11, {"x": rand(3, 4), "i": ints(0, -1).reshape(1, 2), "u": rand(1, 2)}, {"axis": 1}),
    ("ScatterND", 16, {"x": rand(4, 3), "i": ints(1, -1).reshape(2, 1), "u": rand(2, 3)}, {"reduction": "add"}),
    ("DepthToSpace", 11, {"x": rand(1, 8, 2, 3)}, {"blocksize": 2, "mode": "CRD"}),
    ("Trilu", 14, {"x": rand(2, 3, 4)}, {"upper": 0}),
    ("EyeLike", 11, {"x": rand(3, 5)}, {"k": 1, "dtype": TensorProto.INT32}),
    # resizing: X, roi, scales, sizes
    *(
        ("Resize", opset, {"x": rand(1, 2, 5, 7), "roi": rand(0), "s": np.array([1, 1, *s], np.float32)}, attrs)
        for opset in (11, 13, 19)
        for s in ((2, 3), (0.6, 1.7))
        for attrs in (
            {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
            {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
            {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
            {"mode": "cubic", "coordinate_transformation_mode": "half_pixel", "cubic_coeff_a": -0.5},
        )
    ),
    ("Resize", 13, {"x": rand(1, 2, 5, 7), "": rand(0), " ": rand(0), "s": ints(1, 2, 10, 9)}, {"mode": "linear"}),
    ("Resize", 18, {"x": rand(1, 2, 5, 7), "": rand(0), " ": rand(0), "s": ints(10, 9)}, {"axes": [2, 3]}),
    ("Resize", 13, {"x": rand(5, 7), "": rand(0), "s": np.array([2, 2], np.float32)}, {"mode": "linear"}),
    ("Resize", 13, {"x": rand(1, 2, 5), "": rand(0), "s": np.array([1, 1, 2], np.float32)}, {"mode": "nearest"}),
    # composed of products
    *(
        ("Einsum", 13, dict(zip("abc", operands)), {"equation": equation})
        for equation, *operands in (
            ("bhid,bhjd->bhij", rand(2, 3, 4, 5), rand(2, 3, 6, 5)),
            ("ij,jk,kl->il", rand(2, 3), rand(3, 4), rand(4, 5)),
            ("ij,kl->", rand(2, 3), rand(4, 5)),
            ("...ij,...jk", rand(2, 1, 3, 4), rand(2, 5, 4, 2)),
            ("abc->ca", rand(2, 3, 4)),
            ("i,i,i->i", rand(4), rand(4), rand(4)),
        )
    ),
    ("DequantizeLinear", 13, {"x": rand(2, 3, 4, dtype="int8"), "s": rand(3), "z": rand(3, dtype="int8")}, {}),
    ("QuantizeLinear", 13, {"x": 9 * rand(2, 3), "s": np.array(0.5, np.float32), "z": np.array(3, np.uint8)}, {}),
    (
        "MatMulInteger",
        11,
        {"a": U8, "b": U8.reshape(3, 2), "z": np.array(2, np.uint8), "y": np.array(1, np.uint8)},
        {},
    ),
    # arithmetic
    ("Div", 13, {"a": rand(3, 4, dtype="int32"), "b": np.array([[-3], [2], [5]], np.int32)}, {}),
    ("Mod", 13, {"a": rand(3, 4, dtype="int64"), "b": np.array([-3, 2, 5, -7])}, {}),
    ("Mod", 13, {"a": rand(3, 4), "b": rand(4)}, {"fmod": 1}),
    ("Pow", 12, {"a": rand(3, 4), "b": np.array(2, np.int64)}, {}),
    ("Pow", 13, {"a": abs(rand(3, dtype="int32")), "b": np.array([2.0, 1.0, 3.0], np.float32)}, {}),
    ("Clip", 11, {"x": rand(3, 4), "lo": np.array(-0.5, np.float32)}, {}),
    ("Clip", 13, {"x": rand(3, 4), "lo": np.array(0.5, np.float32), "hi": np.array(-0.5, np.float32)}, {}),
    ("Clip", 13, {"x": rand(3, 4, dtype="int64"), "": rand(0), "hi": np.array(2)}, {}),
    ("Max", 13, {"a": rand(3, 4), "b": rand(4), "c": rand(3, 1)}, {}),
    ("Mean", 13, {"a": rand(3, 4), "b": rand(4), "c": rand(3, 1)}, {}),
    ("Cast", 13, {"x": 3 * rand(3, 4)}, {"to": TensorProto.INT32}),
    ("IsInf", 11, {"x": np.array([np.inf, -np.inf, np.nan, 1], np.float32)}, {"detect_negative": 0}),
    ("BitShift", 11, {"x": rand(4, dtype="uint32"), "y": rand(4, dtype="uint32")}, {"direction": "LEFT"}),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case[0]}-{index}" for index, case in enumerate(CASES)])
def test_against_onnxruntime(case: Case) -> None:
    op_type, opset, inputs, attrs = case
    present = {name: value for name, value in inputs.items() if name.strip()}
    model = single(op_type, present, opset, **attrs)
    del model.graph.node[0].input[:]
    model.graph.node[0].input.extend(name.strip() for name in inputs)
    check(model, present)


@pytest.mark.parametrize("largest", [0, 1])
def test_top_k_gives_values_and_indices(largest: int) -> None:
    inputs = {"x": rand(3, 8), "k": ints(3)}
    check(single("TopK", inputs, 11, outputs=2, axis=1, largest=largest), inputs)


def test_the_number_of_largest_elements_was_an_attribute_before_opset_10() -> None:
    inputs = {"x": rand(3, 7)}
    check(single("TopK", inputs, 9, outputs=2, axis=1, k=3), inputs)


@pytest.mark.parametrize(("opset", "attrs"), [(11, {"split": [1, 4]}), (11, {}), (13, {}), (18, {"num_outputs": 2})])
def test_split(opset: int, attrs: dict[str, Any]) -> None:
    inputs = {"x": rand(3, 5 if "split" in attrs or opset == 18 else 6)}
    check(single("Split", inputs, opset, outputs=2, axis=1, **attrs), inputs)


def test_split_sizes_are_an_input_from_opset_13_on() -> None:
    inputs = {"x": rand(3, 5), "sizes": ints(1, 0, 4)}
    check(single("Split", inputs, 13, outputs=3, axis=1), inputs)


def test_dynamic_quantization() -> None:
    for data in (rand(3, 4), np.zeros((3, 4), np.float32)):
        check(single("DynamicQuantizeLinear", {"x": data}, 11, outputs=3), {"x": data})


def test_dropout_is_the_identity() -> None:
    nodes = check(single("Dropout", {"x": rand(3, 4)}, 13), {"x": rand(3, 4)})
    assert op_names(nodes) == []


def test_one_hot_with_negative_indices() -> None:
    inputs = {"i": ints(0, -1, 7), "depth": np.array(4), "values": np.array([2, 5], np.float32)}
    check(single("OneHot", inputs, 11, axis=0), inputs)


def test_group_normalization_takes_scales_per_group_before_opset_21() -> None:
    x, scale, bias = rand(2, 6, 5), rand(3), rand(3)
    old = run(import_model(single("GroupNormalization", {"x": x, "s": scale, "b": bias}, 18, num_groups=3)),
              {"x": x, "s": scale, "b": bias})  # fmt: skip
    wide = {"x": x, "s": np.repeat(scale, 2), "b": np.repeat(bias, 2)}
    new = run(import_model(single("GroupNormalization", wide, 21, num_groups=3)), wide)
    assert_same(old, new, 1e-6, 1e-6)


def frozen(op_type: str, data: NDArray[Any], *weights: NDArray[Any], **attrs: Any) -> tuple[list[Expr], list[Expr]]:
    """Import one node over `data` and constant weights, compare, and return its nodes and constants."""
    names = [f"w{i}" for i in range(len(weights))]
    model = single(op_type, {"x": data, **dict(zip(names, weights))}, **attrs)
    for name, weight in zip(names, weights):
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, weight.shape, weight.reshape(-1)))
    nodes = check(model, {"x": data})
    return nodes, [node for node in nodes if isinstance(node, Constant)]


def test_a_constant_matrix_makes_a_dense_layer() -> None:
    nodes, constants = frozen("MatMul", rand(2, 3, 5), rand(5, 4))
    assert op_names(nodes) == ["transpose", "nn.dense"]
    assert [node.tensor_type.shape for node in constants] == [(5, 4)]


def test_gemm_is_a_dense_layer_whose_weights_are_computed_symbolically() -> None:
    nodes, constants = frozen("Gemm", rand(3, 5), rand(4, 5), rand(4), transB=1, alpha=2.0)
    assert op_names(nodes) == ["multiply", "nn.dense", "nn.bias_add"]
    assert [node.tensor_type.shape for node in constants] == [(4, 5), (), (4,)]


def test_a_bias_of_a_convolution_is_a_bias_add() -> None:
    nodes, _ = frozen("Conv", X4, rand(6, 4, 3, 3), rand(6))
    assert op_names(nodes) == ["nn.conv2d", "nn.bias_add"]


def test_constant_clip_bounds_are_attributes() -> None:
    nodes, _ = frozen("Clip", rand(3), np.array(0, np.float32), np.array(6, np.float32))
    assert op_names(nodes) == ["clip"]


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "message"),
    [
        ("Conv", {"x": rand(1, 4, 5, 5), "w": rand(6, 3, 3, 3)}, {}, "'nn.conv2d' over"),
        ("Conv", {"x": rand(1, 4, 5), "w": rand(6, 4, 3, 3)}, {}, "data of rank 3 and weight of shape"),
        ("Conv", {"x": X4, "w": rand(6, 4, 3, 3)}, {"kernel_shape": [5, 5]}, "attribute 'kernel_shape' is"),
        ("Conv", {"x": X4, "w": rand(6, 4, 3, 3)}, {"strides": [0, 1]}, "expected 2 positive numbers"),
        ("Conv", {"x": X4, "w": rand(6, 4, 3, 3)}, {"auto_pad": "HALF"}, "auto_pad is 'HALF', expected"),
        ("Conv", {"x": X4}, {}, "input 1 is missing"),
        ("MaxPool", {"x": rand(1, 2, 4, 4, 4, 4)}, {"kernel_shape": [2, 2, 2, 2]}, "over 4 spatial axes"),
        ("Conv", {"x": X5, "w": rand(6, 4, 9, 3, 3)}, {}, "data of shape .* does not fit the weight"),
        ("ConvTranspose", {"x": X5, "w": rand(3, 4, 3, 3, 3)}, {}, "data of shape .* does not fit the weight"),
        ("MaxPool", {"x": X4}, {}, "attribute 'kernel_shape' is missing"),
        ("Gemm", {"a": rand(2, 3), "b": rand(4, 5)}, {}, "'nn.dense' over"),
        ("Transpose", {"x": rand(2, 3)}, {"perm": [0, 0]}, "'transpose' over"),
        ("Softmax", {"x": rand(2, 3)}, {"axis": 2}, "axis 2 is out of range for rank 2"),
        ("Softmax", {"x": rand(2, 3)}, {"axes": 1}, "it has no attribute 'axes' in opset 17; its attributes are axis"),
        ("Relu", {"x": rand(2), "y": rand(2)}, {}, "it has 2 inputs, expected at most 1 in opset 17"),
        ("Add", {"a": rand(2), "b": rand(2, dtype="int32")}, {}, "'add' over"),
        ("Add", {"a": rand(2), "b": rand(3)}, {}, "'add' over"),
        ("Reshape", {"x": rand(2, 3), "s": ints(6)}, {}, "'shape' .input 1. is computed from the model's inputs"),
        ("Concat", {"a": rand(2, 3), "b": rand(3, 3)}, {"axis": 1}, "'concatenate' over"),
        ("Resize", {"x": X4}, {}, "expected either 'scales'"),
        ("Split", {"x": np.array(1, np.float32)}, {}, "axis 0 is out of range for rank 0"),
        ("MaxPool", {"x": X4}, {"kernel_shape": [2, 2], "pads": [-1, 0, 0, 0]}, "none below 0"),
        ("Celu", {"x": X4}, {"alpha": 0.0}, "alpha is 0"),
        ("Cast", {"x": rand(2)}, {"to": TensorProto.STRING}, "element type 'string' is not supported"),
    ],
)
def test_mistakes_name_the_node(op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=rf"^graph: node 'node' \({op_type}\): .*{message}"):
        import_model(single(op_type, inputs, **attrs))


PLACES = ints(1, 0, 3, 1).reshape(2, 2)
GRID = ints(2, 0, -1, 1, 1, 0).reshape(2, 3)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("op_type", "data", "indices", "updates", "attrs"),
    [
        ("ScatterND", rand(4, 3), ints(1, -1).reshape(2, 1), rand(2, 3), {}),
        ("ScatterND", rand(4, 3, 2), PLACES, rand(2, 2), {}),
        ("ScatterND", rand(4, 3), ints(0, 2, 3, 1).reshape(2, 1, 2), rand(2, 1), {}),
        ("ScatterElements", rand(3, 4), GRID, rand(2, 3), {"axis": 0}),
        ("ScatterElements", rand(3, 4), ints(2, 0, -1, 1).reshape(2, 2), rand(2, 2), {"axis": 1}),
    ],
)
def test_updates_at_known_places_are_taken(
    op_type: str, data: Any, indices: Any, updates: Any, attrs: dict[str, Any], reduction: str
) -> None:
    model = single(op_type, {"x": data, "i": indices, "u": updates}, 18, reduction=reduction, **attrs)
    model.graph.initializer.append(helper.make_tensor("i", TensorProto.INT64, indices.shape, indices.reshape(-1)))
    del model.graph.input[1]
    nodes = check(model, {"x": data, "u": updates})
    assert "take" in op_names(nodes)
    assert not {"scatter_nd", "scatter_elements"} & {*op_names(nodes)}


def test_of_updates_in_one_place_the_last_one_stays() -> None:
    model = single("ScatterND", {"x": rand(4, 3), "i": ints(1, 1).reshape(2, 1), "u": rand(2, 3)}, 18)
    model.graph.initializer.append(helper.make_tensor("i", TensorProto.INT64, (2, 1), [1, 1]))
    del model.graph.input[1]
    data, updates = rand(4, 3), rand(2, 3)
    (found,) = run(import_model(model), {"x": data, "u": updates})
    np.testing.assert_array_equal(found[1], updates[1])


@pytest.mark.parametrize("index", [3, -4])
def test_a_constant_index_must_be_in_range(index: int) -> None:
    model = single("Gather", {"x": rand(3, 2), "i": ints(index)})
    model.graph.initializer.append(helper.make_tensor("i", TensorProto.INT64, (1,), [index]))
    with pytest.raises(UserError, match=r"node 'node' \(Gather\): an index is out of range"):
        import_model(model)


@pytest.mark.parametrize("shape", [(4,), (-1, -1), (5, -1), (0, 0, 0)])
def test_reshape_refuses_what_does_not_fit(shape: tuple[int, ...]) -> None:
    model = single("Reshape", {"x": rand(2, 3), "s": ints(*shape)})
    model.graph.initializer.append(helper.make_tensor("s", TensorProto.INT64, (len(shape),), shape))
    with pytest.raises(UserError, match=r"node 'node' \(Reshape\): .*shape"):
        import_model(model)
