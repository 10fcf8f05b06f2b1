"""From a program to regions: patterns before calls, priorities, marks made by hand, large weights outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from partitioning import VECTOR, begin, compiled, end, op_names, ops_of, takes, vectors

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Constant, Expr, Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.pattern import is_constant, is_op, wildcard
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import Backend, register_backend
from relaybuild.partition.pattern_table import register_pattern_table
from relaybuild.partition.pipeline import by_priority, constant_arguments, partition
from relaybuild.partition.placement import find_placements
from relaybuild.passes.infra import PassContext


def no_code(*args: Any) -> Any:
    raise AssertionError("no code is generated here")


def backend(tag: str, priority: int = 0, *op_names: str, **fields: Any) -> None:
    register_backend(Backend(tag, tag, "", no_code, priority, supports=lambda call: call.op_name in op_names, **fields))


def tags_of(mod: IRModule) -> list[object]:
    return [function.attrs["Compiler"] for function in compiled(mod).values()]


def test_backends_of_higher_priority_are_asked_first() -> None:
    backend("low", 1, "exp", "tanh")
    backend("high", 2, "exp")
    assert by_priority(["low", "unknown", "high", "low"]) == ("high", "low", "unknown")
    after = partition(vectors("tanh(exp(%x))", "x"), ["low", "high"])
    assert dict(zip(tags_of(after), ops_of(after))) == {"high": ["exp"], "low": ["tanh"]}


def test_patterns_are_taken_before_calls() -> None:
    backend("low", 1, patterns=[("low.exp_abs", is_op("exp")(is_op("abs")(wildcard())))])
    backend("high", 2, "exp", "abs")
    after = partition(vectors("tanh(exp(abs(%x)))", "x"), ["low", "high"])
    assert tags_of(after) == ["low"]
    assert ops_of(after) == [["abs", "exp"]]


def test_of_patterns_the_one_of_higher_priority_is_taken() -> None:
    pattern = is_op("exp")(wildcard())
    backend("low", 1, patterns=[("low.exp", pattern)])
    backend("high", 2, patterns=[("high.exp", pattern)])
    assert tags_of(partition(vectors("exp(%x)", "x"), ["low", "high"])) == ["high"]
    assert tags_of(partition(vectors("exp(%x)", "x"), ["low"])) == ["low"]


def test_a_table_of_a_script_takes_the_place_of_the_backends() -> None:
    backend("v", 0, patterns=[("v.exp", is_op("exp")(wildcard()))])
    register_pattern_table("v", lambda: [("v.tanh", is_op("tanh")(wildcard()))])
    assert ops_of(partition(vectors("exp(tanh(%x))", "x"), ["v"])) == [["tanh"]]


def test_a_pattern_that_would_go_to_nobody_is_refused() -> None:
    backend("v", 0, patterns=[("w.exp", is_op("exp")(wildcard()))])
    with pytest.raises(UserError, match=r"a pattern of 'v' is named 'w.exp', expected 'v.' and a name"):
        partition(vectors("exp(%x)", "x"), ["v"])


def test_marks_made_by_hand_are_kept() -> None:
    takes("a", "nn.relu", "tanh")
    mod = vectors(f"nn.relu({end('exp(' + begin('tanh(%x)', 'mine') + ')', 'mine')})", "x")
    after = partition(mod, ["a"])
    assert {tag: ops for tag, ops in zip(tags_of(after), ops_of(after)) if tag == "mine"} == {"mine": ["exp"]}
    assert sorted(ops_of(after)) == [["exp"], ["nn.relu"], ["tanh"]]


def test_with_no_backend_nothing_changes() -> None:
    mod = vectors("exp(%x)", "x")
    assert structural_equal(partition(mod, []), mod)


def test_a_pass_that_the_context_disables_does_not_run() -> None:
    takes("a", "exp", "tanh")
    with PassContext(disabled_pass=["MergeCompilerRegions"]):
        apart = partition(vectors("tanh(exp(%x))", "x"), ["a"])
    assert sorted(ops_of(apart)) == [["exp"], ["tanh"]]
    assert ops_of(partition(vectors("tanh(exp(%x))", "x"), ["a"])) == [["exp", "tanh"]]


def test_what_is_computed_from_constants_is_given_to_the_region() -> None:
    takes("a", "add", "multiply")
    after = partition(
        vectors("add(%x, multiply(full(fill_value=0.0, shape=[3]), full(fill_value=2.0, shape=[3])))", "x"), ["a"]
    )
    (name,) = compiled(after)
    assert ops_of(after) == [["add"]]
    assert op_names(after["main"])[:3] == ["full", "full", "multiply"]
    assert constant_arguments(after, name) == {1}
    reasons = {each.call.op_name: each.reason for each in find_placements(after, ["a"]) if each.function == "main"}
    assert reasons["multiply"] == "it is computed once, from constants alone"


def weighted(size: int) -> IRModule:
    x = relay.var("x", shape=(size,))
    return infer_types(IRModule({"main": Function([x], relay.add(x, relay.const(np.ones(size, "float32"))))}))


def constants_in(root: Expr) -> int:
    return sum(isinstance(node, Constant) for node in post_order(root))


@pytest.mark.parametrize(("size", "limit", "bound"), [(100, 400, 1), (101, 400, 0), (2, 0, 0), (1, 0, 1)])
def test_weights_over_the_limit_are_arguments(size: int, limit: int, bound: int) -> None:
    """A tensor of one element is structure, and stands in the region whatever the limit."""
    takes("a", "add")
    after = partition(weighted(size), ["a"], bind_limit=limit)
    ((name, function),) = compiled(after).items()
    assert constants_in(function) == bound
    assert len(function.params) == 2 - bound
    assert constant_arguments(after, name) == (frozenset() if bound else {1})


def test_large_weights_leave_the_body_of_a_pattern() -> None:
    backend("v", 0, patterns=[("v.add", is_op("add")(wildcard(), is_constant()))])
    mod = weighted(100)
    inside, outside = partition(mod, ["v"]), partition(mod, ["v"], bind_limit=100)
    assert [constants_in(function) for function in compiled(inside).values()] == [1]
    ((name, function),) = compiled(outside).items()
    assert constants_in(function) == 0
    assert constant_arguments(outside, name) == {1}
    data = np.arange(100, dtype="float32")
    np.testing.assert_array_equal(interpret(outside, data), interpret(mod, data))


def test_a_retrained_model_has_the_same_regions() -> None:
    takes("a", "add")
    texts = []
    for value in (1.0, 2.0):
        x = relay.var("x", shape=(3,))
        body = relay.add(x, relay.const(np.full(3, value, "float32")))
        (function,) = compiled(partition(IRModule({"main": Function([x], body)}), ["a"], bind_limit=0)).values()
        texts.append(str(function))
    assert texts[0] == texts[1]


def test_every_function_is_partitioned() -> None:
    takes("a", "exp")
    mod = parse(f"def @main(%x: {VECTOR}) {{ exp(@g(%x)) }} def @g(%x: {VECTOR}) -> {VECTOR} {{ exp(%x) }}")
    assert len(compiled(partition(infer_types(mod), ["a"]))) == 2
