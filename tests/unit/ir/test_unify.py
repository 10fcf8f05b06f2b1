"""Unification of types."""

import pytest

from relaybuild.ir.types import (
    ANY,
    Dim,
    FuncType,
    GlobalTypeVar,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    scalar_type,
)
from relaybuild.ir.unify import POISON, Holes, Mode, extent_names

INT, FLOAT = scalar_type("int32"), scalar_type("float32")
A, B = TypeVar("A"), TypeVar("B")
LIST = GlobalTypeVar("List")


def tensor(*shape: int | Dim) -> TensorType:
    return TensorType(shape)


@pytest.mark.parametrize(
    ("wanted", "found", "agree"),
    [
        (INT, INT, True),
        (INT, FLOAT, False),
        (tensor(2), tensor(2, 1), False),
        (TupleType((INT, FLOAT)), TupleType((INT, FLOAT)), True),
        (TupleType((INT,)), TupleType((INT, INT)), False),
        (TupleType((INT,)), INT, False),
        (FuncType((INT,), FLOAT), FuncType((INT,), FLOAT), True),
        (FuncType((INT,), FLOAT), FuncType((INT, INT), FLOAT), False),
        (FuncType((INT,), FLOAT), FuncType((INT,), INT), False),
        (A, A, True),
        (A, B, False),
        (TypeCall(LIST, (INT,)), TypeCall(LIST, (INT,)), True),
        (TypeCall(LIST, (INT,)), TypeCall(GlobalTypeVar("Set"), (INT,)), False),
        (TypeCall(LIST), LIST, True),
        (RefType(INT), RefType(INT), True),
        (RefType(INT), INT, False),
    ],
)
def test_closed_types(wanted: Type, found: Type, agree: bool) -> None:
    assert Holes().unify(wanted, found) is agree
    assert Holes().unify(found, wanted) is agree


@pytest.mark.parametrize(
    ("wanted", "found", "modes"),
    [
        (tensor(ANY), tensor(2), {Mode.ACCEPT, Mode.JOIN}),
        (tensor(2), tensor(ANY), {Mode.JOIN}),
        (tensor(ANY), tensor(ANY), {Mode.ACCEPT, Mode.JOIN, Mode.EXACT}),
        (tensor(2), tensor(3), set()),
        (tensor(Dim("n")), tensor(Dim("n")), {Mode.ACCEPT, Mode.JOIN, Mode.EXACT}),
        (tensor(Dim("n")), tensor(Dim("m")), set()),
        (tensor(Dim("n")), tensor(2), set()),
        (RefType(tensor(ANY)), RefType(tensor(2)), set()),
        (FuncType((tensor(ANY),), INT), FuncType((tensor(2),), INT), {Mode.JOIN}),
        (FuncType((tensor(2),), INT), FuncType((tensor(ANY),), INT), {Mode.ACCEPT, Mode.JOIN}),
    ],
)
def test_extents(wanted: Type, found: Type, modes: set[Mode]) -> None:
    assert {mode for mode in Mode if Holes().unify(wanted, found, mode)} == modes


def test_holes_are_filled_and_wake_what_waits() -> None:
    holes = Holes()
    a, b = holes.fresh(), holes.fresh()
    pair = holes.compose(TupleType((a, b)))
    assert list(holes.unsolved(pair)) == [a, b]
    holes.wait(a, "item")
    assert holes.unify(a, b)
    assert not holes.ready
    assert holes.unify(pair, TupleType((INT, INT)))
    assert list(holes.ready) == ["item"]
    assert holes.resolve(pair) == TupleType((INT, INT))
    assert not holes.any_left
    assert not holes.unify(a, FLOAT)


def test_the_hole_of_the_higher_rank_remains() -> None:
    for first in (True, False):
        holes = Holes()
        low, high = holes.fresh(), holes.fresh(2)
        assert holes.unify(*((low, high) if first else (high, low)))
        assert holes.head(low) is holes.head(high) is high


def test_a_type_does_not_contain_itself() -> None:
    holes = Holes()
    hole = holes.fresh()
    assert not holes.unify(hole, holes.compose(FuncType((hole,), INT)))


