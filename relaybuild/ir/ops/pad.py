"""`nn.pad`: a tensor with a border of one value, of its edge or of its reflection; negative widths cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._indexing import clamp_index
from relaybuild.ir.ops._shapes import Array, expect_length, expect_tensor, is_float, number
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type

MODES = ("constant", "edge", "reflect")


@dataclass(frozen=True)
class PadAttrs(Attrs):
    """`pad_width`: (before, after) for each axis; `pad_mode`: constant (of `pad_value`), edge or reflect."""

    pad_width: tuple[tuple[int, int], ...]
    pad_value: float = 0.0
    pad_mode: str = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "pad_width", tuple((pair[0], pair[1]) for pair in self.pad_width))


def infer_type(types: Sequence[Type], attrs: PadAttrs) -> Type:
    """The shape grown by the widths; axes without padding may be symbolic."""
    data = expect_tensor(types[0])
    if attrs.pad_mode not in MODES:
        raise TypeMismatch(f"expected 'pad_mode' to be one of {', '.join(MODES)}, found '{attrs.pad_mode}'")
    expect_length("pad_width", attrs.pad_width, data.rank)
    shape = (_padded(extent, axis, attrs) for axis, extent in enumerate(data.shape))
    return TensorType(tuple(shape), data.dtype)


def _padded(extent: Extent, axis: int, attrs: PadAttrs) -> Extent:
    before, after = attrs.pad_width[axis]
    if not before and not after:
        return extent
    extent = number(extent, f"the extent of axis {axis}")
    if extent + before + after < 0:
        raise TypeMismatch(f"expected at most {extent} elements cut off axis {axis}, found {-before - after}")
    if attrs.pad_mode == "edge" and extent == 0:
        raise TypeMismatch(f"expected an edge to repeat along axis {axis}, found extent 0")
    if attrs.pad_mode == "reflect" and max(before, after) >= max(extent, 1):
        raise TypeMismatch(f"expected padding below the extent {extent} of axis {axis}, found {max(before, after)}")
    return extent + before + after


def evaluate(values: Sequence[Array], attrs: PadAttrs) -> Array:
    """The array padded and cut."""
    data = values[0]
    if not data.ndim:
        return data
    grown = [(max(before, 0), max(after, 0)) for before, after in attrs.pad_width]
    if attrs.pad_mode == "constant":
        padded = np.pad(data, grown, constant_values=_border(attrs.pad_value, data.dtype))
    else:
        padded = np.pad(data, grown, mode="edge" if attrs.pad_mode == "edge" else "reflect")
    cut = (
        slice(max(-before, 0), extent - max(-after, 0))
        for (before, after), extent in zip(attrs.pad_width, padded.shape)
    )
    return padded[tuple(cut)]


def _border(value: float, dtype: np.dtype[Any]) -> Any:
    return dtype.type(value) if is_float(dtype) or dtype.kind == "b" else dtype.type(int(value))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the index less the padding, or the border's."""
    attrs: PadAttrs = call.attrs
    source = [position - before if before else position for position, (before, _) in zip(index, attrs.pad_width)]
    padded = [axis for axis, widths in enumerate(attrs.pad_width) if max(widths) > 0]
    extents = {axis: number(call.arg_types[0].shape[axis], f"the extent of axis {axis}") for axis in padded}
    if attrs.pad_mode == "constant":
        return _inside_or_border(s, args[0], source, extents, call)
    for axis, extent in extents.items():
        reflected = attrs.pad_mode == "reflect"
        source[axis] = _reflect(s, source[axis], extent) if reflected else clamp_index(s, source[axis], extent)
    return args[0](source)


def _inside_or_border(
    s: ScalarAlgebra, data: Accessor, source: Sequence[Index], extents: dict[int, int], call: ComputeCall
) -> Scalar:
    dtype = call.out_type.dtype
    value = call.attrs.pad_value
    border = s.const(value if dtype.startswith(("float", "bfloat", "bool")) else int(value), dtype)
    result = data(source)
    for axis, extent in reversed(extents.items()):
        result = s.select(s.in_range(source[axis], 0, extent), result, border)
    return result


def _reflect(s: ScalarAlgebra, index: Index, extent: int) -> Index:
    last = s.const(extent - 1, "int64")
    from_end = s.binary("sub", last, s.unary("abs", s.index_value(index, "int64")))
    return s.to_index(s.binary("sub", last, s.unary("abs", from_end)))


def follow_layout(call: LayoutCall) -> LayoutChoice | None:
    """The same border around what is stored; a split axis must have none."""
    layout, widths = call.layouts[0], call.attrs.pad_width
    if any(layout.is_split(axis) and any(widths[axis]) for axis in range(layout.rank)):
        return None
    stored = tuple((0, 0) if factor else widths[axis] for axis, factor in layout.axes)
    return LayoutChoice((layout,), (layout,), replace(call.attrs, pad_width=stored))


OP = Op(
    "nn.pad",
    1,
    infer_type,
    evaluate,
    OpKind.INJECTIVE,
    PadAttrs,
    compute,
    ("data",),
    follow_layout=follow_layout,
)
