"""Reductions, positions of extrema, and softmax."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.contrib.host.anchor import Anchor, Loaded, Need, Setting, Site
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.reduce import reduced_axes
from relaybuild.lower.index import IndexLike
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.reduce import Reduction, arg_reduce_kernel, reduce_kernel
from relaybuild.lower.templates.softmax import Softmax, softmax_kernel


def needs(call: Call, is_weight: Sequence[bool], setting: Setting) -> tuple[Need, ...]:
    """The data through whatever computes it."""
    return (Loaded(),)


def _reduction(site: Site, combine: str, axes: Sequence[int], keepdims: bool) -> Reduction:
    data = site.call.args[0].tensor_type
    shape = data.static_shape

    def element(scalars: ScalarBuilder, out: Sequence[IndexLike], inner: Sequence[IndexLike]) -> ScalarExpr:
        source: list[IndexLike] = []
        kept, reduced = iter(out), iter(inner)
        for dimension in range(len(shape)):
            if dimension in axes:
                source.append(next(reduced))
                if keepdims:
                    next(kept)
            else:
                source.append(next(kept))
        return site.element(scalars, 0, source)

    return Reduction(combine, tuple(shape[axis] for axis in axes), element, data.dtype)


def lower_reduce(site: Site) -> Kernel:
    """The kernel of sum, max, min, prod, any and all."""
    attrs = site.call.attrs
    axes = reduced_axes(attrs, site.call.args[0].tensor_type.rank)  # type: ignore[arg-type]
    reduction = _reduction(site, site.call.op_name, axes, bool(getattr(attrs, "keepdims", False)))
    return reduce_kernel(reduction, site.body, site.machine)


def lower_arg(site: Site) -> Kernel:
    """The kernel of argmax and argmin along one dimension."""
    attrs = site.call.attrs
    rank = site.call.args[0].tensor_type.rank
    axes = [int(getattr(attrs, "axis", 0)) % rank]
    combine = site.call.op_name.removeprefix("arg")
    reduction = _reduction(site, combine, axes, bool(getattr(attrs, "keepdims", False)))
    last = bool(getattr(attrs, "select_last_index", False))
    return arg_reduce_kernel(reduction, site.body, site.machine, last_index=last)


def lower_softmax(site: Site) -> Kernel:
    """The kernel of softmax and log_softmax."""
    rank = site.call.tensor_type.rank
    axis = int(getattr(site.call.attrs, "axis", -1)) % rank

    def element(scalars: ScalarBuilder, index: Sequence[IndexLike]) -> ScalarExpr:
        return site.element(scalars, 0, index)

    softmax = Softmax(axis, element, log=site.call.op_name == "nn.log_softmax")
    return softmax_kernel(softmax, site.body, site.machine)


ANCHORS = (
    Anchor(("sum", "max", "min", "prod", "any", "all"), needs, lower_reduce, loads="arithmetic"),
    Anchor(("argmax", "argmin"), needs, lower_arg, loads="arithmetic"),
    Anchor(("nn.softmax", "nn.log_softmax"), needs, lower_softmax, loads="place"),
)
