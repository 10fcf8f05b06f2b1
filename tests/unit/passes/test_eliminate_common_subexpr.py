"""Equal expressions become one node, where that computes nothing in vain."""

from __future__ import annotations

import pytest

from relaybuild.ir.expr import Call, Expr, Tuple
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.eliminate_common_subexpr import EliminateCommonSubexpr
from relaybuild.passes.infra import PassContext


def count(mod: IRModule, name: str) -> int:
    return sum(isinstance(node, Call) and node.op_name == name for node in post_order(mod["main"]))


def test_equal_calls_are_shared() -> None:
    """CS01: two additions of the same."""
    mod = parse("def @main(%x: float32) { nn.relu(%x + 1f) * nn.relu(%x + 1f) }")
    after = EliminateCommonSubexpr()(mod)
    assert (count(after, "add"), count(after, "nn.relu")) == (1, 1)


def test_what_is_skipped_keeps_its_copies() -> None:
    """CS02: and so does what uses them."""
    mod = parse("def @main(%x: float32) { nn.relu(%x + 1f) * nn.relu(%x + 1f) }")

    def is_add(node: Expr) -> bool:
        return isinstance(node, Call) and node.op_name == "add"

    after = EliminateCommonSubexpr(fskip=is_add)(mod)
    assert (count(after, "add"), count(after, "nn.relu")) == (2, 2)


def test_different_fields_stay_apart() -> None:
    """CS03: fields of one split are merged by their number."""
    mod = parse("def @main(%x: Tensor[(4,), float32]) { %0 = split(%x, indices_or_sections=2); %0.0 + %0.1 * %0.0 }")
    assert EliminateCommonSubexpr()(mod)["main"].body is not None
    assert "%0.1" in str(EliminateCommonSubexpr()(mod))


def test_calls_over_tuples_are_compared_by_their_fields() -> None:
    """CS04: concatenations of the same in the same order."""
    mod = parse(
        "def @main(%x: Tensor[(2,), float32], %y: Tensor[(2,), float32]) {"
        "(concatenate((%x, %y)), concatenate((%x, %y)), concatenate((%y, %x))) }"
    )
    assert count(EliminateCommonSubexpr()(mod), "concatenate") == 2


def test_a_variable_goes_where_its_value_is_used_otherwise() -> None:
    mod = parse(
        """
        def @main(%x: float32) {
          %0 = exp(%x);
          %1 = { let %a = %0; tanh(%a) };
          %1 + tanh(%0)
        }
        """
    )
    assert count(EliminateCommonSubexpr()(mod), "tanh") == 1


def test_nothing_changes_where_no_change_is_allowed() -> None:
    """A let whose value is used otherwise stays as well."""
    mod = parse("def @main(%x: float32) { %0 = exp(%x); %1 = { let %a = %0; tanh(%a) }; %1 + tanh(%0) }")
    with PassContext(opt_level=3, max_rewrites=0):
        assert EliminateCommonSubexpr()(mod) is mod


@pytest.mark.parametrize("empty", ["Nil", "@e()"])
def test_values_of_other_types_stay_apart(empty: str) -> None:
    """Empty lists of integers and of numbers come from the same polymorphic call or constructor."""
    mod = parse(
        "type List[A] { Cons(A, List[A]), Nil }\n"
        "def @e[A]() -> List[A] { Nil }\n"
        f"def @main(%x: int32, %y: float32) {{ (Cons(%x, {empty}), Cons(%y, {empty}), Cons(%y, {empty})) }}"
    )
    after = EliminateCommonSubexpr()(mod)
    verify_module(after, "typed")
    body = after["main"].body
    assert isinstance(body, Tuple)
    assert len({id(part) for part in body.fields}) == 2
