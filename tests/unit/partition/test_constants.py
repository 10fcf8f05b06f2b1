"""Which constants stand in what is cut out, and which arguments are constant wherever a function is called."""

from __future__ import annotations

import numpy as np
from partitioning import VECTOR

from relaybuild import relay
from relaybuild.ir.expr import Call, Constant, Expr, Function, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order
from relaybuild.partition.constants import constant_arguments, with_constants_outside

CALLEE = f'def @f(%x: {VECTOR}, %w: {VECTOR}, Compiler="a") -> {VECTOR} {{ add(%x, %w) }}'
PAIR = f"({VECTOR}, {VECTOR})"


def constant_in(body: str, callee: str = CALLEE, rest: str = "") -> frozenset[int]:
    """The constant arguments of @f where main has that body."""
    return constant_arguments(infer_types(parse(f"def @main(%x: {VECTOR}) {{ {body} }} {callee} {rest}")), "f")


def test_operators_over_constants_are_constant() -> None:
    assert constant_in("@f(%x, multiply(full(fill_value=2.0, shape=[3]), full(fill_value=0.0, shape=[3])))") == {1}
    assert constant_in("@f(full(fill_value=0.0, shape=[3]), multiply(%x, full(fill_value=0.0, shape=[3])))") == {0}
    assert constant_in("@f(full(fill_value=0.0, shape=[3]), full(fill_value=0.0, shape=[3]))") == {0, 1}
    assert constant_in("@f(%x, %x)") == frozenset()


def test_lets_are_seen_through() -> None:
    assert constant_in("let %a = full(fill_value=0.0, shape=[3]); let %b = exp(%a); @f(%b, %x)") == {0}
    assert constant_in("let %a = exp(%x); @f(%a, full(fill_value=0.0, shape=[3]))") == {1}


def test_all_calls_must_be_given_the_same() -> None:
    assert constant_in("%0 = full(fill_value=0.0, shape=[3]); @f(@f(%x, %0), %0)") == {1}
    assert constant_in("@f(@f(%x, full(fill_value=0.0, shape=[3])), full(fill_value=0.0, shape=[3]))") == frozenset()


def test_parameters_of_the_caller_may_differ() -> None:
    other = f"def @g(%y: {VECTOR}) -> {VECTOR} {{ @f(full(fill_value=0.0, shape=[3]), %y) }}"
    assert constant_in("@g(full(fill_value=0.0, shape=[3]))", rest=other) == {0}


def test_tensors_of_tuples_are_numbered_one_by_one() -> None:
    callee = f'def @f(%p: {PAIR}, %w: {VECTOR}, Compiler="a") -> {VECTOR} {{ add(%p.1, %w) }}'
    assert constant_in("@f((%x, full(fill_value=0.0, shape=[3])), full(fill_value=0.0, shape=[3]))", callee) == {1, 2}
    assert constant_in(
        "%0 = split(full(fill_value=0.0, shape=[6]), indices_or_sections=2); @f((%0.0, %0.1), %x)", callee
    ) == {0, 1}


def test_a_function_that_is_handed_on_or_never_called_has_none() -> None:
    assert constant_in("(@f(%x, full(fill_value=0.0, shape=[3])), @f)") == frozenset()
    assert constant_in("%x") == frozenset()


def composite(body: Expr, *params: Var) -> Function:
    return Function(params, body, attrs={"Composite": "a.p"})


def test_large_constants_of_a_body_become_arguments() -> None:
    x, y = relay.var("x", shape=(3,)), Var("y", TensorType((3,)))
    large, small = relay.const(np.arange(3, dtype="float32")), relay.const(2.0)
    body = relay.add(relay.multiply(relay.multiply(y, large), small), large)
    call = Call(composite(body, y), [x])
    after = with_constants_outside(call, lambda constant: constant.data.size > 1)
    assert isinstance(after.op, Function)
    assert after.args == (x, large)
    assert after.op.attrs == {"Composite": "a.p"}
    assert [node for node in post_order(after.op) if isinstance(node, Constant)] == [small]
    assert after.checked_type == call.checked_type
    data = np.array([1, 2, 3], "float32")
    before, found = (IRModule({"main": Function([x], each)}) for each in (call, after))
    np.testing.assert_array_equal(interpret(before, data), interpret(found, data))


def test_a_body_without_large_constants_stays() -> None:
    x, y = relay.var("x", shape=(3,)), Var("y", TensorType((3,)))
    call = Call(composite(relay.multiply(y, relay.const(2.0)), y), [x])
    assert with_constants_outside(call, lambda constant: constant.data.size > 1) is call
