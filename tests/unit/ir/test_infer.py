"""Types that construction alone does not know."""

import pytest

from relaybuild.errors import TypeCheckError, UserError
from relaybuild.ir.expr import Call, Function, GlobalVar, If, Let, Tuple, Var, const, var
from relaybuild.ir.infer import infer_expr, infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.types import Dim, FuncType, TensorType, TupleType, TypeVar
from relaybuild.ir.visitor import post_order

F3 = TensorType((3,), "float32")
INT = TensorType((), "int32")


def test_lets_without_annotation() -> None:
    x, a, b = var("x", (3,)), Var("a"), Var("b")
    body = Let(a, call_op("log", [x]), Let(b, Tuple([a, a]), call_op("exp", [a])))
    mod = IRModule.from_expr(Function([x], body))
    result = infer_types(mod)
    assert result is mod
    assert all(node.has_type for node in post_order(mod["main"]))
    assert b.checked_type == TupleType((F3, F3))


def test_globals_in_any_order_and_recursion() -> None:
    mod = infer_types(
        parse(
            """
            def @a(%x: float32) { @z(%x) }
            def @r(%x: int32) -> int32 { if (%x < 1) { 0 } else { @r(%x - 1) } }
            def @z(%x: float32) { (%x, @r(1)) }
            """
        )
    )
    assert mod["a"].checked_type == FuncType((TensorType(()),), TupleType((TensorType(()), INT)))


def test_polymorphic_functions_are_instantiated() -> None:
    mod = infer_types(
        parse(
            """
            def @apply[A](%f: fn (A) -> A, %x: A) -> A { %f(%x) }
            def @pair(%x: Tensor[(n, 3), float32]) -> (Tensor[(n, 3), float32], int32) { (%x, 1) }
            def @main(%x: Tensor[(5, 3), float32]) { @apply(fn (%y: int32) { %y + 1 }, @pair(%x).1) }
            def @main2(%x: Tensor[(5, 3), float32]) { @pair(%x).0 }
            """
        )
    )
    assert mod["main"].body.checked_type == INT
    assert mod["main2"].body.checked_type == TensorType((5, 3))


def test_a_function_used_under_other_globals_is_built_anew() -> None:
    user = Function([], Call(GlobalVar("g"), []))
    one = IRModule({"main": user, "g": Function([], const(1))})
    two = IRModule({"main": user, "g": Function([], const(1.0))})
    assert infer_types(one)["main"].body.checked_type == INT
    assert infer_types(two)["main"].body.checked_type == TensorType(())
    assert infer_types(one)["main"].body.checked_type == INT
    assert infer_types(one) is one


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x) { %x }", "nothing says the type of '%x'"),
        ("def @f(%x: int32) { @f(%x) }", "m:1:1: nothing says the result type of '@f': write '-> type'"),
        ("def @main() { let %f = fn (%x: int32) { %f(%x) }; 1 }", "m:1:24: nothing says the result type of '%f': write '-> type'"),
    ],
)
def test_what_nothing_says(text: str, message: str) -> None:
    with pytest.raises(TypeCheckError) as caught:
        infer_types(parse(text, "m"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @f(%x: int32) { %x } def @main() { @f(1f) }", "m:1:40: argument 0 has type float32, expected int32"),
        ("def @f(%x: int32) { %x } def @main() { @f() }", "a function of 1 parameters is called with 0 arguments"),
        ("def @main() -> int32 { 1f }", "the body has type float32, expected the declared int32"),
        ("def @main() { let %x: int32 = 1f; %x }", "'%x' is declared int32 and bound to a value of type float32"),
        ("def @main(%x: int32) { %x(1) }", "a value of type int32 is called, expected a function"),
        ("def @f() { 1 } def @main() { if (@f()) { 1 } else { 2 } }", "the condition has type int32, expected bool"),
        ("def @f() { 1 } def @main() { @f().0 }", "field 0 of int32, expected a tuple"),
        ("def @f() { 1 } def @main() { add(@f(), 1f) }", "'add' over (int32, float32)"),
    ],
)
def test_contradictions_are_found_when_parsing(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, "m")
    assert message in str(caught.value)


def test_all_independent_mistakes_at_once() -> None:
    x, b = var("x", (3,)), var("b", (), "int32")
    g = GlobalVar("g")
    first = If(b, x, x)
    second = Call(g, [x, x])
    mod = IRModule({"main": Function([x, b], Tuple([first, second])), "g": Function([var("y", (3,))], const(1))})
    with pytest.raises(TypeCheckError) as caught:
        infer_types(mod)
    assert str(caught.value).splitlines() == [
        "2 type errors:",
        "  the condition has type int32, expected bool",
        "  a function of 1 parameters is called with 2 arguments, in a call of '@g'",
    ]


def test_a_single_expression() -> None:
    a = Var("a")
    found = infer_expr(Let(a, Call(GlobalVar("g"), []), a), {"g": FuncType((), INT)})
    assert found.checked_type == INT


def test_long_chains() -> None:
    x = Var("x")
    y = call_op("negative", [x])
    for _ in range(20_000):
        y = call_op("negative", [y])
    x.set_checked_type(F3)
    assert infer_expr(y).checked_type == F3
