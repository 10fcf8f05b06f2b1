"""What oneDNN computes in one go: a convolution or matrix product, a bias, a sum, an activation; knows no C.

A pattern is named after its parts: `dnnl.conv2d_bias_sum_relu` adds another result of the same shape to a biased
convolution and rectifies that. Patterns of more parts come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import sqrt

from relaybuild.contrib.dnnl.supports import supports, supports_long
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.clip import ClipAttrs
from relaybuild.ir.pattern import DFPattern, is_op
from relaybuild.partition.pattern_parts import is_number, taken, with_bias, with_sum
from relaybuild.partition.pattern_table import Entry, PatternTable

TAG = "dnnl"

_ANCHORS: Mapping[str, tuple[str, int]] = {
    "conv2d": ("nn.conv2d", 1),
    "dense": ("nn.dense", -1),
    "matmul": ("nn.matmul", -1),
}
"""By name: the operator, and the axis of its result along which a bias runs."""


def has_order(call: Call) -> bool | str:
    """Whether the limits of a `clip` are in order: oneDNN has no word for others."""
    attrs = call.attrs
    assert isinstance(attrs, ClipAttrs)
    low = -float("inf") if attrs.a_min is None else attrs.a_min
    high = float("inf") if attrs.a_max is None else attrs.a_max
    return low <= high or f"found the limits {low} and {high}, expected them in order"


def _gelu(x: DFPattern) -> DFPattern:
    """x * (1 + erf(x / sqrt(2))), times 1/2 somewhere or nowhere: the half may have gone into a later weight."""
    scaled = is_op("divide")(x, is_number(sqrt(2))) | is_op("multiply")(x, is_number(sqrt(0.5)))
    gate = is_op("add")(is_op("erf")(scaled), is_number(1))
    double = is_op("multiply")(x, gate)
    halves = is_op("multiply")(double, is_number(0.5)) | is_op("multiply")(is_op("multiply")(x, is_number(0.5)), gate)
    return halves | is_op("multiply")(x, is_op("multiply")(gate, is_number(0.5))) | double


_ACTIVATIONS: Mapping[str, Callable[[DFPattern], DFPattern]] = {
    "relu": lambda x: is_op("nn.relu")(x),
    "leaky_relu": lambda x: is_op("nn.leaky_relu")(x),
    "clip": lambda x: taken("clip", has_order, x),
    "gelu": _gelu,
    "swish": lambda x: is_op("multiply")(x, is_op("sigmoid")(x)),
    "sigmoid": lambda x: is_op("sigmoid")(x),
    "tanh": lambda x: is_op("tanh")(x),
}
"""In this order: the gate of a swish is a sigmoid too."""


def _entries() -> Iterator[Entry]:
    for parts in (("bias", "sum"), ("bias",), ("sum",), ()):
        for activation, anchor in product((*_ACTIVATIONS, None), _ANCHORS):
            op_name, axis = _ANCHORS[anchor]
            if not parts and activation is None:
                continue
            is_long = "sum" in parts and activation is not None
            pattern = taken(op_name, supports_long if is_long else supports)
            if "bias" in parts:
                pattern = with_bias(pattern, axis)
            if "sum" in parts:
                pattern = with_sum(pattern)
            if activation is not None:
                pattern = _ACTIVATIONS[activation](pattern)
            names = [anchor, *parts, *([activation] if activation else [])]
            yield Entry(f"{TAG}.{'_'.join(names)}", pattern)


PATTERNS: PatternTable = tuple(_entries())
