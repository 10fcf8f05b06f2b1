"""Places of elements in order."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.host.anchor import Anchor, Loaded, Need, Setting, Site
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.sort import TopkAttrs
from relaybuild.lower.index import IndexLike
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.order import Order, order_kernel


def needs(call: Call, is_weight: Sequence[bool], setting: Setting) -> tuple[Need, ...]:
    """The data through whatever computes it."""
    return (Loaded(),)


def lower(site: Site) -> Kernel:
    """The kernel of the int64 indices of `topk` along the last dimension, to which `legalize` brings all ordering."""
    attrs, data = site.call.attrs, site.call.args[0].tensor_type
    assert isinstance(attrs, TopkAttrs)

    def element(scalars: ScalarBuilder, index: Sequence[IndexLike]) -> ScalarExpr:
        return site.element(scalars, 0, index)

    order = Order(data.static_shape[-1], data.dtype, attrs.is_ascend, element)
    return order_kernel(order, site.body, site.machine)


ANCHORS = (Anchor(("topk",), needs, lower, loads="arithmetic"),)
