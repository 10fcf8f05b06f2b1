"""What is said of texts that denote nothing: every mistake once, with its place, in words that say what to do."""

from __future__ import annotations

import sys

import pytest

from relaybuild.ir.parser import ParseError, parse, parse_expr


def message(text: str) -> str:
    with pytest.raises(ParseError) as caught:
        parse(text, "m")
    return str(caught.value)


def lines(text: str) -> list[str]:
    """The messages alone, without lines and carets."""
    return [line for line in message(text).splitlines() if line.startswith("m:")]


def test_a_mistake_has_its_place_its_line_and_a_caret() -> None:
    assert message("def @f(%x: float32) {\n\tlogg(%x)\n}") == (
        "m:2:2: unknown operator 'logg'; the nearest are log\n    \tlogg(%x)\n    \t^"
    )


def test_every_statement_is_read() -> None:
    text = """def @f(%value: float32) {
  let %a = 1 + ;
  %0 = add(%value %a);
  let %b = log(%valu);
  %1 = unknown_op(%b)
  (%a, %b, %0, %1, %c)
}
def @g() { 32768i16 }
"""
    assert lines(text) == [
        "m:2:16: found ';', expected an expression",
        "m:3:19: found '%a', expected ',' or ')' to close the '(' at 3:11",
        "m:4:16: unknown variable '%valu'; did you mean '%value'?",
        "m:5:8: unknown operator 'unknown_op'",
        "m:6:20: unknown variable '%c'",
        "m:8:12: 32768i16 is out of range for int16",
    ]


def test_a_block_inside_a_statement_goes_on_behind_its_mistake() -> None:
    assert lines("def @f() {\n let %g = fn () { 1 +; 2 };\n let %h = %missing;\n 3 }") == [
        "m:2:22: found ';', expected an expression",
        "m:3:11: unknown variable '%missing'",
    ]


def test_a_bracket_that_is_not_closed_is_named() -> None:
    assert lines("def @f() {\n  add((1, 2), 3\n}\ndef @g() { log(%x) }") == [
        "m:3:1: found '}', expected ',' or ')' to close the '(' at 2:6",
        "m:4:16: unknown variable '%x'",
    ]


def test_a_brace_that_is_not_closed_is_named() -> None:
    assert lines("def @f() {\n  1\ndef @g() { 2 }") == [
        "m:3:1: found 'def', expected ';' or '}' to close the '{' at 1:10"
    ]
    assert lines("def @f() {\n  1\n") == [
        "m:3:1: found the end of the text, expected ';' or '}' to close the '{' at 1:10"
    ]


def test_the_next_definition_is_read_after_any_mistake() -> None:
    assert lines("def f() { 1 }\ndef @g( { 2 }\ntype { }\ndef @h() { @nothing() }\nx") == [
        "m:1:5: found 'f', expected a function's name such as '@main'",
        "m:2:9: found '{', expected ',' or ')' to close the '(' at 2:7",
        "m:3:6: found '{', expected a type's name",
        "m:5:1: found 'x', expected a definition: 'def', 'type' or 'extern type'",
    ]


def test_nearest_names() -> None:
    text = """type List[A] { Cons(A, List[A]), Nil }
def @length(%list: Lisst[int32], %n: flaot32) { clip(%list, a_mim=1.0) }
def @main() { (@lenght(), Consa(1)) }
def @other(%x: List[int32]) { match (%x) { Nill => 1 } }
"""
    assert lines(text) == [
        "m:2:20: unknown type 'Lisst'; did you mean 'List'?",
        "m:2:38: unknown type 'flaot32'; did you mean 'float32'?",
        "m:2:49: 'clip' has no attribute 'a_mim'; did you mean 'a_min'?",
        "m:3:16: unknown function '@lenght'; did you mean '@length'?",
        "m:3:27: unknown operator or constructor 'Consa'; did you mean 'Cons'?",
        "m:4:44: unknown constructor 'Nill'; did you mean 'Nil'?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%", "m:1:12: '%' is not followed by a name"),
        ('"a', "m:1:12: this quoted text is not closed on its line"),
        ("3x", "m:1:12: '3x' is no number: expected digits, and one of the suffixes"),
        ("Tensor[(2,), int8](1, 300)", "m:1:34: 300 is out of range for int8"),
        ("Tensor[(2,), int8](1f, 2)", "m:1:31: found '1f', expected a number without suffix: its type is int8"),
        ("match (1) { %x, => 1 }", "m:1:26: found ',', expected '=>'"),
        (
            "match (1) { let => 1 }",
            "m:1:24: found 'let', expected a pattern: '_', a variable, a constructor or a tuple",
        ),
        ("match ((1, 2)) { (%x, %x) => 1 }", "m:1:34: variable '%x' is bound twice in one pattern"),
        ("let %f = fn[A, A](%x: A) { %x }; 1", "m:1:27: type parameter 'A' is declared twice"),
        ("ref_write(1)", "m:1:23: found ')', expected ','"),
        ("(let %x = 1; %x)", "m:1:13: found 'let', expected an expression"),
        ('log(1f) #[span("a", 1)]', "m:1:33: found ')', expected ','"),
        ('let %x = 1; %x #[span("a")]', "m:1:27: found '#[', expected no span: it stands where what it belongs to is"),
        ("1; let %x: Tensor[(2, float32] = 1; 1", "m:1:41: found ']', expected ',' or ')' to close the '(' at 1:30"),
    ],
)
def test_in_an_expression(text: str, expected: str) -> None:
    assert lines(f"def @f() {{ {text} }}")[0].startswith(expected)


