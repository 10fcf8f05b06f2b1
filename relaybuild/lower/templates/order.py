"""Where the first elements of a row in order are; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from relaybuild.dataclass import dataclass
from relaybuild.lower.emit import Emitter
from relaybuild.lower.index import IndexLike, delinearize
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.body import Body, store

_HEADER = "relaybuild/order.h"
_ITEM_BYTES = 16


@dataclass(frozen=True)
class Order:
    """Rows along the last dimension, of `extent` elements of `dtype`; `element` gives one at an index of the data."""

    extent: int
    dtype: str
    ascending: bool
    element: Callable[[ScalarBuilder, Sequence[IndexLike]], ScalarExpr]


def order_kernel(order: Order, body: Body, machine: Machine) -> Kernel:
    """The kernel over an output of int64 places, as many of each row as it has columns. A unit is a row."""
    builder = Builder()
    *before, wanted = body.output.layout.shape
    kind = "float" if order.dtype.startswith("float") else "signed" if order.dtype.startswith("int") else "unsigned"
    sign = "" if order.ascending else "~"
    with builder.share(prod(before)) as unit:
        row = [builder.let_index("o", part) for part in delinearize(unit, before)]
        items = builder.declare("rb_item *", "items")
        builder.assign(items, "(rb_item *)scratch")
        with builder.loop("k", order.extent) as k:
            scalars = ScalarBuilder(builder.name)
            value = Emitter(builder, body.pointers, scalars).emit(order.element(scalars, [*row, k]))
            builder.evaluate(f"rb_offer({items}, {wanted}, {k}, {sign}rb_key_{kind}({value}))")
        sorted_items = builder.let("rb_item *", "sorted", f"rb_sorted({items}, {items} + {wanted}, {wanted})")
        with builder.loop("k", wanted) as k:
            store(builder, body, [*row, k], f"{sorted_items}[{k}].place", 1, None)
    return body.kernel(builder.body, machine.lanes, 2 * _ITEM_BYTES * wanted, (_HEADER,))
