"""`nn.contrib_dense_pack`: data times a transposed weight matrix that is stored in blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.layout import unstore
from relaybuild.ir.op import Attrs, Op, OpKind, Precision, call_op
from relaybuild.ir.ops import dense
from relaybuild.ir.ops._layouts import expect_layout, logical_shape, transformed
from relaybuild.ir.ops._shapes import Array, expect_tensors
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class DensePackAttrs(Attrs):
    """`weight_layout`: of a weight whose rows, the output units, are called N and whose columns C."""

    weight_layout: str = "NC16n"


def infer_type(types: Sequence[Type], attrs: DensePackAttrs) -> Type:
    """data (…, K) and the stored form of weight (N, K) give (…, N)."""
    data, weight = expect_tensors(types)
    shape = logical_shape(weight, expect_layout(attrs.weight_layout, "NC"), "weight")
    return dense.OP.infer_type((data, TensorType(shape, weight.dtype)), dense.OP.make_attrs({}))


def evaluate(values: Sequence[Array], attrs: DensePackAttrs) -> Array:
    """data @ weight.T"""
    weight = unstore(values[1], expect_layout(attrs.weight_layout, "NC"))
    return np.asarray(dense.OP.evaluate((values[0], weight), dense.OP.make_attrs({})))


def decompose(call: Call) -> Expr:
    """The product with the plain weight."""
    attrs = call.attrs
    assert isinstance(attrs, DensePackAttrs)
    weight = transformed(call.args[1], attrs.weight_layout, "NC")
    return call_op("nn.dense", [call.args[0], weight], call.span)


OP = Op(
    "nn.contrib_dense_pack",
    2,
    infer_type,
    evaluate,
    OpKind.ANCHOR,
    DensePackAttrs,
    arg_names=("data", "weight"),
    precision=Precision.ALWAYS,
    decompose=decompose,
)
