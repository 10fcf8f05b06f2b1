"""`strided_slice`: a rectangular part of a tensor, with steps that may be negative."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import Array, as_ints, expect_tensor, normalize_axis, number
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class StridedSliceAttrs(Attrs):
    """`begin`, `end`, `strides` (None: all 1) of `axes` (None: the first ones), as in Python's `begin:end:stride`.

    Negative values count from the end; what lies beyond the tensor is limited to it.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("begin", "end", "strides", "axes"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, as_ints(value))


def infer_type(types: Sequence[Type], attrs: StridedSliceAttrs) -> Type:
    """The shape with the sliced axes' new extents; axes that are not sliced may be symbolic."""
    data = expect_tensor(types[0])
    shape = list(data.shape)
    for axis, part in resolve_slices(data.shape, attrs).items():
        shape[axis] = len(part)
    return TensorType(tuple(shape), data.dtype)


def resolve_slices(shape: Sequence[Extent], attrs: StridedSliceAttrs) -> dict[int, range]:
    """For each sliced axis the positions taken."""
    axes = range(len(attrs.begin)) if attrs.axes is None else attrs.axes
    strides = attrs.strides or (1,) * len(attrs.begin)
    if not len(axes) == len(attrs.begin) == len(attrs.end) == len(strides):
        raise TypeMismatch(
            f"expected 'begin', 'end', 'strides' and 'axes' of one length, found {len(attrs.begin)}, {len(attrs.end)}, "
            f"{len(strides)} and {len(axes)}"
        )
    if 0 in strides:
        raise TypeMismatch("expected strides other than 0")
    parts: dict[int, range] = {}
    for axis, begin, end, stride in zip(axes, attrs.begin, attrs.end, strides):
        axis = normalize_axis(axis, len(shape), "axes")
        if axis in parts:
            raise TypeMismatch(f"expected distinct axes, found {attrs.axes}")
        extent = number(shape[axis], f"the extent of axis {axis}")
        parts[axis] = range(*slice(begin, end, stride).indices(extent))
    return parts


def evaluate(values: Sequence[Array], attrs: StridedSliceAttrs) -> Array:
    """The part of the array."""
    data = values[0]
    parts = resolve_slices(data.shape, attrs)
    return data[tuple(_as_slice(parts[axis]) if axis in parts else slice(None) for axis in range(data.ndim))]


def _as_slice(part: range) -> slice:
    stop: int | None = part.stop if part.stop >= 0 else None
    return slice(part.start, stop, part.step) if part else slice(0, 0)


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at begin + index * stride along each sliced axis."""
    source = list(index)
    for axis, part in resolve_slices(call.arg_types[0].shape, call.attrs).items():
        scaled = index[axis] * part.step if part.step != 1 else index[axis]
        source[axis] = scaled + part.start if part.start else scaled
    return args[0](source)


def _written(part: range, extent: int) -> tuple[int, int]:
    """`begin` and `end` that give the positions, where -1 is not before the first one but the last."""
    if not part:
        return 0, 0
    return part.start, part.stop if part.stop >= 0 else -extent - 1


def follow_layout(call: LayoutCall) -> LayoutChoice | None:
    """The same part of what is stored; along a split axis whole blocks can be taken, with step 1."""
    layout = call.layouts[0]
    begin, end, strides, axes = [], [], [], []
    for axis, part in resolve_slices(call.types[0].shape, call.attrs).items():
        factor = layout.factor(axis)
        if layout.is_split(axis) and (part.step != 1 or part.start % factor or part.stop % factor or not part):
            return None
        first, stop = _written(part, number(call.types[0].shape[axis], "an extent"))
        begin.append(first // factor)
        end.append(stop // factor if stop >= 0 else stop)
        strides.append(part.step)
        axes.append(layout.outer(axis))
    steps = None if all(stride == 1 for stride in strides) else tuple(strides)
    attrs = StridedSliceAttrs(tuple(begin), tuple(end), steps, tuple(axes))
    return LayoutChoice((layout,), (layout,), attrs)


OP = Op(
    "strided_slice",
    1,
    infer_type,
    evaluate,
    OpKind.INJECTIVE,
    StridedSliceAttrs,
    compute,
    ("data",),
    follow_layout=follow_layout,
)
