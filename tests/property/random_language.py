"""Random well-typed programs over the whole language, with arguments to run them on; knows nothing of the properties.

Every construct occurs: lets, tuples, branches, closures, functions as arguments and results, recursion, several and
polymorphic functions, algebraic data types, matches, references, shared nodes. Every program ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from relaybuild.ir.adt import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from relaybuild.ir.expr import (
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
)
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import (
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)

Array = np.ndarray[Any, np.dtype[Any]]
Draw = Callable[[Any], Any]

VECTOR = TensorType((3,), "float32")
INT = TensorType((), "int32")
BOOL = TensorType((), "bool")
UNIT = TupleType(())
A, B = TypeVar("A"), TypeVar("B")
_LIST, _EITHER = GlobalTypeVar("List"), GlobalTypeVar("Either")
CONS = Constructor("Cons", [A, TypeCall(_LIST, (A,))], _LIST)
NIL = Constructor("Nil", [], _LIST)
LEFT, RIGHT = Constructor("Left", [A], _EITHER), Constructor("Right", [B], _EITHER)
TYPES = {
    "List": TypeData(_LIST, [A], [CONS, NIL]),
    "Either": TypeData(_EITHER, [A, B], [LEFT, RIGHT]),
}
VECTORS = TypeCall(_LIST, (VECTOR,))
CHOICE = TypeCall(_EITHER, (VECTOR, INT))
PAIR = TupleType((VECTOR, INT))
STEP = FuncType((VECTOR,), VECTOR)
KINDS: tuple[Type, ...] = (VECTOR, INT, BOOL, PAIR, VECTORS, CHOICE, STEP)
NAMES = st.sampled_from(["x", "y", "x1", "a.b", "1", "", 'q"', "let"])


def list_of(kind: Type) -> TypeCall:
    return TypeCall(_LIST, (kind,))


def prelude() -> dict[str, Function]:
    """Polymorphic functions that the programs call: identity, length, map, and a loop that runs a closure n times."""
    a, xs = Var("a", A), Var("xs", list_of(A))
    identity = Function([a], a, A, [A])
    rest, head = Var("rest"), Var("head")
    one = const(1, "int32")
    longer = call_op("add", [one, Call(GlobalVar("length"), [rest])])
    length = Function(
        [xs],
        Match(
            xs,
            [
                Clause(PatternConstructor(CONS, (PatternWildcard(), PatternVar(rest))), longer),
                Clause(PatternConstructor(NIL), const(0, "int32")),
            ],
        ),
        INT,
        [A],
    )
    function, ys, tail = Var("f", FuncType((A,), B)), Var("ys", list_of(A)), Var("tail")
    mapped = Call(CONS, [Call(function, [head]), Call(GlobalVar("map"), [function, tail])])
    mapping = Function(
        [function, ys],
        Match(
            ys,
            [
                Clause(PatternConstructor(NIL), Call(NIL, [])),
                Clause(PatternConstructor(CONS, (PatternVar(head), PatternVar(tail))), mapped),
            ],
        ),
        list_of(B),
        [A, B],
    )
    step, count, value = Var("step", FuncType((A,), A)), Var("n", INT), Var("value", A)
    again = Call(GlobalVar("iterate"), [step, call_op("subtract", [count, one]), Call(step, [value])])
    done = call_op("less", [count, one])
    iterate = Function([step, count, value], If(done, value, again), A, [A])
    return {"identity": identity, "length": length, "map": mapping, "iterate": iterate}


class Programs:
    """Grows one function's body; `scope` holds what is bound around, with its type."""

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
        ways = [self._made, self._let, self._branch, self._called, self._projected, self._matched, self._through_ref]
        made = self.draw(st.sampled_from([self._made, *ways]))(kind, depth - 1)
        if not _has_effect(made) and self.draw(st.booleans()):
            self.scope.append((made, kind))
        return made

    def inner(self, *bound: tuple[Expr, Type]) -> Programs:
        return Programs(self.draw, [*self.scope, *bound])

    def _smallest(self, kind: Type) -> Expr:
        if kind == STEP:
            param = Var(self.draw(NAMES), VECTOR)
            return Function([param], call_op("negative", [param]))
        leaves: dict[Type, Callable[[], Expr]] = {
            VECTOR: lambda: const(np.asarray([0.5, -1.0, 2.0], "float32")),
            INT: lambda: const(self.draw(st.integers(0, 3)), "int32"),
            BOOL: lambda: const(self.draw(st.booleans())),
            PAIR: lambda: Tuple([self._smallest(VECTOR), self._smallest(INT)]),
            VECTORS: lambda: _declared(VECTORS, Call(NIL, [])),
            CHOICE: lambda: _declared(CHOICE, Call(RIGHT, [self._smallest(INT)])),
        }
        return leaves[kind]()

    def _made(self, kind: Type, depth: int) -> Expr:
        """By what makes values of the type."""
        if kind == VECTOR:
            name = self.draw(st.sampled_from(["add", "multiply", "maximum", "subtract"]))
            return call_op("tanh", [call_op(name, [self.of(VECTOR, depth), self.of(VECTOR, depth)])])
        if kind == INT:
            measured = Call(GlobalVar("length"), [self.of(VECTORS, depth)])
            return call_op("minimum", [self.draw(st.sampled_from([measured, self.of(INT, depth)])), const(3, "int32")])
        if kind == BOOL:
            return call_op("less", [self.of(INT, depth), self.of(INT, depth)])
        if kind == PAIR:
            return Tuple([self.of(VECTOR, depth), self.of(INT, depth)])
        if kind == VECTORS:
            if self.draw(st.booleans()):
                return Call(GlobalVar("map"), [self.of(STEP, depth), self.of(VECTORS, depth)])
            return Call(CONS, [self.of(VECTOR, depth), self.of(VECTORS, depth)])
        if kind == CHOICE:
            left = self.draw(st.booleans())
            chosen = Call(LEFT, [self.of(VECTOR, depth)]) if left else Call(RIGHT, [self.of(INT, depth)])
            return _declared(CHOICE, chosen)
        assert kind == STEP
        param = Var(self.draw(NAMES), VECTOR)
        return Function([param], self.inner((param, VECTOR)).of(VECTOR, depth))

    def _let(self, kind: Type, depth: int) -> Expr:
        bound: Type = self.draw(st.sampled_from(KINDS))
        name = Var(self.draw(NAMES), bound if self.draw(st.booleans()) else None)
        value = self.inner().of(bound, depth)
        return Let(name, value, self.inner((name, bound)).of(kind, depth))

    def _branch(self, kind: Type, depth: int) -> Expr:
        return If(self.of(BOOL, depth), self.inner().of(kind, depth), self.inner().of(kind, depth))

    def _called(self, kind: Type, depth: int) -> Expr:
        """The result of a closure, an anonymous function, or a global one."""
        ways: list[Callable[[], Expr]] = [
            lambda: Call(GlobalVar("identity"), [self.of(kind, depth)]),
            lambda: self._applied(kind, depth),
        ]
        if kind == VECTOR:
            ways.append(lambda: Call(self.of(STEP, depth), [self.of(VECTOR, depth)]))
            ways.append(lambda: Call(GlobalVar("iterate"), [self.of(STEP, 1), self.of(INT, 1), self.of(VECTOR, depth)]))
        made: Expr = self.draw(st.sampled_from(ways))()
        return made

    def _applied(self, kind: Type, depth: int) -> Expr:
        given: Type = self.draw(st.sampled_from(KINDS))
        param = Var(self.draw(NAMES), given)
        return Call(Function([param], self.inner((param, given)).of(kind, depth)), [self.of(given, depth)])

    def _projected(self, kind: Type, depth: int) -> Expr:
        if kind in PAIR.fields:
            return TupleGetItem(self.of(PAIR, depth), PAIR.fields.index(kind))
        return TupleGetItem(Tuple([self.of(INT, depth), self.of(kind, depth)]), 1)

    def _matched(self, kind: Type, depth: int) -> Expr:
        x, y = Var(self.draw(NAMES)), Var(self.draw(NAMES))
        if self.draw(st.booleans()):
            clauses = [
                Clause(
                    PatternConstructor(CONS, (PatternVar(x), PatternVar(y))),
                    self.inner((x, VECTOR), (y, VECTORS)).of(kind, depth),
                ),
                Clause(PatternWildcard(), self.inner().of(kind, depth)),
            ]
            return Match(self.of(VECTORS, depth), clauses)
        pair = PatternTuple((PatternConstructor(LEFT, (PatternVar(x),)), PatternWildcard()))
        other = PatternTuple((PatternConstructor(RIGHT, (PatternWildcard(),)), PatternVar(y)))
        clauses = [
            Clause(pair, self.inner((x, VECTOR)).of(kind, depth)),
            Clause(other, self.inner((y, INT)).of(kind, depth)),
        ]
        return Match(Tuple([self.of(CHOICE, depth), self.of(INT, depth)]), clauses, self.draw(st.booleans()))

    def _through_ref(self, kind: Type, depth: int) -> Expr:
        """A cell made, written and read, in the order that lets fix."""
        cell, nothing, held = Var("r", RefType(kind)), Var("_", UNIT), Var(self.draw(NAMES), kind)
        after = Let(held, RefRead(cell), self.inner((held, kind)).of(kind, depth))
        written = Let(nothing, RefWrite(cell, self.inner().of(kind, depth)), after)
        return Let(cell, RefCreate(self.of(kind, depth)), written if self.draw(st.booleans()) else after)


