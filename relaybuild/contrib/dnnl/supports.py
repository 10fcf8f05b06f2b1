"""Which calls of operators oneDNN computes, and why not the others; knows no pattern and no C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from relaybuild.contrib.dnnl.pooling import pooling_of
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.conv2d import Conv2DAttrs
from relaybuild.ir.types import TensorType

MAX_RANK = 6
"""Of the operands that the runtime describes: RB_DNNL_MAX_RANK."""


def supports(call: Call) -> bool | str:
    """Whether the backend takes a typed call of an operator, or why not."""
    refusal = _REFUSALS.get(call.op_name)
    if refusal is None:
        return False
    for kind in (*(each.checked_type for each in call.args), call.checked_type):
        if not isinstance(kind, TensorType) or not kind.is_static:
            return f"found {kind}, expected tensors whose shapes are numbers"
        if kind.dtype != "float32":
            return f"found {kind.dtype}, expected float32"
        if not kind.num_elements:
            return f"found {kind}, expected tensors with elements"
        if kind.rank > MAX_RANK:
            return f"found a tensor of rank {kind.rank}, expected rank {MAX_RANK} at most"
    return refusal(call) or True


def supports_long(call: Call) -> bool | str:
    """`supports` for a call that a sum and then an activation follow, all in one go."""
    found = supports(call)
    if found is not True or call.op_name != "nn.conv2d" or all(_sees_image(call, axis) for axis in (0, 1)):
        return found
    # release 2.6 has nothing but these to compute there, and crashes on AVX-512
    return "found windows that lie in the padding alone, expected each to see the image"


def _sees_image(call: Call, axis: int) -> bool:
    """Whether each window of a convolution has a tap within the image along rows (axis 0) or columns (1)."""
    attrs = call.attrs
    assert isinstance(attrs, Conv2DAttrs)
    data, weight = (each.tensor_type.static_shape for each in call.args)
    extent, step, dilation = data[2 + axis], attrs.strides[axis], attrs.dilation[axis]
    taps = [dilation * tap - attrs.padding[axis] for tap in range(weight[2 + axis])]
    windows = range(call.tensor_type.static_shape[2 + axis])
    return all(any(0 <= window * step + tap < extent for tap in taps) for window in windows)


def _convolution_refusal(call: Call) -> str:
    attrs = call.attrs
    assert isinstance(attrs, Conv2DAttrs)
    found = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    return "" if found == ("NCHW", "OIHW", "NCHW") else f"found layouts {', '.join(found)}, expected NCHW, OIHW, NCHW"


def _dense_refusal(call: Call) -> str:
    return ""


def _matmul_refusal(call: Call) -> str:
    leading = prod(call.tensor_type.static_shape[:-2])
    # releases 2.6 and 3.2 read wrong matrices where each operand is broadcast along an axis of the other
    if all(prod(each.tensor_type.static_shape[:-2]) != leading for each in call.args):
        return "found leading axes along which either operand is broadcast, expected one operand to have them all"
    return ""


def _pooling_refusal(call: Call) -> str:
    found = pooling_of(call)
    return found if isinstance(found, str) else ""


_REFUSALS: Mapping[str, Callable[[Call], str]] = {
    "nn.conv2d": _convolution_refusal,
    "nn.dense": _dense_refusal,
    "nn.matmul": _matmul_refusal,
    "nn.max_pool2d": _pooling_refusal,
    "nn.avg_pool2d": _pooling_refusal,
    "nn.global_avg_pool2d": _pooling_refusal,
}
