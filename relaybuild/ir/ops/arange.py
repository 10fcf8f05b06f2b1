"""`arange`: evenly spaced numbers from `start`, before `stop`."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import INTEGER, NUMERIC, Array
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import TensorType, Type


@dataclass(frozen=True)
class ArangeAttrs(Attrs):
    """Element i is start + i * step, in `dtype`."""

    stop: float
    start: float = 0
    step: float = 1
    dtype: str = "float32"


def infer_type(types: Sequence[Type], attrs: ArangeAttrs) -> Type:
    """A vector of ceil((stop - start) / step) numbers."""
    if attrs.dtype not in NUMERIC:
        raise TypeMismatch(f"expected 'dtype' to be one of {', '.join(sorted(NUMERIC))}, found '{attrs.dtype}'")
    if attrs.step == 0:
        raise TypeMismatch("expected a step other than 0")
    if attrs.dtype in INTEGER and not all(float(value).is_integer() for value in (attrs.start, attrs.step)):
        raise TypeMismatch(f"expected whole numbers for {attrs.dtype}, found start {attrs.start} and step {attrs.step}")
    return TensorType((_count(attrs),), attrs.dtype)


def _count(attrs: ArangeAttrs) -> int:
    if all(isinstance(value, int) for value in (attrs.start, attrs.stop, attrs.step)):
        return int(max(-((attrs.start - attrs.stop) // attrs.step), 0))
    return max(ceil((attrs.stop - attrs.start) / attrs.step), 0)


def evaluate(values: Sequence[Array], attrs: ArangeAttrs) -> Array:
    """The numbers."""
    if attrs.dtype not in INTEGER:
        return (attrs.start + np.arange(_count(attrs)) * attrs.step).astype(attrs.dtype)
    return (int(attrs.start) + np.arange(_count(attrs)) * int(attrs.step)).astype(attrs.dtype)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """start + index * step."""
    attrs: ArangeAttrs = call.attrs
    if attrs.dtype in INTEGER:
        return s.index_value(index[0] * int(attrs.step) + int(attrs.start), attrs.dtype)
    scaled = s.binary("mul", s.index_value(index[0], "float64"), s.const(float(attrs.step), "float64"))
    return s.cast(s.binary("add", scaled, s.const(float(attrs.start), "float64")), attrs.dtype)


OP = Op("arange", 0, infer_type, evaluate, OpKind.ELEMWISE, ArangeAttrs, compute)