def test_types_that_are_applied_wrongly() -> None:
    assert lines("type L[A] { N(A) }\ndef @f[L](%x: L[int32, int32], %y: L) { match (%x) { N => 1 } }") == [
        "m:2:8: type parameter 'L' has the name of a type",
        "m:2:16: found '[', expected ',' or ')' to close the '(' at 2:10",
    ]
    assert lines("type L[A] { N(A) }\ndef @f(%x: L[int32, int32], %y: L) { match (%x) { N => 1 } }") == [
        "m:2:12: type 'L' is given 2 arguments, expected 1",
        "m:2:33: type 'L' is given 0 arguments, expected 1",
        "m:2:51: constructor 'N' is given 0 patterns, expected 1",
    ]


def test_types_that_contradict_each_other_have_carets_too() -> None:
    found = message("def @f(%x: float32) -> int32 {\n  %x\n}\ndef @g(%c: float32) {\n  if (%c) { 1 } else { 2 }\n}")
    assert len([line for line in found.splitlines() if line.startswith("m:")]) == 2
    assert found.count("^") == 2


def test_not_more_than_twenty_at_once() -> None:
    assert len(lines("def @f() {\n" + "  let %x = ;\n" * 100_000 + "  1\n}")) == 20


def test_an_expression_ends_with_its_text() -> None:
    with pytest.raises(ParseError, match=r"1:3: found '2', expected ';' or the end"):
        parse_expr("1 2")


def test_errors_are_values() -> None:
    with pytest.raises(ParseError) as caught:
        parse("def @f() { %x }", "m")
    (error,) = caught.value.errors
    assert (error.pos, error.message, error.is_syntax) == (11, "unknown variable '%x'", False)


def test_a_dtype_that_is_not_at_hand_is_a_mistake_of_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    why = "values of bfloat16 need the package 'ml_dtypes': pip install ml_dtypes"
    found = lines("def @main() { (1bf16, Tensor[(1,), bfloat16](2)) }")
    assert found == [f"m:1:16: {why}", f"m:1:46: {why}"]


def test_attributes_nested_too_deep() -> None:
    found = lines("def @f(%x: int32, a=" + "[" * 5000 + "]" * 5000 + ") { %x }")
    assert found == ["m:1:85: lists are nested deeper than 64"]


def test_bare_names_that_mean_something_else_define_nothing() -> None:
    """Where it is used, the name would be read as what it means in the language."""
    assert lines('type float32 { add(int32), True, inf, "nan" } type T[Ref, A] { C(A) }') == [
        "m:1:6: 'float32' has a meaning of its own: write the type as \"float32\"",
        "m:1:16: 'add' has a meaning of its own: write the constructor as \"add\"",
        "m:1:28: 'True' has a meaning of its own: write the constructor as \"True\"",
        "m:1:34: 'inf' has a meaning of its own: write the constructor as \"inf\"",
        "m:1:54: 'Ref' has a meaning of its own: write the type as \"Ref\"",
    ]


def test_metadata_that_cannot_be_read_is_one_mistake() -> None:
    text = "def @f() { (meta[relay.Constant][0], meta[relay.Constant][1]) }\n#[metadata]\n"
    assert lines(text + "{}") == ["m:2:1: the metadata cannot be read: it has no 'relay.Constant'"]
    found = lines(text + '{"relay.Constant": [{"dtype": "float32", "shape": [2], "data": "AAAA"}]}')
    assert found == ["m:2:1: the metadata cannot be read: 3 bytes for float32 (2,)"]


def test_words_of_other_languages() -> None:
    assert lines("def @f() { true }") == ["m:1:12: unknown constructor 'true'; did you mean 'True'?"]
