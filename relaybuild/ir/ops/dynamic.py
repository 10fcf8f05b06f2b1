"""`dyn.*`: operators whose shapes, widths or positions are arguments, computed when the program runs.

Each has the meaning of the operator of the same name with these values as attributes, and that operator is its static
form. Of the result, the rank is known and the extents, as far as they depend on the arguments, are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch, get_op
from relaybuild.ir.ops._shapes import INTEGER, Array, as_ints, expect_dtype, expect_rank, expect_tensors, number
from relaybuild.ir.types import ANY, Extent, TensorType, Type


@dataclass(frozen=True)
class DynOneHotAttrs(Attrs):
    """As of `one_hot`, without the depth."""

    on_value: float = 1.0
    off_value: float = 0.0
    axis: int = -1
    dtype: str = "float32"


@dataclass(frozen=True)
class DynPadAttrs(Attrs):
    """As of `nn.pad`, without the widths."""

    pad_value: float = 0.0
    pad_mode: str = "constant"


@dataclass(frozen=True)
class DynResize2DAttrs(Attrs):
    """As of `image.resize2d`, without the size, for plain layouts."""

    layout: str = "NCHW"
    method: str = "linear"
    coordinate_transformation_mode: str = "half_pixel"
    rounding_method: str = "round"
    cubic_alpha: float = -0.75
    cubic_exclude: int = 0
    extrapolation_value: float = 0.0


_Shape: TypeAlias = "Callable[[Sequence[TensorType], Any], tuple[Extent, ...]]"
_StaticAttrs: TypeAlias = "Callable[[Sequence[Array], Any], Attrs]"


def dyn_op(
    static: str,
    arg_names: tuple[str, ...],
    shape: _Shape,
    static_attrs: _StaticAttrs,
    attrs_type: type[Attrs] = Attrs,
    name: str = "",
) -> Op:
    """The form of the operator `static` that takes integer tensors behind its data; `dyn.` and `name`, or its name.

    `shape(types, attrs)` is the result's shape as far as types tell it; `static_attrs(values, attrs)` gives the
    attributes from the values of the arguments behind the data.
    """

    def infer_type(types: Sequence[Type], attrs: Any) -> Type:
        data, *others = expect_tensors(types)
        for name, other in zip(arg_names[1:], others):
            expect_dtype(other, INTEGER, name)
        return TensorType(shape([data, *others], attrs), getattr(attrs, "dtype", data.dtype))

    def evaluate(values: Sequence[Array], attrs: Any) -> Array:
        op = get_op(static)
        return np.asarray(op.evaluate(values[:1], static_attrs(values[1:], attrs)))

    def static_form(call: Call, values: Sequence[Any]) -> Expr | None:
        if any(value is None for value in values[1:]):
            return None
        return Call(get_op(static), call.args[:1], static_attrs(values[1:], call.attrs), call.span)

    return Op(
        f"dyn.{name or static}",
        len(arg_names),
        infer_type,
        evaluate,
        OpKind.OPAQUE,
        attrs_type,
        arg_names=arg_names,
        static_form=static_form,
    )


def _length(found: TensorType, name: str) -> int:
    """How many numbers a vector argument holds, which must be known."""
    expect_rank(found, 1, name)
    return number(found.shape[0], f"the extent of {name}")


def _vector_shape(types: Sequence[TensorType], attrs: Any) -> tuple[Extent, ...]:
    return (ANY,) * _length(types[1], "the shape")


def _tiled_shape(types: Sequence[TensorType], attrs: Any) -> tuple[Extent, ...]:
    return (ANY,) * max(types[0].rank, _length(types[1], "reps"))


def _one_hot_shape(types: Sequence[TensorType], attrs: DynOneHotAttrs) -> tuple[Extent, ...]:
    expect_dtype(types[0], INTEGER, "indices")
    expect_rank(types[1], 0, "depth")
    axis = attrs.axis % (types[0].rank + 1)
    return (*types[0].shape[:axis], ANY, *types[0].shape[axis:])


def _sliced_shape(types: Sequence[TensorType], attrs: Any) -> tuple[Extent, ...]:
    data, *bounds = types
    lengths = {_length(bound, name) for bound, name in zip(bounds, ("begin", "end", "strides"))}
    if len(lengths) != 1 or max(lengths) > data.rank:
        raise TypeMismatch("expected 'begin', 'end' and 'strides' of one length, at most the data's rank")
    sliced = lengths.pop()
    return (*(ANY,) * sliced, *data.shape[sliced:])


def _padded_shape(types: Sequence[TensorType], attrs: Any) -> tuple[Extent, ...]:
    data, widths = types
    if widths.shape != (data.rank, 2):
        raise TypeMismatch(f"expected pad_width of shape ({data.rank}, 2), found {widths}")
    return (ANY,) * data.rank


def _resized_shape(types: Sequence[TensorType], attrs: DynResize2DAttrs) -> tuple[Extent, ...]:
    data, size = types
    expect_rank(data, 4, "data")
    if _length(size, "size") != 2:
        raise TypeMismatch(f"expected 2 values in size, found {size}")
    return tuple(ANY if letter in "HW" else extent for letter, extent in zip(attrs.layout, data.shape))


def _squeezed_shape(types: Sequence[TensorType], attrs: Any) -> tuple[Extent, ...]:
    data, axes = types
    count = _length(axes, "axis")
    if count > data.rank:
        raise TypeMismatch(f"expected at most {data.rank} axes, found {count}")
    return (ANY,) * (data.rank - count)


def _made(name: str, **attrs: Any) -> Attrs:
    return get_op(name).make_attrs(attrs)


def _with(name: str, attrs: Any, **changes: Any) -> Attrs:
    return get_op(name).make_attrs({**dict(attrs.items()), **changes})


def _ints(value: Array) -> tuple[int, ...]:
    return as_ints(value.tolist())


OPS = (
    dyn_op(
        "reshape",
        ("data", "newshape"),
        _vector_shape,
        lambda values, attrs: _made("reshape", newshape=_ints(values[0])),
    ),
    dyn_op(
        "broadcast_to",
        ("data", "shape"),
        _vector_shape,
        lambda values, attrs: _made("broadcast_to", shape=_ints(values[0])),
    ),
    dyn_op(
        "broadcast_to",
        ("fill_value", "shape"),
        _vector_shape,
        lambda values, attrs: _made("broadcast_to", shape=_ints(values[0])),
        name="full",
    ),
    dyn_op("tile", ("data", "reps"), _tiled_shape, lambda values, attrs: _made("tile", reps=_ints(values[0]))),
    dyn_op(
        "one_hot",
        ("indices", "depth"),
        _one_hot_shape,
        lambda values, attrs: _with("one_hot", attrs, depth=int(values[0])),
        DynOneHotAttrs,
    ),
    dyn_op(
        "strided_slice",
        ("data", "begin", "end", "strides"),
        _sliced_shape,
        lambda values, attrs: _made(
            "strided_slice", begin=_ints(values[0]), end=_ints(values[1]), strides=_ints(values[2])
        ),
    ),
    dyn_op(
        "nn.pad",
        ("data", "pad_width"),
        _padded_shape,
        lambda values, attrs: _with("nn.pad", attrs, pad_width=tuple(map(tuple, values[0].tolist()))),
        DynPadAttrs,
    ),
    dyn_op(
        "image.resize2d",
        ("data", "size"),
        _resized_shape,
        lambda values, attrs: _with("image.resize2d", attrs, size=_ints(values[0])),
        DynResize2DAttrs,
    ),
    dyn_op("squeeze", ("data", "axis"), _squeezed_shape, lambda values, attrs: _made("squeeze", axis=_ints(values[0]))),
)
