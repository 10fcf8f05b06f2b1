"""Operators that make a tensor out of attributes and sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Constant, Expr

_SCALARS = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}


@converter("Constant")
def constant(node: Node) -> Expr:
    """A tensor is data as an initializer is; numbers in attributes are structure."""
    if "value" in node.attrs:
        return Constant(node.tensor_attr("value"), node.span)
    for name, dtype in _SCALARS.items():
        if name in node.attrs:
            return node.const(node.attrs[name], dtype)
    found = ", ".join(f"'{name}'" for name in node.attrs) or "no attribute"
    raise node.unsupported(f"a constant given by {found}")


@converter("ConstantOfShape")
def constant_of_shape(node: Node) -> Expr:
    value: NDArray[Any] = np.zeros(1, np.float32)
    if "value" in node.attrs:
        value = node.tensor_attr("value")
    if value.size != 1:
        raise node.fail(f"attribute 'value' has {value.size} elements, expected one")
    fill = value.reshape(()).item()
    return node.call("full", shape=node.ints(0, "input"), fill_value=fill, dtype=value.dtype.name)


@converter("Range")
def range_(node: Node) -> Expr:
    start, limit, delta = (node.scalar(index, name) for index, name in enumerate(("start", "limit", "delta")))
    if delta == 0:
        raise node.fail("delta is 0")
    count = max(math.ceil((limit - start) / delta), 0)
    return node.call("arange", start=start, stop=start + count * delta, step=delta, dtype=node.dtype(0))


@converter("EyeLike")
def eye_like(node: Node) -> Expr:
    shape = node.shape(0)
    if len(shape) != 2:
        raise node.fail(f"data has shape {shape}, expected a matrix")
    dtype = node.dtype_attr("dtype", node.dtype(0))
    return node.const(np.eye(*shape, k=node.int_attr("k", 0)), dtype)
