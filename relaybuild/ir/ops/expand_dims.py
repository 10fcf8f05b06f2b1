"""`expand_dims` and `squeeze`: axes of extent 1 put in and taken out."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass
from relaybuild.ir.layout import LayoutCall, LayoutChoice
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._indexing import reshape_index
from relaybuild.ir.ops._shapes import Array, as_ints, expect_tensor, normalize_axes, normalize_axis
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Extent, TensorType, Type


@dataclass(frozen=True)
class ExpandDimsAttrs(Attrs):
    """`axis`: where, in the result, the first of `num_newaxis` new axes stands; negative ones count from its end."""

    axis: int
    num_newaxis: int = 1


@dataclass(frozen=True)
class SqueezeAttrs(Attrs):
    """`axis`: the axes taken out, None for all of extent 1."""

    axis: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.axis is not None:
            object.__setattr__(self, "axis", as_ints(self.axis))


def infer_expand_type(types: Sequence[Type], attrs: ExpandDimsAttrs) -> Type:
    """The shape with axes of extent 1 put in."""
    data = expect_tensor(types[0])
    return TensorType(_expanded(data.shape, attrs), data.dtype)


def _expanded(shape: tuple[Extent, ...], attrs: ExpandDimsAttrs) -> tuple[Extent, ...]:
    if attrs.num_newaxis < 0:
        raise TypeMismatch(f"expected 'num_newaxis' of 0 or more, found {attrs.num_newaxis}")
    axis = normalize_axis(attrs.axis, len(shape) + 1)
    return (*shape[:axis], *(1,) * attrs.num_newaxis, *shape[axis:])


def infer_squeeze_type(types: Sequence[Type], attrs: SqueezeAttrs) -> Type:
    """The shape without the axes, each of which must have extent 1."""
    data = expect_tensor(types[0])
    axes = _squeezed_axes(data.shape, attrs)
    for axis in axes:
        if data.shape[axis] != 1:
            raise TypeMismatch(f"expected extent 1 at axis {axis}, found {data.shape[axis]}")
    return TensorType(tuple(extent for axis, extent in enumerate(data.shape) if axis not in axes), data.dtype)


def _squeezed_axes(shape: Sequence[Extent], attrs: SqueezeAttrs) -> tuple[int, ...]:
    if attrs.axis is None:
        return tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return normalize_axes(attrs.axis, len(shape))


def evaluate_expand(values: Sequence[Array], attrs: ExpandDimsAttrs) -> Array:
    """The array with axes put in."""
    shape = _expanded(values[0].shape, attrs)
    return values[0].reshape([extent for extent in shape if isinstance(extent, int)])


def evaluate_squeeze(values: Sequence[Array], attrs: SqueezeAttrs) -> Array:
    """The array with axes taken out."""
    return values[0].squeeze(_squeezed_axes(values[0].shape, attrs))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element at the same index, axes of extent 1 aside."""
    return args[0](reshape_index(index, call.arg_types[0].shape, call.out_type.shape))


def follow_squeeze(call: LayoutCall) -> LayoutChoice | None:
    """All stored parts of the axes are taken out."""
    layout = call.layouts[0]
    axes = _squeezed_axes(call.types[0].shape, call.attrs)
    places = tuple(place for place, (axis, _) in enumerate(layout.axes) if axis in axes)
    return LayoutChoice((layout,), (layout.without(axes),), SqueezeAttrs(places))


OPS = (
    Op("expand_dims", 1, infer_expand_type, evaluate_expand, OpKind.INJECTIVE, ExpandDimsAttrs, compute, ("data",)),
    Op(
        "squeeze",
        1,
        infer_squeeze_type,
        evaluate_squeeze,
        OpKind.INJECTIVE,
        SqueezeAttrs,
        compute,
        ("data",),
        follow_layout=follow_squeeze,
    ),
)
