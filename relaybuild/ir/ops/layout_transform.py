"""`layout_transform`: a tensor stored in another layout, its axes permuted, split into blocks and joined again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import Layout, plain_letters, store, unstore
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._layouts import expect_layout, logical_shape, stored_type
from relaybuild.ir.ops._shapes import Array, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type


@dataclass(frozen=True)
class LayoutTransformAttrs(Attrs):
    """The layouts before and after, such as `NCHW` and `NCHW16c`; blocks divide the extents exactly."""

    src_layout: str
    dst_layout: str


def resolve_layouts(attrs: LayoutTransformAttrs) -> tuple[Layout, Layout]:
    """Both layouts of one tensor, whose axes are called as in the source."""
    try:
        letters = plain_letters(attrs.src_layout)
    except ValueError as error:
        raise TypeMismatch(str(error)) from None
    return expect_layout(attrs.src_layout, letters), expect_layout(attrs.dst_layout, letters)


def infer_type(types: Sequence[Type], attrs: LayoutTransformAttrs) -> Type:
    """The stored shape; axes that neither layout splits may be symbolic."""
    data = expect_tensor(types[0])
    src, dst = resolve_layouts(attrs)
    return stored_type(logical_shape(data, src, "data"), dst, data.dtype)


def evaluate(values: Sequence[Array], attrs: LayoutTransformAttrs) -> Array:
    """The array rearranged."""
    src, dst = resolve_layouts(attrs)
    return np.ascontiguousarray(store(unstore(values[0], src), dst))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element of the same logical index."""
    src, dst = resolve_layouts(call.attrs)
    source: list[Index] = [0] * len(src.axes)
    for axis in range(src.rank):
        for place, part in zip(_by_weight(src, axis), _parts(_joined(dst, axis, index), src, axis)):
            source[place] = part
    return args[0](source)


def _by_weight(layout: Layout, axis: int) -> list[int]:
    """Where the parts of an axis stand, the one that varies slowest first."""
    return sorted(layout.places(axis), key=lambda place: bool(layout.axes[place][1]))


def _joined(layout: Layout, axis: int, index: Sequence[Index]) -> list[tuple[Index, int]]:
    """The index along an axis as a sum of (part, weight), the parts below the weight of the part before."""
    terms: list[tuple[Index, int]] = []
    weight = layout.factor(axis)
    for place in _by_weight(layout, axis):
        weight //= layout.axes[place][1] or 1
        terms.append((index[place], weight))
    return terms


def _parts(terms: list[tuple[Index, int]], layout: Layout, axis: int) -> list[Index]:
    """The index along an axis in the parts of a layout."""
    factors = [layout.axes[place][1] for place in _by_weight(layout, axis)]
    weights = [layout.factor(axis)]
    for factor in factors[1:]:
        weights.append(weights[-1] // factor)
    if weights == [weight for _, weight in terms]:
        return [part for part, _ in terms]
    scaled = [part * weight if weight != 1 else part for part, weight in terms]
    position = scaled[0]
    for term in scaled[1:]:
        position = position + term
    quotients = [position // weight if weight != 1 else position for weight in weights]
    return [quotient % factor if factor else quotient for quotient, factor in zip(quotients, factors)]


OP = Op("layout_transform", 1, infer_type, evaluate, OpKind.INJECTIVE, LayoutTransformAttrs, compute, ("data",))
