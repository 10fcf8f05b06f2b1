"""Which constants stand in what is cut out for a backend, and which stay outside; knows no pass and no backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.trampoline import Step, run
from relaybuild.ir.types import TensorType, TupleType
from relaybuild.ir.visitor import post_order, substitute
from relaybuild.passes._exprs import ConstantExprs


def with_constants_outside(call: Call, is_outside: Callable[[Constant], bool]) -> Call:
    """A call of a function that is written out, with further parameters and arguments for constants of its body.

    The new parameters come last, one for each constant that `is_outside` holds for, in the order of the body.
    """
    assert isinstance(call.op, Function)
    given = [node for node in post_order(call.op) if isinstance(node, Constant) and is_outside(node)]
    if not given:
        return call
    params = [Var(f"constant_{number}", constant.checked_type) for number, constant in enumerate(given)]
    plain = call.op
    body = substitute(plain.body, dict(zip(given, params)))
    function = Function([*plain.params, *params], body, plain.ret_type, plain.type_params, plain.attrs, plain.span)
    result = Call(function, [*call.args, *given], call.attrs, call.span)
    if not result.has_type and call.has_type:
        result.set_checked_type(call.checked_type)
    return result


def constant_exprs(nodes: Sequence[Expr]) -> ConstantExprs:
    """Which expressions of a function are computed from constants alone, seen through its lets.

    `nodes` are all of the function's, children before parents.
    """
    bound: set[int] = set()
    exprs = ConstantExprs(lambda node: id(node) in bound)
    # a value can only name what lets further out have bound, and these come later
    for node in reversed(nodes):
        if isinstance(node, Let) and exprs.holds(node.value):
            bound.add(id(node.var))
    return exprs


def constant_arguments(mod: IRModule, name: str) -> frozenset[int]:
    """Numbers of the tensors among a function's parameters that are the same at every run, wherever it is called.

    Tensors are numbered through all parameters, tuples field by field, as `flat_types` has them. What counts is a
    constant, or operators over constants alone; of several calls all must be given the very same. A function that is
    handed on as a value, or is never called, has none.
    """
    calls: list[tuple[Call, ConstantExprs]] = []
    for function in mod.functions.values():
        nodes = list(post_order(function))
        if any(_hands_on(node, name) for node in nodes):
            return frozenset()
        constant = constant_exprs(nodes)
        calls += [(node, constant) for node in nodes if isinstance(node, Call) and _is_function(node.op, name)]
    places = [_constant_leaves(call.args, constant) for call, constant in calls]
    if not places:
        return frozenset()
    first, *others = places
    return frozenset(
        number
        for number, identity in enumerate(first)
        if identity is not None and all(place[number] == identity for place in others)
    )


def _is_function(node: object, name: str) -> bool:
    return isinstance(node, GlobalVar) and node.name_hint == name


def _hands_on(node: Expr, name: str) -> bool:
    values = node.args if isinstance(node, Call) else node.children()
    return any(_is_function(value, name) for value in values)


_Identity = tuple[int, tuple[int, ...]]
"""A value: the id of what holds it, and the fields that lead to it."""


def _constant_leaves(args: Sequence[Expr], constant: ConstantExprs) -> list[_Identity | None]:
    """For each tensor among the arguments, what it is; None where it may differ from run to run."""
    found: list[_Identity | None] = []

    def visit(value: Expr, *path: int) -> Step[None]:
        kind = value.checked_type
        for each in path:
            assert isinstance(kind, TupleType)
            kind = kind.fields[each]
        if isinstance(kind, TupleType):
            for number in range(len(kind.fields)):
                if isinstance(value, Tuple) and not path:
                    yield visit(value.fields[number])
                else:
                    yield visit(value, *path, number)
        elif isinstance(kind, TensorType):
            found.append(_identity(value, path) if constant.holds(value) else None)

    for arg in args:
        run(visit(arg))
    return found


def _identity(value: Expr, path: tuple[int, ...]) -> _Identity:
    base = value
    while isinstance(base, TupleGetItem):
        path = (base.index, *path)
        base = base.tuple_value
    return id(base.array) if isinstance(base, Constant) else id(base), path
