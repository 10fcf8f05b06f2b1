"""What a call of `nn.dense` or `nn.matmul` is as products of matrices in memory; knows neither C nor BLAS.

Leading axes are loops over products of two matrices. They fall away where all rows meet one matrix, and neighbours
along which both operands go on alike are one loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.matmul import MatmulAttrs


@dataclass(frozen=True)
class Loop:
    """An axis over products: its extent, and how many elements the first and the second operand go on in a step."""

    extent: int
    a_step: int
    b_step: int


@dataclass(frozen=True)
class Product:
    """(rows, inner) times (inner, columns) for each round of the loops, outer ones first; all row-major without gaps.

    A transposed operand lies as (inner, rows), or (columns, inner). Results follow one another.
    """

    rows: int
    columns: int
    inner: int
    a_transposed: bool = False
    b_transposed: bool = False
    loops: tuple[Loop, ...] = ()

    @property
    def count(self) -> int:
        """How many products there are."""
        return prod(loop.extent for loop in self.loops)


def product_of(call: Call) -> Product:
    """The products of a call over tensors of known shape."""
    a, b = (each.tensor_type.static_shape for each in call.args)
    attrs = call.attrs
    if not isinstance(attrs, MatmulAttrs):
        return Product(prod(a[:-1]), b[0], b[1], b_transposed=True)
    *leading, rows, columns = call.tensor_type.static_shape
    inner = a[-2 if attrs.transpose_a else -1]
    loops = _loops(leading, a, b)
    if not attrs.transpose_a and len(loops) == 1 and loops[0].b_step == 0 and loops[0].a_step == rows * inner:
        rows, loops = rows * loops[0].extent, ()
    return Product(rows, columns, inner, attrs.transpose_a, attrs.transpose_b, loops)


def _loops(leading: Sequence[int], a: Sequence[int], b: Sequence[int]) -> tuple[Loop, ...]:
    loops: list[Loop] = []
    for extent, a_step, b_step in zip(leading, _steps(a, len(leading)), _steps(b, len(leading))):
        if extent == 1:
            continue
        if loops and loops[-1].a_step == a_step * extent and loops[-1].b_step == b_step * extent:
            loops[-1] = Loop(loops[-1].extent * extent, a_step, b_step)
        else:
            loops.append(Loop(extent, a_step, b_step))
    return tuple(loops)


def _steps(shape: Sequence[int], count: int) -> list[int]:
    """Elements from one matrix to the next along each of `count` leading axes, 0 where they are broadcast."""
    steps: list[int] = []
    step = prod(shape[-2:])
    for extent in reversed(shape[:-2]):
        steps.append(0 if extent == 1 else step)
        step *= extent
    return [0] * (count - len(steps)) + steps[::-1]