def _declared(kind: Type, value: Expr) -> Expr:
    """The value under a variable that says its type, where its constructor alone does not."""
    name = Var("declared", kind)
    return Let(name, value, name)


def _has_effect(root: Expr) -> bool:
    from relaybuild.ir.visitor import post_order

    return any(isinstance(node, (RefCreate, RefRead, RefWrite)) for node in post_order(root))


@st.composite
def language_modules(draw: Draw) -> IRModule:
    """A typed module whose main takes two vectors and an int, and returns a vector and an int."""
    params = [Var(draw(NAMES), VECTOR), Var(draw(NAMES), VECTOR), Var(draw(NAMES), INT)]
    scope: list[tuple[Expr, Type]] = [(param, kind) for param, kind in zip(params, (VECTOR, VECTOR, INT))]
    body = Tuple([Programs(draw, scope).of(VECTOR, 4), Programs(draw, list(scope[:3])).of(INT, 3)])
    return infer_types(IRModule({**prelude(), "main": Function(params, body)}, type_definitions=TYPES))


def language_arguments() -> tuple[Array, Array, Array]:
    """Arguments for such a main."""
    return np.asarray([0.25, -1.5, 3.0], "float32"), np.asarray([1.0, 0.0, -0.5], "float32"), np.asarray(2, "int32")
