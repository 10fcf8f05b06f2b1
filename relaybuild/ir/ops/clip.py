"""`clip`: elements limited to a range, either side of which may be open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind
from relaybuild.ir.ops._shapes import NUMERIC, Array, expect_dtype, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class ClipAttrs(Attrs):
    """`a_min`, `a_max`: the limits, None for none; where they cross, `a_max` wins."""

    a_min: float | None = None
    a_max: float | None = None


def infer_type(types: Sequence[Type], attrs: ClipAttrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, NUMERIC)
    return data


def evaluate(values: Sequence[Array], attrs: ClipAttrs) -> Array:
    """min(max(x, a_min), a_max); NaN stays."""
    result = values[0]
    dtype = result.dtype
    if attrs.a_min is not None:
        result = np.maximum(result, dtype.type(_limit(attrs.a_min, dtype.name)))
    if attrs.a_max is not None:
        result = np.minimum(result, dtype.type(_limit(attrs.a_max, dtype.name)))
    return np.asarray(result)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """min(max(x, a_min), a_max)."""
    dtype = call.out_type.dtype
    result = args[0](index)
    if call.attrs.a_min is not None:
        result = s.binary("max", result, s.const(_limit(call.attrs.a_min, dtype), dtype))
    if call.attrs.a_max is not None:
        result = s.binary("min", result, s.const(_limit(call.attrs.a_max, dtype), dtype))
    return result


def _limit(value: float, dtype: str) -> float | int:
    """The limit as a value of the dtype; integers saturate."""
    if "int" not in dtype:
        return value
    info = np.iinfo(dtype)
    return int(min(max(value, info.min), info.max))


OP = Op("clip", 1, infer_type, evaluate, OpKind.ELEMWISE, ClipAttrs, compute, ("data",), follow_layout=keep_layout)
