"""The values of a program that is evaluated with its tensors left open; knows no procedure and no region.

A value is an expression that will be a tensor, or a tuple, a function in its activation, or a choice between functions
that awaits a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TypeAlias

from relaybuild.contrib.host.function_code import FunctionCode
from relaybuild.dataclass import dataclass
from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Expr, Function, Tuple, Var
from relaybuild.ir.types import FuncType, TupleType, Type

MOST_CHOICES = 100
"""Conditionals that choose one function, at most: every call of it becomes as many."""


@dataclass(frozen=True, eq=False)
class Product:
    """A tuple of values, and an expression of it where there is one."""

    fields: tuple[Value, ...]
    expr: Expr | None = None


@dataclass(frozen=True, eq=False)
class Closure:
    """A function, and the activation in which it was made."""

    function: Function
    env: Env


@dataclass(frozen=True, eq=False)
class Choice:
    """A function that a conditional chose: the first where `cond` holds, else the second."""

    cond: Expr
    functions: tuple[Value, Value]
    depth: int = 1


Value: TypeAlias = "Expr | Product | Closure | Choice"


@dataclass(eq=False)
class Env:
    """One activation of a function: what its nodes and variables are, by id, and the activation around it.

    `owner` is whoever makes the code whose expressions these values are made of.
    """

    code: FunctionCode
    owner: object
    parent: Env | None = None
    values: dict[int, Value] = field(default_factory=dict)

    def find(self, node: Expr) -> tuple[Value, object] | None:
        """The value of a node here or around, and its owner; None where it has none yet."""
        env: Env | None = self
        while env is not None:
            found = env.values.get(id(node))
            if found is not None:
                return found, env.owner
            env = env.parent
        return None


def product(fields: list[Value], expr: Expr | None) -> Product:
    """A tuple; `expr` stays where it is a tuple of just these."""
    same = isinstance(expr, Tuple) and all(new is old for new, old in zip(fields, expr.fields))
    return Product(tuple(fields), expr if same else None)


def unpacked(expr: Expr) -> Value:
    """An expression by its tensors."""
    return Product(tuple(unpacked(item) for item in expr.fields)) if isinstance(expr, Tuple) else expr


def mapped(value: Value, tensor: Callable[[Expr], Expr]) -> Value:
    """The value with other tensors; itself where they are the same."""
    if isinstance(value, Closure):
        return value
    if isinstance(value, Expr):
        return tensor(value)
    inner = value.fields if isinstance(value, Product) else value.functions
    fields = [mapped(item, tensor) for item in inner]
    same = all(new is old for new, old in zip(fields, inner))
    if isinstance(value, Product):
        return value if same else Product(tuple(fields))
    cond = tensor(value.cond)
    return value if same and cond is value.cond else Choice(cond, (fields[0], fields[1]), value.depth)


def tensors(value: Value) -> Iterator[Expr]:
    """The tensors of a value, in order."""
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Product):
            stack.extend(reversed(item.fields))
        elif isinstance(item, Choice):
            stack.extend((item.functions[1], item.functions[0], item.cond))
        elif isinstance(item, Expr):
            yield item


def closures(value: Value) -> Iterator[Closure]:
    """The functions of a value, those that may be chosen among them."""
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Product):
            stack.extend(reversed(item.fields))
        elif isinstance(item, Choice):
            stack.extend(reversed(item.functions))
        elif isinstance(item, Closure):
            yield item


def conditions(value: Value) -> Iterator[Expr]:
    """The tensors of a value that choose its functions."""
    stack: list[Value] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Product):
            stack.extend(reversed(item.fields))
        elif isinstance(item, Choice):
            yield item.cond
            stack.extend(reversed(item.functions))


def identity(closure: Closure) -> tuple[int, int]:
    """What tells a function from others."""
    return id(closure.function), id(closure.env)


def form(value: Value) -> object:
    """What code over a value depends on: its functions, and its tensors' types."""
    if isinstance(value, Closure):
        return identity(value)
    if isinstance(value, Product):
        return tuple(form(item) for item in value.fields)
    if isinstance(value, Choice):
        return "if", form(value.functions[0]), form(value.functions[1])
    return value.checked_type


def type_of(value: Value) -> Type:
    """The type of a value, of a function as it was declared."""
    if isinstance(value, Product):
        return TupleType(tuple(type_of(item) for item in value.fields))
    if isinstance(value, Choice):
        return type_of(value.functions[0])
    return value.function.checked_type if isinstance(value, Closure) else value.checked_type


def has_function(kind: Type) -> bool:
    """Whether a function is, or is in, a value of a type."""
    stack = [kind]
    while stack:
        item = stack.pop()
        if isinstance(item, FuncType):
            return True
        stack.extend(item.fields if isinstance(item, TupleType) else ())
    return False


Merged: TypeAlias = "tuple[Var, Expr | None, Expr | None]"
"""A result of a conditional and where each branch has it; None where whoever took that branch never asks."""


def merge(first: Value, second: Value, cond: Expr, at: Expr, results: list[Merged]) -> Value:
    """One value for those of two branches; its tensors are appended to `results`, each with both sources.

    Raises UnsupportedError where the branches give tensors of different types, which unknown dimensions allow, and for
    functions that too many conditionals choose.
    """
    if first is second:
        return first
    if isinstance(first, Product) and isinstance(second, Product):
        return Product(tuple(merge(a, b, cond, at, results) for a, b in zip(first.fields, second.fields)))
    if isinstance(first, Expr) and isinstance(second, Expr):
        if first.tensor_type != second.tensor_type:
            raise UnsupportedError(
                f"the branches of this conditional give {first.tensor_type} and {second.tensor_type}, expected tensors "
                "of one shape",
                where=str(at.span) if at.span else None,
            )
        results.append((Var("if", first.tensor_type, at.span), first, second))
        return results[-1][0]
    if isinstance(first, Closure) and isinstance(second, Closure) and identity(first) == identity(second):
        return first
    depth = 1 + max(value.depth if isinstance(value, Choice) else 0 for value in (first, second))
    if depth > MOST_CHOICES:
        raise UnsupportedError(
            f"more than {MOST_CHOICES} conditionals, one after the other, choose this function; let them choose "
            "between its results",
            where=str(at.span) if at.span else None,
        )
    return Choice(cond, (first, second), depth)
