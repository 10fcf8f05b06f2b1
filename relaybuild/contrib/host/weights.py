"""The table of weights a library carries: expressions over constants, packed, evaluated once; knows no kernel."""

from __future__ import annotations

from dataclasses import field

from relaybuild.contrib.host.anchor import Packed
from relaybuild.contrib.host.place import Storage, View
from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Constant, Expr, Function, Tuple
from relaybuild.lower.layout import Layout

ALIGNMENT = 64


@dataclass
class WeightTable:
    """Slots of the library's weights, in order of first use; equal requests share a slot."""

    expressions: list[Expr] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    _known: dict[tuple[object, ...], View] = field(default_factory=dict)

    def view(self, expr: Expr, packed: Packed | None = None) -> View:
        """The slot that holds `expr`, packed or row-major.

        A slot is padded with zeros to a multiple of 64 bytes, so that the last vector of it may be read whole.
        """
        identity = id(expr.array) if isinstance(expr, Constant) else id(expr)
        key = (identity, packed.op if packed else "", tuple(sorted(packed.attrs.items())) if packed else ())
        if key not in self._known:
            value = packed.of(expr) if packed else expr
            found = value.tensor_type
            num_bytes = -(-max(1, found.num_elements * found.itemsize) // ALIGNMENT) * ALIGNMENT
            storage = Storage("weight", num_bytes, len(self.storages), self.num_bytes)
            self.expressions.append(value)
            self.storages.append(storage)
            self._known[key] = View(storage, Layout.row_major(found.static_shape), found.dtype)
        return self._known[key]

    @property
    def num_bytes(self) -> int:
        """Bytes of all slots."""
        return sum(storage.num_bytes for storage in self.storages[-1:]) + (
            self.storages[-1].offset if self.storages else 0
        )

    def function(self) -> Function:
        """`@weights`: no parameters, the tuple of all slots."""
        return Function([], Tuple(self.expressions))
