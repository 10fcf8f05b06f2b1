"""Pooling over windows and over whole images."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.host.anchor import Anchor, Buffer, Need, Setting, Site
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.templates.pool2d import Pool2D, global_pool2d_kernel, pool2d_kernel


def needs(call: Call, is_weight: Sequence[bool], setting: Setting) -> tuple[Need, ...]:
    """The data in channel blocks; windows are clipped, so no halo."""
    if call.tensor_type.dtype != "float32":
        where = str(call.span) if call.span else None
        raise UnsupportedError(f"'{call.op_name}' over {call.tensor_type.dtype}: the host takes float32", where=where)
    return (Buffer("blocked"),)


def lower_window(site: Site) -> Kernel:
    """The kernel of `nn.max_pool2d` and `nn.avg_pool2d`."""
    attrs = site.call.attrs
    pool = Pool2D(
        "max" if site.call.op_name == "nn.max_pool2d" else "avg",
        attrs.pool_size,  # type: ignore[union-attr]
        attrs.strides,  # type: ignore[union-attr]
        attrs.padding,  # type: ignore[union-attr]
        attrs.dilation,  # type: ignore[union-attr]
        getattr(attrs, "count_include_pad", False),
    )
    return pool2d_kernel(pool, site.body, site.machine)


def lower_global(site: Site) -> Kernel:
    """The kernel of the global poolings."""
    reduce = "max" if site.call.op_name == "nn.global_max_pool2d" else "avg"
    return global_pool2d_kernel(reduce, site.body, site.machine)


def _always(call: Call) -> bool:
    return True


ANCHORS = tuple(
    Anchor(names, needs, lowered, blocked=_always, writes_halo=True, widens=True)
    for names, lowered in (
        (("nn.max_pool2d", "nn.avg_pool2d"), lower_window),
        (("nn.global_avg_pool2d", "nn.global_max_pool2d"), lower_global),
    )
)
