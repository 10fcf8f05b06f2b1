"""Poolings as oneDNN describes them: a window with explicit padding on all sides; knows no C."""

from __future__ import annotations

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.global_pool2d import GlobalPool2DAttrs
from relaybuild.ir.ops.pool2d import AvgPool2DAttrs, MaxPool2DAttrs


@dataclass(frozen=True)
class Pooling:
    """The windows of a pooling over NCHW images; `padding`: top, left, bottom, right. Padding counts in no mean."""

    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]


def pooling_of(call: Call) -> Pooling | str:
    """The windows of a call of a pooling operator over tensors of known shape, or why oneDNN has none such."""
    attrs = call.attrs
    rows, columns = call.args[0].tensor_type.static_shape[2:]
    if isinstance(attrs, GlobalPool2DAttrs):
        return _wrong_layout(attrs.layout) or Pooling((rows, columns), (1, 1), (0, 0, 0, 0))
    assert isinstance(attrs, MaxPool2DAttrs)
    if attrs.dilation != (1, 1):
        return f"found dilation {attrs.dilation}, expected (1, 1)"
    if any(pad >= attrs.pool_size[side % 2] for side, pad in enumerate(attrs.padding)):
        return f"found padding {attrs.padding}, expected less than the window {attrs.pool_size}"
    padding = _reached(call, attrs)
    if isinstance(attrs, AvgPool2DAttrs) and attrs.count_include_pad and any(padding):
        return "found padding that counts in the mean"
    height, width = attrs.pool_size
    down, right = attrs.strides
    return _wrong_layout(attrs.layout) or Pooling((height, width), (down, right), padding)


def _wrong_layout(layout: str) -> str:
    return "" if layout == "NCHW" else f"found layout {layout}, expected NCHW"


def _reached(call: Call, attrs: MaxPool2DAttrs) -> tuple[int, int, int, int]:
    """The padding, with what the last windows reach beyond it."""
    extents = call.args[0].tensor_type.static_shape[2:]
    places = call.tensor_type.static_shape[2:]
    top, left, *after = attrs.padding
    for axis, before in enumerate((top, left)):
        end = (places[axis] - 1) * attrs.strides[axis] + attrs.pool_size[axis]
        after[axis] = max(after[axis], end - extents[axis] - before)
    return top, left, after[0], after[1]