def test_poison_agrees_and_spreads() -> None:
    holes = Holes()
    hole = holes.fresh()
    assert holes.unify(TupleType((POISON, INT)), holes.compose(TupleType((FLOAT, hole))))
    assert holes.unify(INT, POISON)
    assert holes.resolve(hole) == INT
    other = holes.fresh()
    holes.poison(holes.compose(TupleType((other, INT))))
    assert holes.head(other) is POISON


def test_polymorphic_functions_are_instantiated() -> None:
    identity = FuncType((A,), A, (A,))
    holes = Holes()
    assert holes.unify(FuncType((INT,), INT), identity)
    assert not holes.unify(FuncType((INT,), FLOAT), identity)
    assert not holes.unify(identity, FuncType((INT,), INT))
    assert holes.unify(identity, FuncType((B,), B, (B,)))
    assert not holes.unify(FuncType((A, B), A, (A, B)), FuncType((A, B), B, (A, B)))
    instance = holes.instantiate(identity)
    assert holes.unify(instance.arg_types[0], INT)
    assert holes.resolve(instance) == FuncType((INT,), INT)


def test_names_of_extents_are_instantiated() -> None:
    n, m, k = Dim("n"), Dim("m"), Dim("k")
    holes = Holes()
    kind = FuncType((tensor(n, n, m),), tensor(m, n, k))
    instance = holes.instantiate(kind, fixed={"m"})
    assert not holes.unify(instance.arg_types[0], tensor(2, 3, m))
    instance = holes.instantiate(kind, fixed={"m"})
    assert holes.unify(instance.arg_types[0], tensor(2, 2, m))
    assert holes.resolve(instance.ret_type) == tensor(m, 2, k)
    unknown = holes.instantiate(kind)
    assert holes.has_open_extents(unknown)
    holes.settle_extents()
    assert holes.resolve(unknown.ret_type) == tensor(ANY, ANY, k)
    assert extent_names(kind) == {"n", "m", "k"}


def test_joined_types_forget_what_differs() -> None:
    holes = Holes()
    assert holes.joined(tensor(2, ANY), tensor(2, 3)) == tensor(2, ANY)
    assert holes.joined(tensor(2, 3), tensor(ANY, 3)) == tensor(ANY, 3)
    assert holes.joined(TupleType((tensor(2), INT)), TupleType((tensor(ANY), INT))) == TupleType((tensor(ANY), INT))
    assert holes.joined(INT, INT) is INT


def test_parameters_of_a_compared_type_do_not_leak_into_holes_outside() -> None:
    """`fn[B](B, _) -> B` has a hole for one type, and `fn[A](A, A) -> A` asks for every one."""
    holes = Holes()
    hole = holes.fresh()
    found = holes.compose(FuncType((B, hole), B, (B,)))
    assert not holes.unify(FuncType((A, A), A, (A,)), found)
    holes = Holes()
    hole = holes.fresh()
    found = holes.compose(FuncType((B, hole), B, (B,)))
    assert holes.unify(FuncType((A, INT), A, (A,)), found)
    assert holes.resolve(hole) == INT


def test_deep_types() -> None:
    """No step depends on the depth of a type."""
    holes = Holes()
    hole = holes.fresh()
    open_type: Type = hole
    closed: Type = tensor(3)
    unknown: Type = tensor(ANY)
    generic: Type = A
    for _ in range(5000):
        open_type, closed = TupleType((open_type,)), TupleType((closed,))
        unknown, generic = TupleType((unknown,)), TupleType((generic,))
    assert holes.note(open_type) is open_type
    assert holes.is_open(open_type)
    assert not holes.has_open_extents(closed)
    assert holes.unify(open_type, closed)
    assert holes.resolve(hole) == tensor(3)
    assert holes.unify(closed, unknown, Mode.JOIN)
    joined = holes.joined(closed, unknown)
    instance = holes.instantiate(FuncType((generic,), generic, (A,)))
    assert holes.unify(instance.arg_types[0], closed)
    for kind, leaf in ((joined, tensor(ANY)), (holes.resolve(instance.ret_type), tensor(3))):
        inner = kind
        for _ in range(5000):
            assert isinstance(inner, TupleType)
            inner = inner.fields[0]
        assert inner == leaf
