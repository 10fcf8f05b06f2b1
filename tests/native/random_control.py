"""Random well-typed programs of branches, lets, tuples, closures, recursion and several functions, which all end.

Knows nothing of what is compiled. Nodes are shared freely: between branches, closures and what stands around them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, const
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import FuncType, TensorType, TupleType, Type, TypeVar

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Callable[[Any], Any]

VECTOR = TensorType((5,), "float32")
INT = TensorType((), "int32")
BOOL = TensorType((), "bool")
PAIR = TupleType((VECTOR, INT))
NEST = TupleType((TupleType((INT, VECTOR)), BOOL))
STEP = FuncType((VECTOR,), VECTOR)
WAYS = FuncType((PAIR, INT), PAIR)
FIRST_ORDER: tuple[Type, ...] = (VECTOR, INT, BOOL, PAIR, NEST)
KINDS: tuple[Type, ...] = (*FIRST_ORDER, STEP, WAYS)
A = TypeVar("A")


def prelude() -> dict[str, Function]:
    """Functions that the programs call: identity and twice of every type, loops that run a closure n times, one by a
    call at the end and one by a call inside an expression, and two that call each other."""
    a, f, x = Var("a", A), Var("f", FuncType((A,), A)), Var("x", A)
    step, n, value = Var("step", FuncType((A,), A)), Var("n", INT), Var("value", A)
    grow, count, start = Var("grow", STEP), Var("count", INT), Var("start", VECTOR)
    one = const(1, "int32")
    fewer = call_op("subtract", [n, one])
    again = Call(GlobalVar("iterate"), [step, fewer, Call(step, [value])])
    inner = Call(GlobalVar("fold"), [grow, call_op("subtract", [count, one]), start])
    folded = call_op("add", [Call(grow, [inner]), inner])
    m, k = Var("m", INT), Var("k", INT)
    odd = Call(GlobalVar("odd"), [call_op("subtract", [m, one])])
    even = Call(GlobalVar("even"), [call_op("subtract", [k, one])])
    return {
        "identity": Function([a], a, A, [A]),
        "twice": Function([f, x], Call(f, [Call(f, [x])]), A, [A]),
        "iterate": Function([step, n, value], If(call_op("less", [n, one]), value, again), A, [A]),
        "fold": Function([grow, count, start], If(call_op("less", [count, one]), start, folded), VECTOR),
        "even": Function([m], If(call_op("less", [m, one]), const(True), odd), BOOL),
        "odd": Function([k], If(call_op("less", [k, one]), const(False), even), BOOL),
    }


class Programs:
    """Grows one function's body; `scope` holds what is bound or computed around, with its type."""

    def __init__(self, draw: Draw, scope: list[tuple[Expr, Type]]) -> None:
        self.draw = draw
        self.scope = scope

    def of(self, kind: Type, depth: int) -> Expr:
        """An expression of the type, nested at most so deep."""
        known = [value for value, found in self.scope if found == kind]
        if known and self.draw(st.integers(0, 2)) == 0:
            picked: Expr = self.draw(st.sampled_from(known))
            return picked
        if depth <= 0:
            return known[-1] if known else self._smallest(kind)
        ways = [self._made, self._made, self._let, self._called, self._projected, self._branch, self._branch]
        made: Expr = self.draw(st.sampled_from(ways))(kind, depth - 1)
        if self.draw(st.booleans()):
            self.scope.append((made, kind))
        return made

    def inner(self, *bound: tuple[Expr, Type]) -> Programs:
        return Programs(self.draw, [*self.scope, *bound])

    def _smallest(self, kind: Type) -> Expr:
        if isinstance(kind, TupleType):
            return Tuple([self._smallest(item) for item in kind.fields])
        if kind == STEP:
            x = Var("x", VECTOR)
            return Function([x], call_op("negative", [x]))
        if kind == WAYS:
            pair, n = Var("pair", PAIR), Var("n", INT)
            return Function([pair, n], Tuple([TupleGetItem(pair, 0), n]))
        if kind == VECTOR:
            return const(np.asarray([0.5, -1.0, 2.0, 0.0, 1.0], "float32"))
        return const(self.draw(st.integers(0, 3)), "int32") if kind == INT else const(self.draw(st.booleans()))

    def _made(self, kind: Type, depth: int) -> Expr:
        """By what makes values of the type."""
        if isinstance(kind, TupleType):
            return Tuple([self.of(item, depth) for item in kind.fields])
        if kind == STEP:
            x = Var("x", VECTOR)
            return Function([x], self.inner((x, VECTOR)).of(VECTOR, depth))
        if kind == WAYS:
            pair, n = Var("pair", PAIR), Var("n", INT)
            return Function([pair, n], self.inner((pair, PAIR), (n, INT)).of(PAIR, depth))
        if kind == VECTOR:
            name = self.draw(st.sampled_from(["add", "multiply", "maximum", "subtract"]))
            return call_op("tanh", [call_op(name, [self.of(VECTOR, depth), self.of(VECTOR, depth)])])
        if kind == INT:
            total = call_op("add", [self.of(INT, depth), self.of(INT, depth)])
            return call_op("minimum", [total, const(4, "int32")])
        if self.draw(st.booleans()):
            return call_op("less", [self.of(INT, depth), self.of(INT, depth)])
        return call_op("less", [call_op("sum", [self.of(VECTOR, depth)]), const(0.25, "float32")])

    def _let(self, kind: Type, depth: int) -> Expr:
        bound: Type = self.draw(st.sampled_from(KINDS))
        name = Var("v", bound)
        return Let(name, self.inner().of(bound, depth), self.inner((name, bound)).of(kind, depth))

    def _branch(self, kind: Type, depth: int) -> Expr:
        return If(self.of(BOOL, depth), self.inner().of(kind, depth), self.inner().of(kind, depth))

    def _called(self, kind: Type, depth: int) -> Expr:
        """The result of a closure, an anonymous function, or a global one."""
        ways: list[Callable[[], Expr]] = [
            lambda: Call(GlobalVar("identity"), [self.of(kind, depth)]),
            lambda: self._applied(kind, depth),
        ]
        if kind in FIRST_ORDER:
            ways.append(lambda: Call(GlobalVar("twice"), [self._step(kind, depth), self.of(kind, depth)]))
            ways.append(lambda: self._looped(kind, depth))
        if kind == VECTOR:
            ways.append(lambda: Call(self.of(STEP, depth), [self.of(VECTOR, depth)]))
            ways.append(lambda: Call(GlobalVar("fold"), [self.of(STEP, 1), self.of(INT, 1), self.of(VECTOR, depth)]))
        if kind == PAIR:
            ways.append(lambda: Call(self.of(WAYS, depth), [self.of(PAIR, depth), self.of(INT, depth)]))
        if kind == BOOL:
            name = self.draw(st.sampled_from(["even", "odd"]))
            ways.append(lambda: Call(GlobalVar(name), [self.of(INT, depth)]))
        made: Expr = self.draw(st.sampled_from(ways))()
        return made

    def _step(self, kind: Type, depth: int) -> Expr:
        x = Var("x", kind)
        return Function([x], self.inner((x, kind)).of(kind, depth))

    def _looped(self, kind: Type, depth: int) -> Expr:
        return Call(GlobalVar("iterate"), [self._step(kind, 1), self.of(INT, 1), self.of(kind, depth)])

    def _applied(self, kind: Type, depth: int) -> Expr:
        given: Type = self.draw(st.sampled_from(KINDS))
        param = Var("p", given)
        return Call(Function([param], self.inner((param, given)).of(kind, depth)), [self.of(given, depth)])

    def _projected(self, kind: Type, depth: int) -> Expr:
        if kind in PAIR.fields:
            return TupleGetItem(self.of(PAIR, depth), PAIR.fields.index(kind))
        return TupleGetItem(Tuple([self.of(INT, depth), self.of(kind, depth)]), 1)


@st.composite
def control_modules(draw: Draw) -> IRModule:
    """A typed module whose main takes a vector, a pair and an int, and returns a vector, nested tuples and an int."""
    params = [Var("x", VECTOR), Var("y", PAIR), Var("n", INT)]
    scope: list[tuple[Expr, Type]] = [(param, kind) for param, kind in zip(params, (VECTOR, PAIR, INT))]
    program = Programs(draw, scope)
    body = Tuple([program.of(VECTOR, 4), program.of(NEST, 3), program.of(INT, 3)])
    return infer_types(IRModule({**prelude(), "main": Function(params, body)}))


def control_arguments() -> tuple[Array, tuple[Array, Array], Array]:
    """Arguments for such a main."""
    pair = (np.asarray([1.0, 0.0, -0.5, 2.0, 0.125], "float32"), np.asarray(1, "int32"))
    return np.asarray([0.25, -1.5, 3.0, 0.75, -0.25], "float32"), pair, np.asarray(3, "int32")
