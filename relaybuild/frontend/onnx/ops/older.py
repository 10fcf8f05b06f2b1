"""Operators as opsets 6 to 10 have them: attributes are handed on as the inputs that they have become since."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.ops.activation import prelu as new_prelu
from relaybuild.frontend.onnx.ops.elementwise import clip as new_clip
from relaybuild.frontend.onnx.ops.reduction import top_k as new_top_k
from relaybuild.frontend.onnx.ops.resize import upsample as new_upsample
from relaybuild.frontend.onnx.ops.shape import pad as new_pad
from relaybuild.frontend.onnx.ops.shape import slice_ as new_slice
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Constant, Expr


@converter("Clip")
def clip(node: Node) -> Expr:
    return new_clip(_with_inputs(node, _number(node, "min"), _number(node, "max")))


@converter("Pad")
def pad(node: Node) -> Expr:
    return new_pad(_with_inputs(node, _whole_numbers(node, "pads"), _number(node, "value")))


@converter("PRelu")
def prelu(node: Node) -> Expr:
    """One slope, or one for each channel."""
    slope, rank = node.get(1), node.rank(0)
    count = slope.tensor_type.static_shape[0] if slope.tensor_type.rank == 1 else 1
    return new_prelu(_with_inputs(node, node.reshape(slope, (count, *(1,) * (rank - 2))) if count > 1 else slope))


@converter("Slice")
def slice_(node: Node) -> Expr:
    return new_slice(_with_inputs(node, *(_whole_numbers(node, name) for name in ("starts", "ends", "axes"))))


@converter("TopK")
def top_k(node: Node) -> Sequence[Expr]:
    return new_top_k(_with_inputs(node, node.const([node.int_attr("k")], "int64")))


@converter("Upsample", since=7)
def upsample(node: Node) -> Expr:
    return new_upsample(_with_inputs(node, node.const(node.floats_attr("scales"), "float32")))


def _with_inputs(node: Node, *more: Expr | None) -> Node:
    """The node with further inputs behind its first; its attributes stay, of which nobody asks for those."""
    return replace(node, inputs=(node.get(0), *more))


def _number(node: Node, name: str) -> Constant | None:
    return node.like(node.float_attr(name), node.get(0)) if name in node.attrs else None


def _whole_numbers(node: Node, name: str) -> Constant | None:
    found = node.find_ints_attr(name)
    return None if found is None else node.const(found, "int64")
