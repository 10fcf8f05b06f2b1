"""Which values the clauses of a match leave out."""

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.adt import Match
from relaybuild.ir.exhaustive import uncovered_example
from relaybuild.ir.parser import parse

TYPES = """
type List[A] { Cons(A, List[A]), Nil }
type Pair { Both(int32, int32) }
type Color { Red, Green, Blue }
type Tree { Leaf, Node(Tree, Color, Tree) }
extern type Handle
"""


def missing(kind: str, *patterns: str) -> str | None:
    """What is left out by clauses over a value of a type."""
    clauses = ", ".join(f"{pattern} => 0" for pattern in patterns)
    mod = parse(f"{TYPES}\ndef @main(%v: {kind}) -> int32 {{ match? (%v) {{ {clauses} }} }}")
    match = mod["main"].body
    assert isinstance(match, Match)
    return uncovered_example([clause.pattern for clause in match.clauses], mod.type_definitions)


def test_no_clause_leaves_out_everything() -> None:
    """UM01: an empty match leaves out every value."""
    assert missing("List[int32]") == "_"
    assert missing("Handle") == "_"


@pytest.mark.parametrize("pattern", ["_", "%x"])
def test_wildcards_and_variables_cover_everything(pattern: str) -> None:
    """UM02: a wildcard or a variable covers every type."""
    for kind in ("List[int32]", "int32", "(Color, int32)", "Handle"):
        assert missing(kind, pattern) is None


def test_the_only_constructor_covers_its_type() -> None:
    """UM03: a type of one constructor is covered by it."""
    assert missing("Pair", "Both(_, %y)") is None


def test_a_pattern_more_special_than_its_constructor_does_not_cover() -> None:
    """UM04: a nested pattern leaves out the constructor's other values."""
    assert missing("List[int32]", "Cons(_, Nil)", "Nil") == "Cons(_, Cons(_, _))"


def test_clauses_of_one_constructor_cover_together() -> None:
    """UM05: several clauses of a constructor add up."""
    assert (
        missing("List[int32]", "Cons(_, Nil)", "Cons(_, Cons(_, Nil))", "Cons(_, Cons(_, Cons(_, _)))", "Nil") is None
    )


def test_a_gap_between_two_clauses_is_found() -> None:
    """UM06: what is missing in the middle is named."""
    clauses = ("Nil", "Cons(_, Nil)", "Cons(_, Cons(_, Cons(_, _)))")
    assert missing("List[int32]", *clauses) == "Cons(_, Cons(_, Nil))"


def test_constructors_of_several_types() -> None:
    """UM07: fields of other types are looked into."""
    clauses = ("Leaf", "Node(_, Red, _)", "Node(Leaf, Green, _)", "Node(_, Blue, _)")
    assert missing("Tree", *clauses) == "Node(Node(_, _, _), Green, _)"
    assert missing("Tree", *clauses, "Node(Node(_, _, _), Green, Leaf)") == "Node(Node(_, _, _), Green, Node(_, _, _))"
    assert missing("Tree", *clauses, "Node(_, Green, _)") is None


def test_tuples_are_taken_apart() -> None:
    """UM08: combinations of fields of a tuple are told apart."""
    pair = "(Color, Color)"
    assert missing(pair, "(Red, _)", "(_, Red)") == "(Green, Green)"
    assert missing(pair, "(Red, _)", "(Green, %x)", "(Blue, _)") is None
    assert missing("(Color,)", "(Red,)", "(Green,)") == "(Blue,)"
    assert missing("()", "()") is None


def test_recursive_types_need_no_bound() -> None:
    """UM09: a recursive type is looked into no deeper than it is written."""
    assert missing("Tree", "Node(Leaf, _, Leaf)", "Leaf") == "Node(Leaf, _, Node(_, _, _))"
    assert missing("List[List[int32]]", "Cons(Cons(_, _), _)", "Nil") == "Cons(Nil, _)"


def test_a_constructor_missing_altogether() -> None:
    """UM10: a constructor without a clause is named with its fields."""
    assert missing("Color", "Green", "Red") == "Blue"
    assert missing("List[int32]", "Nil") == "Cons(_, _)"


def test_complete_matches_must_cover_and_partial_ones_need_not() -> None:
    """UM11: inference rejects `match` with a gap, naming it, and accepts `match?`."""
    text = TYPES + "def @main(%v: Color) -> int32 { KIND (%v) { Red => 1, Blue => 2 } }"
    parse(text.replace("KIND", "match?"))
    with pytest.raises(UserError, match=r"no clause of the match fits Green: add one, or write 'match\?'"):
        parse(text.replace("KIND", "match"))


def test_wide_and_deep_patterns() -> None:
    """Neither the width of a tuple, nor the depth of a pattern, nor the number of constructors is bounded."""
    count = 1200
    wide = ", ".join("_" for _ in range(count))
    assert missing("(" + ", ".join(["Color"] * count) + ")", f"({wide})") is None
    assert missing("(" + ", ".join(["Color"] * count) + ")", f"(Red, {wide[3:]})") == f"(Green, {wide[3:]})"
    deep = "Cons(_, " * count
    assert (
        missing("List[int32]", f"{deep}_{')' * count}", "Nil")
        == f"Cons(_, {'Cons(_, ' * (count - 2)}Nil{')' * (count - 1)}"
    )
    names = [f"C{index}" for index in range(count)]
    types = f"type Many {{ {', '.join(names)} }}"
    clauses = ", ".join(f"{name} => 0" for name in names[:-1])
    mod = parse(f"{types} def @main(%v: Many) -> int32 {{ match? (%v) {{ {clauses} }} }}")
    match = mod["main"].body
    assert isinstance(match, Match)
    patterns = [clause.pattern for clause in match.clauses]
    assert uncovered_example(patterns, mod.type_definitions) == names[-1]


def test_columns_that_are_covered_are_not_taken_apart() -> None:
    """Twenty columns, each with a clause of its own: of 3 ** 20 combinations nearly all are never looked at."""
    kind = "(" + ", ".join(["Color"] * 20) + ")"
    rows = [[("Red" if column == row else "_") for column in range(20)] for row in range(20)]
    assert missing(kind, *(f"({', '.join(row)})" for row in rows)) == f"({', '.join(['Green'] * 20)})"
