"""Questions that several passes ask about expressions; knows no pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from relaybuild.ir.adt import Constructor
from relaybuild.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from relaybuild.ir.scopes import is_atom
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.ir.visitor import post_order


def is_call(node: Expr, name: str) -> TypeGuard[Call]:
    """Whether a node calls the operator of that name."""
    return isinstance(node, Call) and node.op_name == name


def attrs_of(call: Call) -> Any:
    """The attributes of an operator's call, the operator's defaults where none are written."""
    return call.attrs if call.attrs is not None or isinstance(call.op, Expr) else call.op.make_attrs({})


def tensor_type(node: Expr) -> TensorType | None:
    """The type of a node if it is known to be a tensor."""
    found = node.checked_type if node.has_type else None
    return found if isinstance(found, TensorType) else None


def observes_effects(function: Function) -> bool:
    """Whether references can play a part in a function: it makes or uses them, or is handed them, or closures over
    them, as arguments or as results of what it calls."""
    if any(_holds_references(param) for param in function.params):
        return True
    return any(_is_reference_step(node) or _brings_references(node) for node in post_order(function))


def _is_reference_step(node: Expr) -> bool:
    return isinstance(node, (RefCreate, RefRead, RefWrite))


def _brings_references(node: Expr) -> bool:
    is_call = isinstance(node, Call) and isinstance(node.op, Expr) and not isinstance(node.op, Constructor)
    return is_call and _holds_references(node)


def _holds_references(value: Expr) -> bool:
    """Whether a value's type, as far as it is known, leaves room for references."""
    stack: list[Type | None] = [value.checked_type if value.has_type else None]
    while stack:
        kind = stack.pop()
        if kind is None or not isinstance(kind, (TensorType, TupleType)):
            return True
        stack.extend(kind.fields if isinstance(kind, TupleType) else ())
    return False


def projected(node: Expr, *, effects: bool) -> Expr:
    """A field of a tuple that is written out, instead of the tuple; where there may be effects, only if what the other
    fields are is computed elsewhere."""
    if not isinstance(node, TupleGetItem) or not isinstance(node.tuple_value, Tuple):
        return node
    fields = node.tuple_value.fields
    if effects and not all(is_atom(field) for number, field in enumerate(fields) if number != node.index):
        return node
    return fields[node.index]


class ConstantExprs:
    """Which expressions are computed from constants alone, or from what `also` counts as one; each node is looked at
    once."""

    def __init__(self, also: Callable[[Expr], bool] = lambda node: False) -> None:
        self._also = also
        # the node is kept with the answer, so that its id is not given to another
        self._known: dict[int, tuple[Expr, bool]] = {}

    def holds(self, root: Expr) -> bool:
        stack = [root]
        while stack:
            node = stack[-1]
            pending = [] if id(node) in self._known else self._pending(node)
            if pending:
                stack.extend(pending)
                continue
            stack.pop()
            if id(node) not in self._known:
                self._known[id(node)] = (node, self._decide(node))
        return self._known[id(root)][1]

    def _pending(self, node: Expr) -> list[Expr]:
        if self._also(node) or not _may_be_constant(node):
            return []
        return [child for child in node.children() if id(child) not in self._known]

    def _decide(self, node: Expr) -> bool:
        if self._also(node):
            return True
        return _may_be_constant(node) and all(self._known[id(child)][1] for child in node.children())


def effect_free() -> ConstantExprs:
    """Which expressions are operators over variables and constants alone, so that leaving them out loses no effect."""
    return ConstantExprs(lambda node: isinstance(node, Var))


def _may_be_constant(node: Expr) -> bool:
    if isinstance(node, Call):
        return not isinstance(node.op, Expr)
    return isinstance(node, (Constant, Tuple, TupleGetItem))
