"""Python's operators over expressions: `x + y`, `x < y`, `f(x)`, `pair[0]`; knows operators by name alone.

`==` stays identity: write `x.equal(y)` for the element-wise comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaybuild.ir.expr import Call, Expr, TupleGetItem


class Operators:
    """What every expression can be written with; a number among the operands takes the other's element type."""

    __slots__ = ()

    def __add__(self, other: object) -> Call:
        return _call("add", self, other)

    def __radd__(self, other: object) -> Call:
        return _call("add", other, self)

    def __sub__(self, other: object) -> Call:
        return _call("subtract", self, other)

    def __rsub__(self, other: object) -> Call:
        return _call("subtract", other, self)

    def __mul__(self, other: object) -> Call:
        return _call("multiply", self, other)

    def __rmul__(self, other: object) -> Call:
        return _call("multiply", other, self)

    def __truediv__(self, other: object) -> Call:
        return _call("divide", self, other)

    def __rtruediv__(self, other: object) -> Call:
        return _call("divide", other, self)

    def __neg__(self) -> Call:
        return _call("negative", self)

    def __lt__(self, other: object) -> Call:
        return _call("less", self, other)

    def __le__(self, other: object) -> Call:
        return _call("less_equal", self, other)

    def __gt__(self, other: object) -> Call:
        return _call("greater", self, other)

    def __ge__(self, other: object) -> Call:
        return _call("greater_equal", self, other)

    def equal(self, other: object) -> Call:
        """Element-wise equality."""
        return _call("equal", self, other)

    def not_equal(self, other: object) -> Call:
        """Element-wise inequality."""
        return _call("not_equal", self, other)

    def astype(self, dtype: str) -> Call:
        """The elements converted to another type."""
        from relaybuild.ir.op import call_op

        return call_op("cast", [_as_expr(self, None)], dtype=dtype)

    def __call__(self, *args: object) -> Call:
        """A call of this function, closure, global or constructor."""
        from relaybuild.ir.expr import Call

        return Call(_as_expr(self, None), [_as_expr(arg, None) for arg in args])

    def __getitem__(self, index: int) -> TupleGetItem:
        """A field of this tuple; a negative index counts from the end where the type is known."""
        from relaybuild.ir.expr import TupleGetItem

        return TupleGetItem(_as_expr(self, None), index + self._field_count() if index < 0 else index)

    def __iter__(self) -> Iterator[Expr]:
        """The fields of this tuple, whose type must be known."""
        return iter([self[index] for index in range(self._field_count())])

    def _field_count(self) -> int:
        from relaybuild.ir.types import TupleType

        found = _as_expr(self, None)._type
        if not isinstance(found, TupleType):
            raise TypeError(f"a {type(self).__name__} that is not known to be a tuple has no fields to count")
        return len(found.fields)


def _call(name: str, *operands: object) -> Call:
    from relaybuild.ir.expr import Expr
    from relaybuild.ir.op import call_op
    from relaybuild.ir.types import TensorType

    types = [operand._type for operand in operands if isinstance(operand, Expr)]
    dtypes = [kind.dtype for kind in types if isinstance(kind, TensorType)]
    return call_op(name, [_as_expr(operand, dtypes[0] if dtypes else None) for operand in operands])


def _as_expr(value: object, dtype: str | None) -> Expr:
    from relaybuild.ir.expr import Expr, const

    return value if isinstance(value, Expr) else const(value, dtype)
