"""Rows of a matrix, some written or combined with others at places read at run time; knows nothing of the model.

Each thread makes a run of rows and looks at all updates for those that fall there: they are applied in their order,
whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.lower.emit import Emitter, c_type
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.body import Body, store
from relaybuild.lower.templates.reduce import combined

Element = Callable[[ScalarBuilder, Sequence[IndexLike]], ScalarExpr]


@dataclass(frozen=True)
class Scatter:
    """`count` updates of rows; `combine` is sum, prod, min, max, or "" where an update takes the place of the row.

    Elements of the data and of the updates are given by row and column, the place of an update by its number; one that
    is none of the rows is dropped.
    """

    combine: str
    count: int
    data: Element
    place: Element
    update: Element


def scatter_kernel(scatter: Scatter, body: Body, machine: Machine) -> Kernel:
    """The kernel over a matrix as output."""
    builder = Builder()
    rows, columns = body.output.layout.shape
    first = builder.let("ptrdiff_t", "first", f"(ptrdiff_t){rows} * thread / threads")
    last = builder.let("ptrdiff_t", "last", f"(ptrdiff_t){rows} * (thread + 1) / threads")

    def value(element: Element, index: Sequence[IndexLike]) -> str:
        scalars = ScalarBuilder(builder.name)
        return Emitter(builder, body.pointers, scalars).emit(element(scalars, index))

    def own_rows() -> tuple[Index, Index]:
        return Index.opaque(first), Index.opaque(last)

    def out(row: Index, column: Index) -> str:
        return f"{body.target}[{body.output.layout.address([row, column])}]"

    begin, end = own_rows()
    with builder.loop("r", end, begin, last=rows - 1) as r, builder.loop("c", columns) as c:
        builder.assign(out(r, c), value(scatter.data, [r, c]))
    with builder.loop("m", scatter.count) as m:
        at = builder.let("ptrdiff_t", "at", value(scatter.place, [m]))
        with builder.branch(f"{at} >= {first} && {at} < {last}"), builder.loop("c", columns) as c:
            target, new = out(Index.of(Axis(at, rows - 1)), c), value(scatter.update, [m, c])
            dtype = body.output.dtype
            builder.assign(target, combined(scatter.combine, target, new, dtype) if scatter.combine else new)
    if _has_epilogue(body):
        with builder.loop("r", end, begin, last=rows - 1) as r, builder.loop("c", columns) as c:
            store(builder, body, [r, c], builder.let(c_type(body.output.dtype), "x", out(r, c)), 1, None)
    return body.kernel(builder.body, machine.lanes)


def _has_epilogue(body: Body) -> bool:
    """Whether something more is computed of the result."""
    scalars = ScalarBuilder()
    index = [Index.of(Axis(f"i{number}", extent - 1)) for number, extent in enumerate(body.output.layout.shape)]
    return body.rule(scalars, index, scalars.anchor(body.anchor_dtype)).op != "anchor"
