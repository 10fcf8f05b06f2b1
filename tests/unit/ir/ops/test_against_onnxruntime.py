"""The numpy semantics of operators that ONNX has too, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from suites.ops import Case, cases_of

from relaybuild.ir.op import get_op

onnxruntime = pytest.importorskip("onnxruntime")

Array: TypeAlias = NDArray[Any]
Node: TypeAlias = tuple[str, list[Array], dict[str, Any]]
"""ONNX operator, inputs, attributes."""

OPSET = 21
SAME = {
    "abs": "Abs",
    "acos": "Acos",
    "acosh": "Acosh",
    "add": "Add",
    "asin": "Asin",
    "asinh": "Asinh",
    "atan": "Atan",
    "atanh": "Atanh",
    "bitwise_and": "BitwiseAnd",
    "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "divide": "Div",
    "equal": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "isinf": "IsInf",
    "isnan": "IsNaN",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "log": "Log",
    "logical_and": "And",
    "logical_not": "Not",
    "logical_or": "Or",
    "logical_xor": "Xor",
    "maximum": "Max",
    "minimum": "Min",
    "multiply": "Mul",
    "negative": "Neg",
    "nn.global_avg_pool2d": "GlobalAveragePool",
    "nn.global_max_pool2d": "GlobalMaxPool",
    "nn.relu": "Relu",
    "power": "Pow",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "sqrt": "Sqrt",
    "subtract": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
    "where": "Where",
}
REDUCTIONS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax", "min": "ReduceMin", "prod": "ReduceProd"}
REDUCTION_MODES = {"update": "none"}
METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
ROUNDINGS = {"round": "round_prefer_ceil"}


def int64(*values: int) -> Array:
    return np.asarray(values, np.int64)


def conv(case: Case, attrs: Any) -> Node | None:
    if attrs.data_layout != "NCHW" or attrs.out_dtype:
        return None
    return "Conv", list(case.tensors), {**window(attrs), "group": attrs.groups}


def conv_transpose(case: Case, attrs: Any) -> Node:
    extra = {"group": attrs.groups, "output_padding": attrs.output_padding}
    return "ConvTranspose", list(case.tensors), {**window(attrs), **extra}


def window(attrs: Any) -> dict[str, Any]:
    return {"strides": attrs.strides, "pads": attrs.padding, "dilations": attrs.dilation}


def max_pool(case: Case, attrs: Any) -> Node:
    shape = {"kernel_shape": attrs.pool_size, "ceil_mode": int(attrs.ceil_mode)}
    return "MaxPool", list(case.tensors), {**window(attrs), **shape}


def avg_pool(case: Case, attrs: Any) -> Node:
    _, inputs, found = max_pool(case, attrs)
    return "AveragePool", inputs, {**found, "count_include_pad": int(attrs.count_include_pad)}


def dense(case: Case, attrs: Any) -> Node:
    return "MatMul", [case.tensors[0], np.ascontiguousarray(case.tensors[1].T)], {}


def matmul(case: Case, attrs: Any) -> Node:
    a, b = case.tensors
    a = np.ascontiguousarray(a.swapaxes(-1, -2)) if attrs.transpose_a else a
    b = np.ascontiguousarray(b.swapaxes(-1, -2)) if attrs.transpose_b else b
    return "MatMul", [a, b], {}


def batch_norm(case: Case, attrs: Any) -> Node | None:
    if attrs.axis != 1 or not (attrs.center and attrs.scale):
        return None
    return "BatchNormalization", list(case.tensors), {"epsilon": attrs.epsilon}


def layer_norm(case: Case, attrs: Any) -> Node | None:
    if attrs.axis != -1 or not (attrs.center and attrs.scale):
        return None
    return "LayerNormalization", list(case.tensors), {"axis": -1, "epsilon": attrs.epsilon}


def instance_norm(case: Case, attrs: Any) -> Node | None:
    if attrs.axis != 1 or not (attrs.center and attrs.scale):
        return None
    return "InstanceNormalization", list(case.tensors), {"epsilon": attrs.epsilon}


def group_norm(case: Case, attrs: Any) -> Node | None:
    if attrs.axis != 1 or case.tensors[0].ndim < 3:
        return None
    found = {"num_groups": attrs.num_groups, "epsilon": attrs.epsilon}
    return "GroupNormalization", list(case.tensors), found


def lrn(case: Case, attrs: Any) -> Node | None:
    if attrs.size % 2 == 0:
        return None
    found = {"size": attrs.size, "alpha": attrs.alpha, "beta": attrs.beta, "bias": attrs.bias}
    return "LRN", list(case.tensors), found


def softmax(case: Case, attrs: Any) -> Node:
    name = "Softmax" if case.op == "nn.softmax" else "LogSoftmax"
    return name, list(case.tensors), {"axis": attrs.axis}


def reduction(case: Case, attrs: Any) -> Node | None:
    if attrs.exclude or attrs.axis == ():
        return None
    axes = [] if attrs.axis is None else [int64(*attrs.axis)]
    return REDUCTIONS[case.op], [*case.tensors, *axes], {"keepdims": int(attrs.keepdims)}


def arg_reduction(case: Case, attrs: Any) -> Node | None:
    if attrs.axis is None:
        return None
    found = {"keepdims": int(attrs.keepdims), "select_last_index": int(attrs.select_last_index), "axis": attrs.axis}
    return {"argmax": "ArgMax", "argmin": "ArgMin"}[case.op], list(case.tensors), found


def clip(case: Case, attrs: Any) -> Node | None:
    data = case.tensors[0]
    if data.dtype != np.float32 or None in (attrs.a_min, attrs.a_max):
        return None
    return "Clip", [data, np.float32(attrs.a_min), np.float32(attrs.a_max)], {}  # type: ignore[list-item]


def leaky_relu(case: Case, attrs: Any) -> Node:
    return "LeakyRelu", list(case.tensors), {"alpha": attrs.alpha}


def prelu(case: Case, attrs: Any) -> Node:
    data, alpha = case.tensors
    return "PRelu", [data, alpha.reshape(-1, *(1,) * (data.ndim - 1 - attrs.axis % data.ndim))], {}


def mod(case: Case, attrs: Any) -> Node | None:
    real = case.tensors[0].dtype.kind == "f"
    if real and case.op != "mod":
        return None
    return "Mod", list(case.tensors), {"fmod": int(case.op == "mod")}


def shift(case: Case, attrs: Any) -> Node | None:
    if case.tensors[0].dtype.kind != "u":
        return None
    return "BitShift", list(case.tensors), {"direction": case.op.removesuffix("_shift").upper()}


def cast(case: Case, attrs: Any) -> Node:
    return "Cast", list(case.tensors), {"to": onnx.helper.np_dtype_to_tensor_dtype(np.dtype(attrs.dtype))}


def transpose(case: Case, attrs: Any) -> Node:
    rank = case.tensors[0].ndim
    return "Transpose", list(case.tensors), {"perm": [axis % rank for axis in attrs.axes]} if attrs.axes else {}


def concatenate(case: Case, attrs: Any) -> Node:
    return "Concat", list(case.tensors), {"axis": attrs.axis}


def strided_slice(case: Case, attrs: Any) -> Node:
    axes = attrs.axes or tuple(range(len(attrs.begin)))
    strides = attrs.strides or (1,) * len(attrs.begin)
    parts = [int64(*values) for values in (attrs.begin, attrs.end, axes, strides)]
    return "Slice", [*case.tensors, *parts], {}


def take(case: Case, attrs: Any) -> Node | None:
    data, indices = case.tensors
    if attrs.axis is None or indices.dtype.kind == "u":
        return None
    extent = data.shape[attrs.axis]
    return (
        "Gather",
        [data, indices % extent if attrs.mode == "wrap" else np.clip(indices, 0, extent - 1)],
        {"axis": attrs.axis},
    )


def gather(case: Case, attrs: Any) -> Node:
    data, indices = case.tensors
    return "GatherElements", [data, np.clip(indices, 0, data.shape[attrs.axis] - 1)], {"axis": attrs.axis}


def gather_nd(case: Case, attrs: Any) -> Node:
    data, indices = case.tensors
    extents = data.shape[attrs.batch_dims : attrs.batch_dims + indices.shape[-1]]
    limited = np.clip(indices, 0, np.asarray(extents) - 1).astype(np.int64)
    return "GatherND", [data, limited], {"batch_dims": attrs.batch_dims}


def scatter(case: Case, attrs: Any) -> Node | None:
    data, indices, updates = case.tensors
    if indices.dtype != np.int64:
        return None
    if case.op == "scatter_nd":
        return "ScatterND", [data, indices, updates], {"reduction": REDUCTION_MODES.get(attrs.mode, attrs.mode)}
    found = {"axis": attrs.axis, "reduction": REDUCTION_MODES.get(attrs.reduction, attrs.reduction)}
    return "ScatterElements", [data, indices, updates], found


def broadcast_to(case: Case, attrs: Any) -> Node:
    return "Expand", [*case.tensors, int64(*attrs.shape)], {}


def tile(case: Case, attrs: Any) -> Node | None:
    data = case.tensors[0]
    if len(attrs.reps) != data.ndim:
        return None
    return "Tile", [data, int64(*attrs.reps)], {}


def pad(case: Case, attrs: Any) -> Node | None:
    data = case.tensors[0]
    if (
        data.dtype == bool
        or data.size == 0
        or data.ndim == 0
        or (attrs.pad_mode != "constant" and np.min(attrs.pad_width) < 0)
    ):
        return None
    widths = int64(*(pair[0] for pair in attrs.pad_width), *(pair[1] for pair in attrs.pad_width))
    value = [np.asarray(attrs.pad_value, data.dtype)] if attrs.pad_mode == "constant" else []
    return "Pad", [data, widths, *value], {"mode": attrs.pad_mode}


def depth_to_space(case: Case, attrs: Any) -> Node:
    return "DepthToSpace", list(case.tensors), {"blocksize": attrs.block_size, "mode": attrs.mode}


def space_to_depth(case: Case, attrs: Any) -> Node:
    return "SpaceToDepth", list(case.tensors), {"blocksize": attrs.block_size}


def trilu(case: Case, attrs: Any) -> Node:
    return "Trilu", [*case.tensors, np.asarray(attrs.k, np.int64)], {"upper": int(attrs.upper)}


def cumsum(case: Case, attrs: Any) -> Node | None:
    if attrs.axis is None:
        return None
    found = {"exclusive": int(attrs.exclusive), "reverse": int(attrs.reverse)}
    return "CumSum", [*case.tensors, np.asarray(attrs.axis, np.int64)], found


def topk(case: Case, attrs: Any) -> Node | None:
    if attrs.ret_type != "both":
        return None
    return "TopK", [*case.tensors, int64(attrs.k)], {"axis": attrs.axis, "largest": int(not attrs.is_ascend)}


def resize(case: Case, attrs: Any) -> Node | None:
    data = case.tensors[0]
    # One coordinate of this mode is exactly 2 when 5 rows become 3; in float32 it falls below.
    inexact = (attrs.coordinate_transformation_mode, attrs.rounding_method) == ("half_pixel_symmetric", "floor")
    if attrs.layout != "NCHW" or data.dtype != np.float32 or (inexact and attrs.size[0] == 3):
        return None
    empty = np.zeros(0, np.float32)
    if attrs.scales:
        sizes = [empty, np.asarray([1, 1, *attrs.scales], np.float32)]
    else:
        sizes = [empty, empty, int64(*data.shape[:2], *attrs.size)]
    found = {
        "mode": METHODS[attrs.method],
        "coordinate_transformation_mode": attrs.coordinate_transformation_mode,
        "cubic_coeff_a": attrs.cubic_alpha,
        "exclude_outside": attrs.cubic_exclude,
        "nearest_mode": ROUNDINGS.get(attrs.rounding_method, attrs.rounding_method),
    }
    return "Resize", [data, *sizes], found


CONVERTERS: Mapping[str, Callable[[Case, Any], Node | None]] = {
    "argmax": arg_reduction,
    "argmin": arg_reduction,
    "broadcast_to": broadcast_to,
    "cast": cast,
    "clip": clip,
    "concatenate": concatenate,
    "cumsum": cumsum,
    "floor_mod": mod,
    "gather": gather,
    "gather_nd": gather_nd,
    "image.resize2d": resize,
    "left_shift": shift,
    "mod": mod,
    "nn.avg_pool2d": avg_pool,
    "nn.batch_norm": batch_norm,
    "nn.conv2d": conv,
    "nn.conv2d_transpose": conv_transpose,
    "nn.dense": dense,
    "nn.depth_to_space": depth_to_space,
    "nn.group_norm": group_norm,
    "nn.instance_norm": instance_norm,
    "nn.layer_norm": layer_norm,
    "nn.leaky_relu": leaky_relu,
    "nn.log_softmax": softmax,
    "nn.lrn": lrn,
    "nn.matmul": matmul,
    "nn.max_pool2d": max_pool,
    "nn.pad": pad,
    "nn.prelu": prelu,
    "nn.softmax": softmax,
    "nn.space_to_depth": space_to_depth,
    "right_shift": shift,
    "scatter_elements": scatter,
    "scatter_nd": scatter,
    "strided_slice": strided_slice,
    "take": take,
    "tile": tile,
    "topk": topk,
    "transpose": transpose,
    "trilu": trilu,
    **dict.fromkeys(REDUCTIONS, reduction),
}


def comparable() -> Iterator[Any]:
    """Each case that is one ONNX node, with that node."""
    for name in [*SAME, *CONVERTERS]:
        for case in cases_of(name):
            node: Node | None
            if case.attrs.get("layout", "NCHW") != "NCHW":
                continue
            if name in SAME:
                node = SAME[name], list(case.tensors), {}
            else:
                node = CONVERTERS[name](case, get_op(name).make_attrs(case.attrs))
            if node is not None:
                yield pytest.param(case, node, id=str(case))


def run(node: Node, outputs: int) -> list[Array] | None:
    """What onnxruntime computes; None where it has no kernel for these types."""
    op_type, arrays, attributes = node
    arrays = [np.asarray(array) for array in arrays]
    optional = op_type == "Resize"
    names = ["" if optional and not array.size else f"x{position}" for position, array in enumerate(arrays)]
    feeds = {name: array for name, array in zip(names, arrays) if name}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op_type, names, [f"y{n}" for n in range(outputs)], **attributes)],
        "one",
        [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [onnx.helper.make_empty_tensor_value_info(f"y{n}") for n in range(outputs)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except onnxruntime.capi.onnxruntime_pybind11_state.NotImplemented:
        return None
    except onnxruntime.capi.onnxruntime_pybind11_state.InvalidGraph as error:
        if "Type Error" not in str(error):
            raise
        return None
    return [np.asarray(value) for value in session.run(None, feeds)]


@pytest.mark.parametrize(("case", "node"), list(comparable()))
def test_evaluate_agrees_with_onnxruntime(case: Case, node: Node) -> None:
    op = get_op(case.op)
    found = op.evaluate(case.args, op.make_attrs(case.attrs))
    fields = found if isinstance(found, tuple) else (found,)
    wanted = run(node, 1 if case.op == "nn.batch_norm" else len(fields))
    if wanted is None:
        pytest.skip("onnxruntime has no kernel for these types")
    for field, reference in zip(fields, wanted):
        assert field.shape == reference.shape
        assert field.dtype == reference.dtype
        tolerance = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-7}.get(field.dtype.name, 0)
        scale = tolerance * np.max(np.abs(reference[np.isfinite(reference)]), initial=1.0) if tolerance else 0
        np.testing.assert_allclose(field, reference, rtol=tolerance, atol=scale)
