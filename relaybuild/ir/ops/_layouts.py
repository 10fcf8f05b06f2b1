"""Layouts in attributes of operators: reading them, types of stored tensors, the way back to plain ones.

Knows no operator but `layout_transform`, with which packed calls are written as plain ones, and what operators over
images have in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.layout import Layout, LayoutAttrs, LayoutCall, LayoutChoice, is_plain
from relaybuild.ir.op import Attrs, Evaluate, InferType, Op, OpKind, Precision, TypeMismatch, get_op
from relaybuild.ir.ops._shapes import expect_rank
from relaybuild.ir.types import Extent, TensorType


@lru_cache(maxsize=1024)
def expect_layout(text: str, letters: str) -> Layout:
    """The layout of that text, of a tensor whose axes are called `letters`."""
    try:
        return Layout.between(letters, text)
    except ValueError:
        raise TypeMismatch(f"expected a layout out of the letters {letters}, found '{text}'") from None


def logical_shape(found: TensorType, layout: Layout, name: str) -> tuple[Extent, ...]:
    """The shape of the tensor of which `found` is the stored form."""
    expect_rank(found, len(layout.axes), name)
    for place, (_, factor) in enumerate(layout.axes):
        if factor and found.shape[place] != factor:
            raise TypeMismatch(f"expected extent {factor} at axis {place} of {name}, found {found.shape[place]}")
    return layout.logical_shape(found.shape)


def stored_type(shape: Sequence[Extent], layout: Layout, dtype: str) -> TensorType:
    """The type of what a layout stores for a tensor of that shape."""
    if not layout.fits(shape):
        shown = ", ".join(map(str, shape))
        raise TypeMismatch(f"expected extents that the blocks of '{layout.text()}' divide, found ({shown})")
    return TensorType(layout.stored_shape(shape), dtype)


def follow_axis(call: LayoutCall) -> LayoutChoice | None:
    """For operators of one argument that work along `axis`, which must not be split."""
    layout = call.layouts[0]
    axis = call.attrs.axis % layout.rank
    if layout.is_split(axis):
        return None
    return LayoutChoice((layout,), (layout,), replace(call.attrs, axis=layout.outer(axis)))


def follow_vector(call: LayoutCall) -> LayoutChoice | None:
    """For operators over data and one number per extent of its axis `axis`, which must not be split."""
    layout = call.layouts[0]
    axis = call.attrs.axis % layout.rank
    if layout.is_plain or layout.is_split(axis):
        return None
    vectors = tuple(Layout.plain(1) for _ in call.types[1:])
    attrs = replace(call.attrs, axis=layout.outer(axis))
    return LayoutChoice((layout, *vectors), (layout, *vectors)[: len(call.results)], attrs)


def follow_images(call: LayoutCall) -> LayoutChoice | None:
    """For operators over images whose attribute `layout` names their axes; rows and columns must not be split."""
    letters: str = call.attrs.layout
    layout = call.layouts[0]
    if not is_plain(letters) or layout.is_split(letters.index("H")) or layout.is_split(letters.index("W")):
        return None
    return LayoutChoice((layout,), (layout,), replace(call.attrs, layout=layout.text(letters)))


def transformed(value: Expr, src: str, dst: str) -> Expr:
    """A tensor brought from one layout to another; of two changes in a row one is left, or none."""
    if src == dst:
        return value
    op = get_op("layout_transform")
    if isinstance(value, Call) and value.op is op:
        before: Any = value.attrs
        if before.dst_layout == src:
            return transformed(value.args[0], before.src_layout, dst)
    return Call(op, [value], op.make_attrs({"src_layout": src, "dst_layout": dst}), value.span)


def as_plain_call(call: Call, standards: Sequence[str]) -> Expr:
    """A call whose attributes name layouts, written over tensors in the standard layouts, one for each argument.

    The result is brought back from the first argument's standard layout.
    """
    assert not isinstance(call.op, Expr)
    names = call.op.layout_attrs
    if names is None or call.attrs is None:
        return call
    attrs: Any = call.attrs
    *inputs, result = names.layouts(attrs)
    if tuple(inputs) == tuple(standards) and result == standards[0]:
        return call
    args = [transformed(arg, text, standard) for arg, text, standard in zip(call.args, inputs, standards)]
    plain = replace(attrs, **dict(zip(names.inputs, standards)), **({names.output: ""} if names.output else {}))
    return transformed(Call(call.op, args, plain, call.span), standards[0], result)


def image_op(name: str, infer_type: InferType, evaluate: Evaluate, attrs_type: type[Attrs]) -> Op:
    """An operator over images in any `layout`, which is that of NCHW images between changes of layout."""
    return Op(
        name,
        1,
        infer_type,
        evaluate,
        OpKind.ANCHOR,
        attrs_type,
        arg_names=("data",),
        follow_layout=follow_images,
        layout_attrs=LayoutAttrs(("layout",)),
        precision=Precision.FOLLOW,
        decompose=_in_nchw,
    )


def _in_nchw(call: Call) -> Expr:
    return as_plain_call(call, ("NCHW",))
