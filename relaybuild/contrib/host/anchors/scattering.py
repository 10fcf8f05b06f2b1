"""Rows written or combined at places that are computed."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.host.anchor import Anchor, Loaded, Need, Setting, Site
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.scatter import ScatterNdAttrs
from relaybuild.lower.index import IndexLike
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.scatter import Element, Scatter, scatter_kernel

_COMBINED = {"update": "", "add": "sum", "mul": "prod", "min": "min", "max": "max"}


def needs(call: Call, is_weight: Sequence[bool], setting: Setting) -> tuple[Need, ...]:
    """Data, places and updates, element by element."""
    return (Loaded(), Loaded(), Loaded())


def lower(site: Site) -> Kernel:
    """The kernel of `scatter_nd` of rows of a matrix, to which `legalize` brings all scattering."""
    attrs = site.call.attrs
    assert isinstance(attrs, ScatterNdAttrs)

    def element(number: int) -> Element:
        def at(scalars: ScalarBuilder, index: Sequence[IndexLike]) -> ScalarExpr:
            return site.element(scalars, number, index)

        return at

    def place(scalars: ScalarBuilder, index: Sequence[IndexLike]) -> ScalarExpr:
        return site.element(scalars, 1, [*index, 0])

    count = site.call.args[1].tensor_type.static_shape[0]
    scatter = Scatter(_COMBINED[attrs.mode], count, element(0), place, element(2))
    return scatter_kernel(scatter, site.body, site.machine)


ANCHORS = (Anchor(("scatter_nd",), needs, lower),)
