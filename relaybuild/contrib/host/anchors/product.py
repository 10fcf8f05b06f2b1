"""Matrix products: `nn.dense` and `nn.matmul`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relaybuild.contrib.host.anchor import Anchor, Buffer, Loaded, Need, Packed, Setting, Site
from relaybuild.ir.expr import Call
from relaybuild.lower.index import IndexLike, delinearize
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.dot_matmul import dot_matmul_kernel
from relaybuild.lower.templates.dot_matmul import suits as suits_dots
from relaybuild.lower.templates.matmul import MatMul, matmul_kernel
from relaybuild.lower.templates.reduce import Reduction, reduce_kernel


def needs(call: Call, is_weight: Sequence[bool], setting: Setting) -> tuple[Need, ...]:
    """Both sides row-major; a right side known at build time is packed where it is one matrix.

    Products that are not of float32 are reductions over elements.
    """
    if not _is_single(call):
        return Loaded(), Loaded()
    right = call.args[1].tensor_type
    if is_weight[1] and right.rank == 2:
        transposed = call.op_name == "nn.dense" or bool(getattr(call.attrs, "transpose_b", False))
        return Buffer("row"), Packed("contrib.pack_matmul", {"transposed": transposed})
    return Buffer("row"), Buffer("row")


def _is_single(call: Call) -> bool:
    """Whether everything is float32, which the template is for."""
    return {call.tensor_type.dtype, *(argument.tensor_type.dtype for argument in call.args)} == {"float32"}


def _lower_elements(site: Site) -> Kernel:
    """One element of the result at a time, in the result's type."""
    call = site.call
    dense = call.op_name == "nn.dense"
    left_shape, right_shape = (argument.tensor_type.static_shape for argument in call.args)
    transpose_left = not dense and bool(getattr(call.attrs, "transpose_a", False))
    transpose_right = dense or bool(getattr(call.attrs, "transpose_b", False))
    depth = left_shape[-2] if transpose_left else left_shape[-1]
    dtype = call.tensor_type.dtype

    def element(scalars: ScalarBuilder, out: Sequence[IndexLike], inner: Sequence[IndexLike]) -> ScalarExpr:
        row, column, k = out[-2:-1], out[-1], inner[0]
        leading = _broadcast(out[:-2], left_shape[:-2])
        left = [*leading, k, *row] if transpose_left else [*leading, *row, k]
        leading = _broadcast(out[:-2], right_shape[:-2])
        right = [*leading, column, k] if transpose_right else [*leading, k, column]
        factors = (site.element(scalars, number, index) for number, index in enumerate((left, right)))
        return scalars.binary("mul", *(scalars.cast(factor, dtype) for factor in factors))

    return reduce_kernel(Reduction("sum", (depth,), element, dtype), site.body, site.machine)


def lower(site: Site) -> Kernel:
    """The kernel of a product; `nn.dense` is a product whose right side is transposed and has no batch."""
    call = site.call
    if not _is_single(call):
        return _lower_elements(site)
    dense = call.op_name == "nn.dense"
    left_shape = call.args[0].tensor_type.static_shape
    right_shape = call.args[1].tensor_type.static_shape
    out_shape = call.tensor_type.static_shape
    transpose_left = not dense and bool(getattr(call.attrs, "transpose_a", False))
    transpose_right = dense or bool(getattr(call.attrs, "transpose_b", False))
    packed = site.operands[1] is not None and len(site.operands[1].layout.shape) == 3 and len(right_shape) == 2
    flat = packed and not transpose_left
    row_shape = out_shape[:-1] if flat or dense else out_shape[-2:-1]
    batch_shape = out_shape[: len(out_shape) - 1 - len(row_shape)]
    depth = left_shape[-2] if transpose_left else left_shape[-1]

    def split(batch: IndexLike, row: IndexLike) -> list[IndexLike]:
        return [*delinearize(batch, batch_shape), *delinearize(row, row_shape)]

    def left(batch: IndexLike, row: IndexLike, k: IndexLike) -> list[IndexLike]:
        if len(left_shape) == 1:
            return [k]
        leading = split(batch, row)
        aligned = _broadcast(leading[:-1], left_shape[:-2]) if not (flat or dense) else leading[:-1]
        return [*aligned, k, leading[-1]] if transpose_left else [*aligned, leading[-1], k]

    def right(batch: IndexLike, k: IndexLike, column: IndexLike) -> list[IndexLike]:
        aligned = _broadcast(delinearize(batch, batch_shape), right_shape[:-2])
        return [*aligned, column, k] if transpose_right else [*aligned, k, column]

    def out(batch: IndexLike, row: IndexLike, column: IndexLike) -> list[IndexLike]:
        return [*split(batch, row), column]

    matmul = MatMul(prod(batch_shape), prod(row_shape), out_shape[-1], depth, left, out, packed, right)
    template = dot_matmul_kernel if suits_dots(matmul, site.body, site.machine) else matmul_kernel
    return template(matmul, site.body, site.machine)


def _broadcast(index: Sequence[IndexLike], shape: Sequence[int]) -> list[IndexLike]:
    """The part of a batch index that an argument of these leading extents reads."""
    tail = list(index)[len(index) - len(shape) :]
    return [0 if extent == 1 else position for position, extent in zip(tail, shape)]


ANCHORS = (Anchor(("nn.dense", "nn.matmul"), needs, lower, widens=True),)
