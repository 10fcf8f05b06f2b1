"""Registered replacements of calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.visitor import post_order
from relaybuild.passes.legalize import Legalize
from relaybuild.passes.op_rewrites import scoped_op_rewrite


def text(mod: IRModule) -> str:
    return " ".join(str(mod).split())


def test_a_call_is_replaced_wherever_it_stands() -> None:
    """LG01: a rule's expression takes the place of the call."""
    mod = parse(
        """
        def @main(%x: Tensor[(3,), float32], %c: bool) {
          let %f = fn (%y: Tensor[(3,), float32]) -> Tensor[(3,), float32] { nn.relu(%y) };
          if (%c) { %f(nn.relu(%x)) } else { let %z = nn.relu(%x); %z }
        }
        """
    )

    def maximum(call: Call) -> Expr:
        return call_op("maximum", [call.args[0], relay.const(0.0)], call.span)

    with scoped_op_rewrite("legalize", "nn.relu", maximum):
        after = Legalize()(mod)
    assert "nn.relu" not in text(after)
    assert text(after).count("maximum") == 3
    x = np.array([-1.0, 0.0, 2.0], "float32")
    for branch in (True, False):
        np.testing.assert_array_equal(interpret(after, x, np.array(branch)), interpret(mod, x, np.array(branch)))


def test_no_opinion_leaves_the_module_as_it_is() -> None:
    """LG02: a rule that returns None changes nothing."""
    mod = parse("def @main(%x: Tensor[(3,), float32]) { nn.relu(%x) }")
    with scoped_op_rewrite("legalize", "nn.relu", lambda call: None):
        assert Legalize()(mod) is mod


def test_several_operators_are_replaced_in_one_run() -> None:
    """LG03: each operator has its own rule, and a replacement is not replaced again."""
    mod = parse("def @main(%x: Tensor[(3,), float32]) { tanh(sigmoid(%x)) }")
    with (
        scoped_op_rewrite("legalize", "tanh", lambda call: call_op("sigmoid", call.args)),
        scoped_op_rewrite("legalize", "sigmoid", lambda call: call_op("tanh", call.args)),
    ):
        after = Legalize()(mod)
    assert text(after) == "def @main(%x: Tensor[(3,), float32]) { %0 = tanh(%x); sigmoid(%0) }"


def test_a_rule_sees_all_arguments_and_may_return_its_own_operator() -> None:
    """LG04: an operator of several inputs, one of them a tuple."""
    mod = parse("def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2, 3), float32]) { concatenate((%x, %y), axis=1) }")

    def turned(call: Call) -> Expr:
        attrs: Any = call.attrs
        assert attrs.axis == 1
        flipped = relay.Tuple([call_op("transpose", [field]) for field in call.args[0].children()])
        return call_op("transpose", [call_op("concatenate", [flipped], axis=0)])

    with scoped_op_rewrite("legalize", "concatenate", turned):
        after = Legalize()(mod)
    assert text(after).count("transpose(") == 3
    x, y = np.arange(6, dtype="float32").reshape(2, 3), np.ones((2, 3), "float32")
    np.testing.assert_array_equal(interpret(after, x, y), interpret(mod, x, y))


def test_types_are_there_before_rules_are_asked() -> None:
    mod = parse("def @main(%x: Tensor[(3,), float32]) { let %y = exp(%x); tanh(%y) }")
    seen = []

    def look(call: Call) -> None:
        seen.append(str(call.args[0].checked_type))

    with scoped_op_rewrite("legalize", "tanh", look):
        Legalize()(mod)
    assert seen == ["Tensor[(3,), float32]"]


def test_a_replacement_of_another_type_is_refused() -> None:
    mod = parse("def @main(%x: Tensor[(3,), float32]) { tanh(%x) }")
    with (
        scoped_op_rewrite("legalize", "tanh", lambda call: call_op("sum", call.args)),
        pytest.raises(UserError, match=r"rule of 'tanh' returned float32, expected Tensor\[\(3,\), float32\]"),
    ):
        Legalize()(mod)


def test_replacing_inside_a_long_chain() -> None:
    """The pass takes one step per node: a chain of 90,000 calls."""
    x = relay.var("x", shape=(1,))
    body: Expr = x
    for _ in range(90_000):
        body = call_op("tanh", [body])
    with scoped_op_rewrite("legalize", "tanh", lambda call: call_op("exp", call.args)):
        after = Legalize()(IRModule.from_expr(relay.Function([x], body)))
    assert [node.op_name for node in post_order(after["main"]) if isinstance(node, Call)] == ["exp"] * 90_000
