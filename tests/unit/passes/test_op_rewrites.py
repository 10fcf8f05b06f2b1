"""In which order registered rewrites are asked, and what they may return."""

from __future__ import annotations

import threading

import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Span, var
from relaybuild.ir.op import call_op
from relaybuild.passes import op_rewrites
from relaybuild.passes.op_rewrites import (
    find_op_rewrites,
    register_alter_op_layout,
    register_legalize,
    register_op_rewrite,
    rewrite_call,
    scoped_op_rewrite,
)


@pytest.fixture(autouse=True)
def _own_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_rewrites, "_registered", {})


def tanh_of_x() -> Call:
    return call_op("tanh", [var("x", (3,))])


def by(name: str) -> op_rewrites.RewriteRule:
    return lambda call: call_op(name, call.args)


def name_of(found: Expr) -> str:
    assert isinstance(found, Call)
    return found.op_name


def test_the_higher_level_is_asked_first_and_the_latest_among_equals() -> None:
    register_legalize("tanh")(by("exp"))
    register_legalize("tanh")(by("log"))
    register_legalize("tanh", level=5)(by("sin"))
    assert name_of(rewrite_call("legalize", tanh_of_x())) == "log"
    register_legalize("tanh", level=11)(by("cos"))
    assert name_of(rewrite_call("legalize", tanh_of_x())) == "cos"
    assert [each.level for each in find_op_rewrites("legalize", "tanh")] == [11, 10, 10, 5]


def test_none_asks_the_next_rule_and_the_call_itself_ends_the_asking() -> None:
    call = tanh_of_x()
    register_legalize("tanh", level=1)(by("exp"))
    register_legalize("tanh", level=2)(lambda call: None)
    assert name_of(rewrite_call("legalize", call)) == "exp"
    register_legalize("tanh", level=3)(lambda call: call)
    assert rewrite_call("legalize", call) is call


def test_kinds_and_operators_are_apart() -> None:
    register_alter_op_layout("tanh")(by("exp"))
    assert find_op_rewrites("legalize", "tanh") == ()
    assert find_op_rewrites("alter_op_layout", "exp") == ()
    assert name_of(rewrite_call("alter_op_layout", tanh_of_x())) == "exp"


def test_scoped_rules_come_first_and_end_with_their_scope_also_after_an_error() -> None:
    register_legalize("tanh", level=100)(by("exp"))
    with scoped_op_rewrite("legalize", "tanh", by("sin")):
        with pytest.raises(TypeError), scoped_op_rewrite("legalize", "tanh", lambda call: call_op("cos", None)):  # type: ignore[arg-type]
            rewrite_call("legalize", tanh_of_x())
        assert name_of(rewrite_call("legalize", tanh_of_x())) == "sin"
    assert name_of(rewrite_call("legalize", tanh_of_x())) == "exp"


def test_scoped_rules_belong_to_their_thread() -> None:
    found: list[int] = []
    with scoped_op_rewrite("legalize", "tanh", by("sin")):
        other = threading.Thread(target=lambda: found.append(len(find_op_rewrites("legalize", "tanh"))))
        other.start()
        other.join()
    assert found == [0]


def test_unknown_operators_and_kinds_are_refused() -> None:
    with pytest.raises(UserError, match="unknown operator 'tahn'; the nearest are tan, tanh"):
        register_legalize("tahn")
    with pytest.raises(UserError, match="unknown kind of rewrite 'lower'; the kinds are legalize, alter_op_layout"):
        register_op_rewrite("lower", "tanh")  # type: ignore[arg-type]


def test_a_rule_that_returns_something_else_is_named() -> None:
    def wrong(call: Call) -> Expr:
        return 3  # type: ignore[return-value]

    register_legalize("tanh")(wrong)
    call = call_op("tanh", [relay.var("x", shape=(3,))], Span("model.onnx", "t1"))
    with pytest.raises(UserError, match=r"model\.onnx: node 't1'.*rule 'wrong' of 'tanh' returned a int"):
        rewrite_call("legalize", call)
