"""Reports: regions under the names that partitioning gives them, counts, and why the host has the rest."""

from __future__ import annotations

from typing import Any

from partitioning import VECTOR, begin, compiled, end, op_names, takes, vectors

from relaybuild.ir.infer import infer_types
from relaybuild.ir.parser import parse
from relaybuild.ir.pattern import is_op, wildcard
from relaybuild.partition.backend import Backend, register_backend
from relaybuild.partition.pipeline import partition
from relaybuild.partition.report import report


def no_code(*args: Any) -> Any:
    raise AssertionError("no code is generated here")


def test_regions_are_those_that_partitioning_cuts_out() -> None:
    takes("a", "nn.relu", "tanh")
    takes("b", "exp", "add")
    mod = vectors("%0 = exp(nn.relu(tanh(%x))); add(%0, nn.relu(sqrt(%0)))", "x")
    found = report(mod, ["a", "b"], mod_name="m")
    cut = compiled(partition(mod, ["a", "b"], mod_name="m"))
    assert {each.name: sorted(each.operators) for each in found.region_facts()} == {
        name: sorted(op_names(function)) for name, function in cut.items()
    }
    assert {each.name: each.backend for each in found.region_facts()} == {
        name: function.attrs["Compiler"] for name, function in cut.items()
    }


def test_the_operators_of_patterns_are_counted() -> None:
    pattern = is_op("exp")(is_op("abs")(wildcard()))
    register_backend(Backend("v", "v", "", no_code, patterns=[("v.exp_abs", pattern)]))
    found = report(vectors("exp(abs(exp(abs(%x))))", "x"), ["v"])
    (facts,) = found.region_facts()
    assert facts.operators == {"abs": 2, "exp": 2}
    assert facts.calls == 4
    assert [each.title for each in found.calls] == ["v.exp_abs", "v.exp_abs"]


def test_calls_of_the_host_are_grouped_by_reason() -> None:
    takes("a", "nn.relu")
    found = report(vectors("exp(tanh(exp(nn.relu(%x))))", "x"), ["a"])
    assert [(each.title, each.reason, len(each.calls)) for each in found.unplaced()] == [
        ("exp", "'a' does not take 'exp'", 2),
        ("tanh", "'a' does not take 'tanh'", 1),
    ]


def test_what_is_computed_once_is_apart() -> None:
    takes("a", "add", "exp")
    found = report(vectors("add(%x, exp(full(fill_value=2.0, shape=[3])))", "x"), ["a"])
    assert [each.title for each in found.calls] == ["add"]
    assert [each.call.op_name for each in found.constants] == ["full", "exp"]


def test_marks_and_functions_of_other_compilers_are_regions() -> None:
    mod = vectors(end(f"exp({begin('%x', 'mine')})", "mine"), "x")
    assert [(each.name, each.backend) for each in report(mod, []).region_facts()] == [
        ("relaybuild_default_mine_main_0", "mine")
    ]
    callee = f'def @f(%y: {VECTOR}, Compiler="mine", global_symbol="f") -> {VECTOR} {{ tanh(%y) }}'
    given = report(infer_types(parse(f"def @main(%x: {VECTOR}) {{ exp(@f(%x)) }} {callee}")), [])
    assert [(each.name, each.backend, dict(each.operators)) for each in given.region_facts()] == [
        ("f", "mine", {"tanh": 1})
    ]
    assert [each.title for each in given.calls if each.region is None] == ["exp"]
