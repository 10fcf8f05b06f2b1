"""Closures become functions of the module."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Let, Var, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import free_vars, post_order
from relaybuild.passes.infra import PassContext
from relaybuild.passes.lambda_lift import LambdaLift


def lifted(text: str) -> IRModule:
    mod = parse(text)
    after = LambdaLift()(mod)
    verify_module(after, "typed")
    assert all(not free_vars(function) for function in after.functions.values())
    for value in (0, 3):
        argument = np.array(value, "int32")
        np.testing.assert_array_equal(interpret(after, argument), interpret(mod, argument))
    assert LambdaLift()(after) is after
    return after


def closures(mod: IRModule) -> int:
    return sum(isinstance(node, Function) for function in mod.functions.values() for node in post_order(function.body))


def test_a_function_without_captures() -> None:
    """LL01: two functions, and none within another."""
    after = lifted("def @main(%x: int32) { let %f = fn (%y: int32) { %y + %y }; %f(%x) }")
    assert list(after) == ["main", "main_f"]
    assert closures(after) == 0


def test_a_closure_that_is_returned() -> None:
    """LL02: its captured value becomes a parameter; a function remains that hands it over."""
    after = lifted(
        """
        def @main(%x: int32) {
          let %outer = fn (%y: int32) { fn (%z: int32) { %z + %y } };
          %outer(%x)(%x)
        }
        """
    )
    assert len(list(after)) == 3
    assert [param.name_hint for param in after["main_lambda"].params] == ["y", "z"]
    assert closures(after) == 1


def test_a_recursive_closure() -> None:
    """LL03: it calls the lifted function, and hands on what it captured."""
    after = lifted(
        """
        def @main(%x: int32) {
          let %step = %x + 1;
          let %loop = fn (%i: int32) -> int32 { if (%i < 1) { %i } else { %loop(%i - %step) } };
          %loop(%x)
        }
        """
    )
    assert list(after) == ["main", "main_loop"]
    assert closures(after) == 0


def test_a_closure_that_calls_another_captures_what_that_captures() -> None:
    after = lifted(
        """
        def @main(%x: int32) {
          let %a = fn (%y: int32) { %y * %x };
          let %b = fn (%y: int32) { %a(%y) + 1 };
          let %c = fn (%y: int32) { fn (%z: int32) { %b(%z) }(%y) };
          %c(2)
        }
        """
    )
    assert [param.name_hint for param in after["main_c"].params] == ["x", "y"]
    assert closures(after) == 0


def test_values_computed_outside_are_handed_over_and_not_computed_again() -> None:
    after = lifted(
        """
        def @main(%x: int32) {
          %0 = %x * %x;
          let %f = fn (%y: int32) { %y + %0 };
          %f(%0)
        }
        """
    )
    multiplications = [
        name
        for name, function in after.functions.items()
        for node in post_order(function)
        if isinstance(node, Call) and node.op_name == "multiply"
    ]
    assert multiplications == ["main"]


def test_references_are_captured() -> None:
    after = lifted(
        """
        def @main(%x: int32) {
          let %r = ref(%x);
          let %bump = fn (%y: int32) { let %w = ref_write(%r, ref_read(%r) + %y); ref_read(%r) };
          let %a = %bump(1);
          let %b = %bump(10);
          (%a, %b, ref_read(%r))
        }
        """
    )
    assert closures(after) == 0


def test_a_closure_that_hands_over_itself() -> None:
    after = lifted(
        """
        def @main(%x: int32) {
          let %down = fn (%i: int32) -> int32 { if (%i < %x) { %i } else { @apply(%down, %i - 1) } };
          @apply(%down, %x + 2)
        }
        def @apply(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%x) }
        """
    )
    assert closures(after) == 2


@pytest.mark.parametrize("attr", ["Primitive=1", 'Composite="a.b"', 'Compiler="ccompiler"'])
def test_sealed_functions_stay(attr: str) -> None:
    mod = parse(f"def @main(%x: int32) {{ fn (%y: int32, {attr}) {{ %y + %y }}(%x) }}")
    assert LambdaLift()(mod) is mod


def test_names_are_those_of_no_other_function() -> None:
    after = lifted(
        "def @main(%x: int32) { let %f = fn (%y: int32) { %y }; %f(@main_f(%x)) } def @main_f(%x: int32) { %x + 1 }"
    )
    assert list(after) == ["main", "main_f", "main_f_1"]


def test_many_closures_in_each_other() -> None:
    """Many levels, each of which uses what is outside all of them."""
    x = var("x", TensorType((), "int32"))
    body: Expr = x
    for _ in range(200):
        y = Var("y", TensorType((), "int32"))
        f = Var("f")
        function = Function([y], call_op("add", [call_op("add", [body, y]), x]))
        f.set_checked_type(function.checked_type)
        body = Let(f, function, Call(f, [x]))
    mod = IRModule.from_expr(Function([x], body))
    with PassContext(opt_level=3):
        after = LambdaLift()(mod)
    assert len(after) == 201
    assert isinstance(after["main"].body, Call)
    assert isinstance(after["main"].body.op, GlobalVar)
    assert interpret(after, np.array(1, "int32")) == 401


def test_a_polymorphic_closure_stays_polymorphic_as_a_value() -> None:
    """It is used at two types."""
    text = "let %p = fn [A](%q: A) -> (A, int32) { (%q, %x) }; (@ap(%p, %x), @ap(%p, 1f))"
    after = LambdaLift()(
        parse(f"def @ap[A, B](%f: fn (A) -> B, %a: A) -> B {{ %f(%a) }}\ndef @main(%x: int32) {{ {text} }}")
    )
    verify_module(after, "typed")
    assert LambdaLift()(after) is after
