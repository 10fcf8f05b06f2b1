"""What the host knows of a function's values: who uses them, which are weights; knows nothing of kernels."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order


@dataclass(frozen=True)
class Values:
    """A function body in topological order.

    `nodes` are the calls to be computed, `weights` the ids of expressions over constants alone (evaluated once per set
    of weights), `users` the computed nodes that read a value, by its id, and `outputs` the values returned, in order.
    """

    nodes: tuple[Call, ...]
    weights: frozenset[int]
    users: dict[int, list[Call]]
    outputs: tuple[Expr, ...]

    def is_output(self, expr: Expr) -> bool:
        return any(expr is output for output in self.outputs)


def analyse(function: Function) -> Values:
    """The values of a first-order dataflow function; anything else is an UnsupportedError that names it."""
    outputs = function.body.fields if isinstance(function.body, Tuple) else (function.body,)
    weights: set[int] = set()
    nodes: list[Call] = []
    users: dict[int, list[Call]] = {}
    for expr in post_order(*outputs):
        children = expr.children()
        if isinstance(expr, Constant) or (children and all(id(child) in weights for child in children)):
            weights.add(id(expr))
        elif isinstance(expr, Call) and not isinstance(expr.op, Expr):
            nodes.append(expr)
            for value in arguments(expr):
                users.setdefault(id(value), []).append(expr)
        elif not isinstance(expr, (Var, Tuple)):
            raise UnsupportedError(
                f"the host backend cannot compile this {_describe(expr)} yet",
                where=str(expr.span) if expr.span else None,
            )
    return Values(tuple(nodes), frozenset(weights), users, tuple(outputs))


def _describe(expr: Expr) -> str:
    if isinstance(expr, TupleGetItem) and isinstance(expr.tuple_value, Call):
        return f"field of '{expr.tuple_value.op_name}', an operator with several results"
    return type(expr).__name__


def arguments(call: Call) -> list[Expr]:
    """The tensor arguments of a call, the fields of a tuple argument one by one."""
    found: list[Expr] = []
    for argument in call.args:
        found.extend(argument.fields if isinstance(argument, Tuple) else (argument,))
    return found


def argument_types(call: Call) -> tuple[TensorType, ...]:
    """Their types."""
    return tuple(argument.tensor_type for argument in arguments(call))


def is_scalar_constant(expr: Expr) -> bool:
    """Whether a kernel holds the value in its text: structure of one element."""
    return isinstance(expr, Constant) and expr.array.size == 1


def slice_starts(root: Call) -> tuple[list[int], list[int]]:
    """(first position, step) of a strided_slice in every dimension."""
    data = root.args[0].tensor_type.static_shape
    attrs = root.attrs
    begin: Sequence[int] = attrs.begin  # type: ignore[union-attr]
    end: Sequence[int] = attrs.end  # type: ignore[union-attr]
    axes = getattr(attrs, "axes", None) or tuple(range(len(begin)))
    strides = getattr(attrs, "strides", None) or (1,) * len(begin)
    begins, steps = [0] * len(data), [1] * len(data)
    for start, stop, axis, step in zip(begin, end, axes, strides):
        dimension = axis % len(data)
        begins[dimension], _, steps[dimension] = slice(start, stop, step).indices(data[dimension])
    return begins, steps
