"""Types' definitions, matches, references, spans and comments as text; everything is read back as it was."""

from __future__ import annotations

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, If, Let, Span, Tuple, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Attrs, call_op
from relaybuild.ir.parser import parse, parse_expr
from relaybuild.ir.printer import print_expr, print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import FuncType, RefType, TensorType, TupleType, TypeVar
from relaybuild.ir.visitor import post_order

INT = TensorType((), "int32")

LANGUAGE = """#[version = "0.0.5"]
#[attrs(name="a\\"b", "odd key"=[1, 2.5, None])]
type List[A] {
  Cons(A, List[A]),
  Nil,
}
extern type T[A, "float32"]
type "odd name" {
  "let"(Ref[int32]),
  "add",
  "inf",
}
def @length[A](%xs: List[A]) -> int32 {
  match (%xs) {
    Cons(_, %rest) => {
      %0 = @length(%rest);
      add(1, %0)
    },
    Nil => 0,
  }
}
def @main(%x: int32, %o: "odd name", %t: T[int32, (int32, List[_])], %c: bool) {
  %0 = ref(%x);
  let %u = ref_write(%0, 3);
  %1 = ref_read(%0);
  %2 = match? (%o) {
    "let"(%r: Ref[int32]) => {
      ref_read(%r)
    },
    "add" => %1,
    _ => {
      %3 = Cons((1, 2), Nil);
      @length(%3)
    },
  };
  %4 = match ((%2, (%x, %1))) {
    (%a, (_, %b)) => {
      subtract(%a, %b)
    },
  };
  (%4, "let", constructor("inf"), "inf")
}
"""


def test_the_whole_language() -> None:
    mod = parse(LANGUAGE)
    assert print_module(mod) == LANGUAGE
    assert structural_equal(parse(print_module(mod)), mod)


def test_references_have_types() -> None:
    function = parse_expr("fn (%r: Ref[(int32, Ref[bool])]) { %r }")
    assert isinstance(function, Function)
    assert function.params[0].type_annotation == RefType(TupleType((INT, RefType(TensorType((), "bool")))))
    assert structural_equal(parse_expr(print_expr(function)), function)


def test_types_with_type_parameters() -> None:
    a = TypeVar("A")
    f = Var("f", FuncType((a, FuncType((TypeVar("B"),), a, (TypeVar("B"),))), a, (a,)))
    text = print_expr(Function([f], f))
    assert "%f: fn[A](A, fn[B](B) -> A) -> A" in text
    assert structural_equal(parse_expr(text), Function([f], f))


def test_a_recursive_closure_that_is_also_used_apart_from_its_variable() -> None:
    f, x = Var("f"), Var("x", INT)
    closure = Function([x], Call(f, [x]), INT)
    body = Let(f, closure, Tuple([f, closure, Call(closure, [const(1)])]))
    text = print_expr(body)
    assert text == ("let %f = (%0 = fn (%x: int32) -> int32 {\n  %f(%x)\n});\n%1 = %0(1);\n(%f, %0, %1)\n")
    assert structural_equal(parse_expr(text), body)


def test_a_closure_that_is_shared_and_not_recursive_is_a_node_like_any_other() -> None:
    f, x = Var("f"), Var("x", INT)
    closure = Function([x], x, INT)
    body = Let(f, closure, Tuple([f, closure]))
    text = print_expr(body)
    assert text.startswith("%0 = fn (%x: int32)")
    assert structural_equal(parse_expr(text), body)


def test_literals_that_are_called_stand_in_parentheses() -> None:
    call = Call(const(-1.5), [const(2)])
    assert print_expr(call) == "(-1.5f)(2)\n"
    assert structural_equal(parse_expr("(-1.5f)(2)"), call)


def test_attributes_of_calls_of_functions_are_refused() -> None:
    class Strange(Attrs):
        def items(self) -> tuple[tuple[str, object], ...]:
            return (("a", 1),)

    call = Call(Var("f"), [], Strange(), Span("m", "", 1, 2))
    with pytest.raises(UserError, match="m:1:2: only calls of operators have attributes"):
        print_expr(call)


def spans(mod: IRModule) -> list[str]:
    found = [str(each.span) for function in mod.functions.values() for each in post_order(function)]
    binders = [each for function in mod.functions.values() for node in post_order(function) for each in node.binders()]
    return [*found, *(str(var.span) for var in binders)]


def test_every_node_has_its_place_in_the_text() -> None:
    mod = parse("def @f(%x: int32) {\n  let %y = %x + 1;\n  if (%y < 2) { (%y,) } else { (2,) }\n}", "m")
    let = mod["f"].body
    assert isinstance(let, Let)
    assert [str(mod["f"].span), str(mod["f"].params[0].span), str(let.span)] == ["m:1:1", "m:1:8", "m:2:3"]
    assert [str(let.var.span), str(let.value.span), str(let.body.span)] == ["m:2:7", "m:2:15", "m:3:3"]
    assert "None" not in spans(mod)


def test_places_survive_a_text_that_writes_them() -> None:
    mod = parse(LANGUAGE, "original.relay")
    shown = print_module(mod, show_spans=True)
    back = parse(shown, "other")
    assert structural_equal(back, mod)
    assert print_module(back) == LANGUAGE
    assert spans(back) == spans(mod)
    assert 'def #[span("original.relay", 13, 1)] @length[A](%xs #[span("original.relay", 13, 16)]: List[A])' in shown


def test_places_of_models_survive_too() -> None:
    x = var("x", (3,))
    node = call_op("log", [x], span=Span('m "1".onnx', "conv/1"))
    text = print_module(IRModule({"main": Function([x], node)}), show_spans=True)
    assert '#[span("m \\"1\\".onnx", "conv/1")]' in text
    assert parse(text)["main"].body.span == node.span


def test_comments_cannot_be_ended_by_what_they_hold() -> None:
    text = print_expr(const(1), annotate=lambda _: "a */ b /* c\n// d")
    assert text == "1 /* a * / b / * c // d */\n"
    assert structural_equal(parse_expr(text), const(1))


@pytest.mark.parametrize("depth", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_depth_of_every_construct(depth: int) -> None:
    """TP02: depth is bounded by memory alone."""
    condition, x = Var("c", TensorType((), "bool")), Var("x", INT)
    branches: Expr = x
    closures: Expr = x
    negatives: Expr = x
    for _ in range(depth):
        branches = If(condition, branches, x)
        closures = Call(Function([], closures), [])
        negatives = call_op("negative", [negatives])
    for body in (branches, closures, negatives):
        text = print_expr(body)
        assert len(text) < 400 * depth
        assert structural_equal(parse_expr(text), body)
