"""Applies an operator of the standard by its name, where another operator names it as an activation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import find_converter
from relaybuild.ir.expr import Expr


def standard(node: Node, name: str, data: Expr, attrs: Mapping[str, object]) -> Expr:
    """What an operator of one input makes of data, with these attributes alone; raises UnsupportedError."""
    convert = find_converter("", name, node.opset)
    if convert is None:
        raise node.unsupported(f"the activation '{name}'")
    result = convert(replace(node, op_type=name, domain="", inputs=(data,), attrs=attrs))
    return result if isinstance(result, Expr) else result[0]
