"""Writes lets and branches in the order in which they are computed; knows nothing of operators.

scope = ScopeBuilder()
y = scope.let("y", log(x))
with scope.if_scope(condition):
    scope.ret(y)
with scope.else_scope():
    scope.ret(x)
body = scope.get()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, If, Let, Var


@dataclass
class _Frame:
    """One scope: its lets in order, its result, and a branch whose other half is still to come."""

    lets: list[tuple[Var, Expr]] = field(default_factory=list)
    result: Expr | None = None
    half: tuple[Expr, Expr] | None = None

    def expr(self) -> Expr:
        if self.half is not None:
            raise UserError("an if_scope has no else_scope: both branches of an If have a value")
        if self.result is None:
            raise UserError("a scope has no result: end it with 'ret'")
        result = self.result
        for var, value in reversed(self.lets):
            result = Let(var, value, result)
        return result


class ScopeBuilder:
    """Collects lets and branches; `get` gives the expression."""

    def __init__(self) -> None:
        self._frames = [_Frame()]

    def let(self, var: str | Var, value: Expr) -> Var:
        """Bind a value, computed here, to a variable, which is returned."""
        bound = var if isinstance(var, Var) else Var(var, value.checked_type if value.has_type else None)
        self._open().lets.append((bound, value))
        return bound

    def ret(self, value: Expr) -> None:
        """The result of the present scope."""
        self._open().result = value

    @contextmanager
    def if_scope(self, cond: Expr) -> Iterator[None]:
        """What is written inside is the branch taken where `cond` holds; an `else_scope` follows."""
        self._open()
        self._frames.append(_Frame())
        yield
        branch = self._frames.pop().expr()
        self._frames[-1].half = (cond, branch)

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """The other branch; the If of both becomes the result of the scope around it."""
        half = self._frames[-1].half
        if half is None:
            raise UserError("an else_scope follows an if_scope, and none stands before this one")
        self._frames.append(_Frame())
        yield
        branch = self._frames.pop().expr()
        self._frames[-1].half = None
        self._frames[-1].result = If(half[0], half[1], branch)

    def get(self) -> Expr:
        """The expression written."""
        return self._frames[-1].expr()

    def _open(self) -> _Frame:
        """The present scope, which must have no result yet."""
        if self._frames[-1].result is not None or self._frames[-1].half is not None:
            raise UserError("the scope has its result already: nothing follows it")
        return self._frames[-1]
