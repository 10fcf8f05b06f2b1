"""Lets for everything that is computed, and back."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.expr import Expr, Function, Let, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.first_order_gradient import FirstOrderGradient
from relaybuild.passes.to_a_normal_form import ToANormalForm, to_a_normal_form
from relaybuild.passes.to_basic_block_normal_form import ToBasicBlockNormalForm
from relaybuild.passes.to_graph_normal_form import ToGraphNormalForm


def lets(mod: IRModule) -> list[str]:
    return [str(node.value.span) for node in post_order(mod["main"]) if isinstance(node, Let)]


def test_a_repeated_node_is_one_let() -> None:
    """AN01, GN01: sharing becomes a variable, and a variable sharing."""
    x = var("x", (3,))
    square = call_op("multiply", [x, x])
    mod = IRModule.from_expr(Function([x], call_op("add", [square, square])))
    bound = ToANormalForm()(mod)
    assert len(lets(bound)) == 2
    assert structural_equal(ToGraphNormalForm()(bound), mod)


def test_the_order_is_that_of_evaluation() -> None:
    """AN02: operands from left to right, before what uses them."""
    mod = parse("def @main(%x: float32) { exp(%x) * (log(%x) - exp(%x)) }")
    text = str(ToANormalForm()(mod))
    assert text.index("exp(") < text.index("log(") < text.index("subtract(") < text.index("multiply(")


def test_a_single_expression() -> None:
    """AN08: a let of a let is two lets in a row."""
    x = var("x", (3,))
    inner, outer = var("a", (3,)), var("b", (3,))
    expr = Let(outer, Let(inner, call_op("exp", [x]), call_op("log", [inner])), call_op("add", [outer, outer]))
    found = to_a_normal_form(expr)
    names = []
    while isinstance(found, Let):
        names.append(found.var.name_hint)
        assert not isinstance(found.value, Let)
        found = found.body
    assert names[:2] == ["a", "b"]


@pytest.mark.parametrize("start", [0, 5])
def test_recursion_ends_and_agrees(start: int) -> None:
    """AN05: a function that calls itself through the module."""
    mod = parse(
        """
        def @main(%n: int32) { @sum(%n) }
        def @sum(%n: int32) -> int32 { if (%n < 1) { 0 } else { %n + @sum(%n - 1) } }
        """
    )
    n = np.array(start, "int32")
    assert interpret(ToANormalForm()(mod), n) == interpret(mod, n) == start * (start + 1) // 2


def test_there_and_back() -> None:
    """GN02: a dataflow graph is the same after a round trip."""
    mod = parse("def @main(%x: float32, %y: float32) { %0 = %x + %y; (%0 * %0, { %1 = exp(%0); %1 - %1 }) }")
    assert structural_equal(ToGraphNormalForm()(ToANormalForm()(mod)), mod)


@pytest.mark.parametrize("each", [ToANormalForm(), ToBasicBlockNormalForm(), ToGraphNormalForm()])
def test_long_chains(each: object) -> None:
    x = var("x", (1,))
    body: Expr = x
    for _ in range(20_000):
        body = call_op("tanh", [body])
    mod = IRModule.from_expr(Function([x], body))
    assert structural_equal(ToGraphNormalForm()(each(mod)), mod)  # type: ignore[operator]


def test_branches_keep_scopes_of_their_own() -> None:
    """AN03: what only a branch needs is bound in it, what both need before."""
    mod = parse(
        """def @main(%c: bool, %x: float32) {
          %0 = exp(%x);
          if (%c) { log(%x) * %0 } else { sin(%x) + %0 }
        }"""
    )
    text = str(ToANormalForm()(mod))
    assert text.index("exp(") < text.index("if (") < text.index("log(") < text.index("} else {") < text.index("sin(")


def test_a_let_within_an_expression() -> None:
    """AN04: its bindings come before what uses its value."""
    mod = parse("def @main(%x: float32) { exp(%x) + { let %a = log(%x); %a * %a } }")
    bound = ToANormalForm()(mod)
    assert [line.split(" = ")[1] for line in str(bound).splitlines() if " = " in line] == [
        "exp(%x);",
        "log(%x);",
        "multiply(%a, %a);",
        "add(%x1, %x2);",
    ]
    assert interpret(bound, np.float32(2)) == pytest.approx(interpret(mod, np.float32(2)))


def test_matches() -> None:
    """AN07: numbers built by constructors are added by a match that recurses."""
    mod = parse(
        """
        type Nat { Zero, Next(Nat) }
        def @add(%a: Nat, %b: Nat) -> Nat { match (%a) { Zero => %b, Next(%n) => Next(@add(%n, %b)), } }
        def @count(%a: Nat) -> int32 { match (%a) { Zero => 0, Next(%n) => 1 + @count(%n), } }
        def @main() { @count(@add(Next(Next(Zero)), Next(Zero))) }
        """
    )
    assert interpret(ToANormalForm()(mod)) == interpret(mod) == 3


def test_functions() -> None:
    """AN09: a function's body is bound in it, the function before its call."""
    mod = parse("def @main(%x: float32) { %f = fn (%y: float32) { exp(log(%y)) }; %f(%x) }".replace("%f", "%0"))
    text = str(ToANormalForm()(mod))
    assert text.index("fn (") < text.index("log(") < text.index("exp(") < text.index("(%x)", text.index("exp("))


def test_gradients_of_branches() -> None:
    """AN10: what a gradient computes in a branch is bound in that branch."""
    mod = FirstOrderGradient()(parse("def @main(%c: bool, %x: float32) { if (%c) { exp(%x) * %x } else { %x } }"))
    bound = ToANormalForm()(mod)
    verify_module(bound)
    for condition in (True, False):
        found, wanted = (interpret(each, np.asarray(condition), np.float32(0.5)) for each in (bound, mod))
        assert found[0] == wanted[0]
        assert found[1][1] == wanted[1][1]
    text = str(bound)
    assert text.index("if (") < text.index("exp(")
    assert text.count("exp(") == 2
