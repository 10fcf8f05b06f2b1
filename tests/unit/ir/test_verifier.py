"""Malformed modules are named as such."""

import pytest

from relaybuild.errors import InternalError
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
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.types import GlobalTypeVar, RefType, TypeCall, TypeVar, scalar_type
from relaybuild.ir.verifier import verify_module


def test_well_formed() -> None:
    text = """
    def @main(%x: int32) -> int32 {
      let %f = fn (%n: int32) -> int32 { if (%n < 1) { %x } else { %f(%n - 1) } };
      let %a = %f(%x);
      @main(%a)
    }
    """
    verify_module(parse(text), "typed")


x, y = var("x", ()), Var("y")


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (y, "'%y' is not bound"),
        (Call(GlobalVar("g"), []), "'@g' is not defined"),
        (Tuple([Let(y, x, y), y]), "'%y' is used out of its scope"),
        (Tuple([Let(y, x, y), Let(y, x, y)]), "'%y' is bound twice"),
        (Let(y, y, x), "'%y' is used out of its scope"),
        (If(const(True), Let(y, x, y), y), "'%y' is used out of its scope"),
    ],
)
def test_faults(body: Expr, fault: str) -> None:
    with pytest.raises(InternalError) as caught:
        verify_module(IRModule({"main": Function([x], body)}))
    assert str(caught.value).splitlines()[1] == f"  '@main': {fault}"


def _faults(body: Expr, *definitions: TypeData) -> list[str]:
    """What is wrong with a function of one parameter `x`."""
    try:
        verify_module(IRModule({"main": Function([x], body)}, None, definitions))
    except InternalError as error:
        return [line.split(": ", 1)[1] for line in str(error).splitlines()[1:]]
    return []


def _list() -> tuple[TypeData, Constructor, Constructor]:
    header, a = GlobalTypeVar("List"), TypeVar("A")
    cons, nil = Constructor("Cons", [a, TypeCall(header, (a,))], header), Constructor("Nil", [], header)
    return TypeData(header, [a], [cons, nil]), cons, nil


def test_a_variable_is_bound_by_one_let() -> None:
    """WF01: a variable bound by two lets is not well-formed."""
    v, w = Var("v"), Var("v")
    assert _faults(Let(v, x, Let(v, x, v))) == ["'%v' is bound twice"]
    assert _faults(Let(v, x, Let(w, x, Tuple([v, w])))) == []


def test_a_variable_is_bound_once_in_the_fields_of_a_tuple() -> None:
    """WF02: a variable bound in two fields of a tuple is not well-formed; a shared let is."""
    v = Var("v")
    let = Let(v, x, v)
    assert _faults(Tuple([let, Let(v, x, v)])) == ["'%v' is bound twice"]
    assert _faults(Tuple([let, let])) == []


def test_a_variable_is_bound_once_under_a_projection() -> None:
    """WF03: a variable bound twice under a projection is not well-formed."""
    v = Var("v")
    assert _faults(TupleGetItem(Tuple([Let(v, x, v), Let(v, x, v)]), 0)) == ["'%v' is bound twice"]


def test_a_variable_is_bound_by_one_pattern() -> None:
    """WF04: a variable bound twice by patterns, or by a pattern and something else, is not well-formed."""
    data, cons, nil = _list()
    value = Call(nil, [])
    h, r = Var("h"), Var("r")

    def clause(first: Var, second: Var, body: Expr) -> Clause:
        return Clause(PatternConstructor(cons, (PatternVar(first), PatternVar(second))), body)

    assert _faults(Match(value, [clause(h, r, h)]), data) == []
    assert _faults(Match(value, [clause(h, h, h)]), data) == ["'%h' is bound twice"]
    assert _faults(Match(value, [clause(h, r, h), clause(h, Var("s"), h)]), data)[0] == "'%h' is bound twice"
    assert _faults(Let(h, x, Match(value, [clause(h, r, r)])), data) == ["'%h' is bound twice"]
    assert _faults(Match(value, [clause(h, x, h)]), data) == ["'%x' is bound twice"]


def test_a_patterns_variables_are_bound_in_its_clause_alone() -> None:
    data, cons, nil = _list()
    h = Var("h")
    clause = Clause(PatternConstructor(cons, (PatternVar(h), PatternWildcard())), h)
    other = Clause(PatternConstructor(nil), h)
    assert _faults(Match(Call(nil, []), [clause, other]), data) == ["'%h' is used out of its scope"]
    assert _faults(Match(h, [clause]), data) == ["'%h' is used out of its scope"]


def test_a_closures_parameter_is_bound_in_its_body_alone() -> None:
    p = Var("p")
    assert _faults(Tuple([Function([p], p), p])) == ["'%p' is used out of its scope"]
    assert _faults(Function([p, p], p)) == ["'%p' is bound twice"]


def test_constructors_and_patterns_fit_their_definitions() -> None:
    data, cons, nil = _list()
    assert _faults(Call(nil, [])) == ["constructor 'Nil' of type 'List' is not defined"]
    snoc = Constructor("Snoc", [], data.header)
    assert _faults(Call(snoc, []), data) == ["constructor 'Snoc' of type 'List' is not defined"]
    wide = Constructor("Cons", [scalar_type("int8")], data.header)
    assert _faults(Call(wide, [x]), data) == ["constructor 'Cons' has other fields than its definition"]
    short = Clause(PatternConstructor(cons, ()), x)
    assert _faults(Match(Call(nil, []), [short]), data) == ["the pattern 'Cons' has 0 fields, expected 2"]
    unknown = Clause(PatternTuple((PatternConstructor(snoc),)), x)
    assert _faults(Match(Call(nil, []), [unknown]), data) == ["constructor 'Snoc' of type 'List' is not defined"]


def test_types_that_are_written_are_defined() -> None:
    data, _, _ = _list()
    missing = Var("v", TypeCall(GlobalTypeVar("Set"), (scalar_type("int8"),)))
    assert _faults(Let(missing, x, x), data) == ["type 'Set' is not defined"]
    bare = Function([], x, RefType(TypeCall(data.header)))
    assert _faults(bare, data) == ["type List has 0 arguments, expected 1"]
    header = GlobalTypeVar("Box")
    box = TypeData(header, [], [Constructor("Box", [TypeCall(GlobalTypeVar("Set"))], header)])
    with pytest.raises(InternalError, match="type 'Box': type 'Set' is not defined"):
        verify_module(IRModule({}, None, [box]))


def test_fields_that_are_not_there() -> None:
    assert _faults(TupleGetItem(Var("x"), -1))[1:] == ["field -1 of a tuple of unknown length"]
    assert _faults(TupleGetItem(Tuple([Var("q")]), 1))[1:] == ["field 1 of a tuple of 1 fields"]


def test_missing_types() -> None:
    verify_module(IRModule({"main": Function([y], y)}))
    with pytest.raises(InternalError, match="a Var has no type"):
        verify_module(IRModule({"main": Function([y], y)}), "typed")
