"""Definitions of algebraic data types, their constructors, and matches as nodes."""

import pytest

from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.adt import (
    UNTAGGED,
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
    subpatterns,
)
from relaybuild.ir.expr import Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import FuncType, GlobalTypeVar, TupleType, TypeCall, TypeVar, scalar_type
from relaybuild.ir.visitor import free_vars, rewrite

A = TypeVar("A")
LIST = GlobalTypeVar("List")
INT = scalar_type("int32")


def list_definition() -> TypeData:
    return TypeData(LIST, [A], [Constructor("Cons", [A, TypeCall(LIST, (A,))], LIST), Constructor("Nil", [], LIST)])


def test_constructors_are_functions_of_their_fields() -> None:
    cons, nil = list_definition().constructors
    assert cons.checked_type == FuncType((A, TypeCall(LIST, (A,))), TypeCall(LIST, (A,)), (A,))
    assert str(nil.checked_type) == "fn[A]() -> List[A]"


def test_tags_survive_lookup() -> None:
    """CT01: a constructor is found by its tag and by its name."""
    mod = IRModule(type_definitions=[list_definition()])
    for name in ("Cons", "Nil"):
        constructor = mod.get_constructor("List", name)
        assert mod.constructor_of_tag(constructor.tag) is constructor
    with pytest.raises(UserError, match="no constructor of the tag -1"):
        mod.constructor_of_tag(UNTAGGED)


def test_tags_are_consecutive_in_a_type_and_differ_between_types() -> None:
    """CT02: tags tell apart the constructors of all types."""
    names = [f"C{index}" for index in range(5)]
    definitions = [
        TypeData(header, [], [Constructor(name, [], header) for name in names])
        for header in map(GlobalTypeVar, ("One", "Two", "Three"))
    ]
    tags = [[each.tag for each in data.constructors] for data in definitions]
    assert all(row == list(range(row[0], row[0] + 5)) for row in tags)
    assert len({tag for row in tags for tag in row}) == 15


def test_a_tag_that_is_given_stays() -> None:
    header = GlobalTypeVar("T")
    given = Constructor("C", [], header, tag=7)
    assert TypeData(header, [], [given]).constructors[0].tag == 7


def test_constructors_are_compared_by_their_names() -> None:
    assert list_definition().constructors[0] == list_definition().constructors[0]
    assert Constructor("C", [], GlobalTypeVar("A")) != Constructor("C", [], GlobalTypeVar("B"))
    assert len({*list_definition().constructors, *list_definition().constructors}) == 2


def test_faulty_definitions() -> None:
    with pytest.raises(UserError, match="type 'List' has two constructors 'Nil'"):
        TypeData(LIST, [], [Constructor("Nil", [], LIST), Constructor("Nil", [], LIST)])
    with pytest.raises(UserError, match="constructor 'C' belongs to type 'T', not to 'List'"):
        TypeData(LIST, [], [Constructor("C", [], GlobalTypeVar("T"))])
    shared = list_definition().constructors[1]
    with pytest.raises(TypeCheckError, match="cannot become"):
        TypeData(LIST, [A, TypeVar("B")], [shared])


def test_definitions_of_a_module() -> None:
    data = list_definition()
    mod = IRModule({}, {"a": 1}, {"List": data})
    assert mod.get_type("List") is mod.get_type(LIST) is data
    assert mod.with_functions({}).type_definitions == {"List": data}
    assert mod.with_attrs({}).get_type("List") is data
    other = TypeData(GlobalTypeVar("Other"))
    assert list(mod.with_type_definition(other).type_definitions) == ["List", "Other"]
    with pytest.raises(UserError, match="no type 'Tree'; it has List"):
        mod.get_type("Tree")
    with pytest.raises(UserError, match="type 'List' has no constructor 'Snoc'; it has Cons, Nil"):
        mod.get_constructor("List", "Snoc")
    with pytest.raises(UserError, match="type 'List' is defined twice"):
        IRModule({}, None, [data, list_definition()])
    header = GlobalTypeVar("Maybe")
    with pytest.raises(UserError, match="constructor 'Nil' is defined by types 'List' and 'Maybe'"):
        IRModule({}, None, [data, TypeData(header, [], [Constructor("Nil", [], header)])])


def test_a_match_binds_the_variables_of_its_patterns() -> None:
    cons, nil = list_definition().constructors
    head, rest, pair, unused = Var("h"), Var("r"), Var("p"), var("u", INT)
    data = var("d", TypeCall(LIST, (INT,)))
    pattern = PatternTuple((PatternConstructor(cons, (PatternVar(head), PatternVar(rest))), PatternVar(pair)))
    match = Match(data, [Clause(pattern, head), Clause(PatternWildcard(), unused)])
    assert match.binders() == (head, rest, pair)
    assert free_vars(match) == [data, unused]
    assert [type(each).__name__[7:] for each in subpatterns(pattern)] == ["Tuple", "Constructor", "Var", "Var", "Var"]
    assert nil.inputs == ()


def test_matches_are_rebuilt_over_other_parts() -> None:
    cons, _ = list_definition().constructors
    head, other = Var("h"), Var("i")
    clause = Clause(PatternConstructor(cons, (PatternVar(head), PatternWildcard())), head)
    match = Match(var("d"), [clause], complete=False)
    assert match.with_children(match.children()) is match
    assert match.with_binders([head]) is match
    renamed = match.with_binders([other])
    assert renamed.binders() == (other,)
    assert not renamed.complete
    changed = rewrite(match, lambda node: const(1) if node is head else node)
    assert isinstance(changed, Match)
    assert changed.clauses[0].pattern is clause.pattern
    assert changed.clauses[0].body.checked_type == INT


def test_the_type_of_a_match_whose_clauses_agree() -> None:
    wild = PatternWildcard()
    assert Match(const(1), [Clause(wild, const(1)), Clause(wild, const(2))]).checked_type == INT
    assert not Match(const(1), [Clause(wild, const(1)), Clause(wild, const(2.0))]).has_type
    assert not Match(const(1), []).has_type
    assert TupleType(()) != INT
