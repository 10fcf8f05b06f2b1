"""Writes the types that were found into the nodes, and builds anew those that hold others; knows no typing rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import TypeAlias

from relaybuild.ir.adt import Constructor, Match
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.types import Type
from relaybuild.ir.visitor import post_order

Final: TypeAlias = Callable[[Expr], "Type | None"]
"""What a node's type was found to be; None where it is not known in full."""


class Fill(Enum):
    """What became of the slots of a function."""

    COMPLETE = "complete"
    OPEN = "open"
    """A type is not known in full."""
    STALE = "stale"
    """Some node holds another type: it must be built anew."""


_SEVERITY = (Fill.COMPLETE, Fill.OPEN, Fill.STALE)


def fill_types(order: Iterable[Expr], final: Final) -> Fill:
    """Write the types into the slots of nodes and their binders, wherever the type is complete and the slot empty."""
    result = Fill.COMPLETE
    for node in order:
        if node._type is None or node._type is not final(node):
            result = max(result, _fill(node, final(node)), key=_SEVERITY.index)
        if not isinstance(node, Call):
            for var in node.binders():
                result = max(result, _fill(var, final(var)), key=_SEVERITY.index)
    return result


def _fill(node: Expr, found: Type | None) -> Fill:
    if found is None:
        return Fill.OPEN
    if node._type is None:
        node.set_checked_type(found)
    return Fill.COMPLETE if node._type == found else Fill.STALE


def rebuild(root: Expr, final: Final, memo: dict[int, Expr]) -> Expr:
    """The expression with every node of the type found; nodes that have it already stay.

    `memo`, by id of the old node, makes several roots agree; the caller keeps the old nodes alive meanwhile.
    """
    for node in post_order(root):
        if id(node) not in memo:
            memo[id(node)] = _renewed(node, final, memo)
    return memo[id(root)]


def _renewed(node: Expr, final: Final, memo: dict[int, Expr]) -> Expr:
    binders = []
    for var in node.binders():
        new = memo.setdefault(id(var), _blank_copy(var) if _differs(var, final(var)) else var)
        assert isinstance(new, Var)
        _write(new, final(var))
        binders.append(new)
    found = final(node)
    copy = node.with_children([memo[id(child)] for child in node.children()]).with_binders(binders)
    if copy is node and _differs(node, found):
        copy = _blank_copy(node)
    _write(copy, found)
    return copy


def _differs(node: Expr, found: Type | None) -> bool:
    return node._type is not None and found is not None and node._type != found


def _write(node: Expr, found: Type | None) -> None:
    if node._type is None and found is not None:
        node.set_checked_type(found)


def _blank_copy(node: Expr) -> Expr:
    """The same node built again, so that its slot is what its parts give."""
    if isinstance(node, Var):
        return Var(node.name_hint, node.type_annotation, node.span)
    if isinstance(node, GlobalVar):
        return GlobalVar(node.name_hint, node.span)
    if isinstance(node, Call):
        return Call(node.op, node.args, node.attrs, node.span)
    if isinstance(node, Tuple):
        return Tuple(node.fields, node.span)
    if isinstance(node, TupleGetItem):
        return TupleGetItem(node.tuple_value, node.index, node.span)
    if isinstance(node, Function):
        return node.with_body(node.body)
    if isinstance(node, Let):
        return Let(node.var, node.value, node.body, node.span)
    if isinstance(node, If):
        return If(node.cond, node.true_branch, node.false_branch, node.span)
    if isinstance(node, Match):
        return Match(node.data, node.clauses, node.complete, node.span)
    if isinstance(node, Constructor):
        return Constructor(node.name, node.inputs, node.belongs_to, node.tag, node.span)
    return node
