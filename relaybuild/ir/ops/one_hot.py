"""`one_hot`: a new axis along which one element is on, at the index; an index outside leaves all off."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import INTEGER, Array, expect_dtype, expect_tensor, normalize_axis
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import DTYPES, TensorType, Type


@dataclass(frozen=True)
class OneHotAttrs(Attrs):
    """`depth`: the extent of the new axis, which stands at `axis` of the result; values are of `dtype`."""

    depth: int
    on_value: float = 1.0
    off_value: float = 0.0
    axis: int = -1
    dtype: str = "float32"


def infer_type(types: Sequence[Type], attrs: OneHotAttrs) -> Type:
    """The shape of the indices with an axis of extent `depth` put in."""
    indices = expect_tensor(types[0], "indices")
    expect_dtype(indices, INTEGER, "indices")
    if attrs.dtype not in DTYPES:
        raise TypeMismatch(f"expected 'dtype' to be one of {', '.join(DTYPES)}, found '{attrs.dtype}'")
    if attrs.depth < 0:
        raise TypeMismatch(f"expected 'depth' of 0 or more, found {attrs.depth}")
    axis = normalize_axis(attrs.axis, indices.rank + 1)
    return TensorType((*indices.shape[:axis], attrs.depth, *indices.shape[axis:]), attrs.dtype)


def evaluate(values: Sequence[Array], attrs: OneHotAttrs) -> Array:
    """On where the position along the axis is the index."""
    axis = attrs.axis % (values[0].ndim + 1)
    indices = np.expand_dims(values[0], axis)
    shape = [attrs.depth if position == axis else 1 for position in range(indices.ndim)]
    hot = indices == np.arange(attrs.depth).reshape(shape)
    on, off = (np.asarray(value).astype(attrs.dtype) for value in (attrs.on_value, attrs.off_value))
    return np.where(hot, on, off)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """On where the position along the axis is the index."""
    attrs: OneHotAttrs = call.attrs
    axis = attrs.axis % len(index)
    wanted = s.cast(args[0]([*index[:axis], *index[axis + 1 :]]), "int64")
    hot = s.binary("eq", s.index_value(index[axis], "int64"), wanted)
    return s.select(hot, s.const(attrs.on_value, attrs.dtype), s.const(attrs.off_value, attrs.dtype))


OP = Op("one_hot", 1, infer_type, evaluate, OpKind.INJECTIVE, OneHotAttrs, compute, ("indices",))
