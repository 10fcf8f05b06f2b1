"""Placements: who took each call, and the best reason why nobody did."""

from __future__ import annotations

from typing import Any

from partitioning import VECTOR, partition, run, takes, vectors

from relaybuild.ir.expr import Call
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.pattern import is_op, wildcard
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.backend import Backend, register_backend, register_supports
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions
from relaybuild.partition.placement import find_placements


def placed(mod: IRModule, *tags: str) -> list[tuple[str, str | None, str]]:
    return [(each.call.op_name, each.backend, each.reason) for each in find_placements(infer_types(mod), tags)]


def test_the_first_that_takes_a_call_has_it() -> None:
    takes("a", "nn.relu")
    takes("b", "nn.relu", "tanh")
    mod = vectors("exp(tanh(nn.relu(%x)))", "x")
    assert placed(mod, "a", "b") == [
        ("nn.relu", "a", ""),
        ("tanh", "b", ""),
        ("exp", None, "'a' does not take 'exp'"),
    ]
    assert placed(mod, "b", "a")[0] == ("nn.relu", "b", "")
    assert placed(mod)[0] == ("nn.relu", None, "no backend is asked")


def test_a_reason_that_a_backend_gives_is_the_best() -> None:
    @register_supports("b", "exp")
    def exp_of_matrices(call: Call) -> bool | str:
        return call.tensor_type.rank == 2 or "'exp' is for matrices alone"

    assert placed(vectors("exp(%x)", "x"), "a", "b") == [("exp", None, "'exp' is for matrices alone")]


def test_calls_of_functions_are_the_hosts() -> None:
    mod = parse(f"def @main(%x: {VECTOR}) {{ @other(%x) }} def @other(%x: {VECTOR}) -> {VECTOR} {{ %x }}")
    assert placed(mod, "a") == [("", None, "only calls of operators and patterns are placed")]


def test_a_pattern_is_one_call() -> None:
    body = f'%0 = fn (%y: {VECTOR}, Composite="v.exp_log") {{ log(exp(%y)) }}; tanh(%0(%x))'
    mod = vectors(body, "x")
    assert placed(mod, "v") == [("", "v", ""), ("tanh", None, "'v' does not take 'tanh'")]
    assert placed(mod, "w")[0] == ("", None, "'v.exp_log' is a pattern of 'v', which is not asked")


def test_placements_are_the_same_at_each_stage() -> None:
    takes("a", "nn.relu", "add")
    takes("b", "tanh")
    mod = vectors("%0 = nn.relu(%x); %1 = tanh(%0); exp(add(%0, %1))", "x")
    wanted = sorted(placed(mod, "a", "b"))
    marked = run(mod, AnnotateTarget(("a", "b")))
    assert sorted(placed(marked, "a", "b")) == wanted
    assert sorted(placed(run(marked, MergeCompilerRegions()), "a", "b")) == wanted
    assert [each for each in sorted(placed(partition(mod, ["a", "b"]), "a", "b")) if each[0]] == wanted


def test_a_placement_says_where_the_call_stood() -> None:
    takes("a", "nn.relu")
    mod = parse(f"def @main(%x: {VECTOR}) {{\n  nn.relu(%x)\n}}", "model.relay")
    (placement,) = find_placements(infer_types(mod), ("a",))
    assert (placement.function, str(placement.span)) == ("main", "model.relay:2:3")


def test_a_pattern_that_comes_near_says_why_not() -> None:
    pattern = is_op("exp")(is_op("abs")(wildcard()))
    register_backend(vendor(patterns=[("vendor.abs_exp", pattern, lambda root: "'abs_exp' is for matrices alone")]))
    backend, reason = placed(vectors("exp(abs(%x))", "x"), "vendor")[1][1:]
    assert backend is None
    assert reason.startswith("'vendor.abs_exp': ")
    assert "'abs_exp' is for matrices alone" in reason


def vendor(**fields: Any) -> Backend:
    def generate_nothing(*args: Any) -> Any:
        raise AssertionError("no code is generated here")

    return Backend("Vendor", "vendor", "USE_VENDOR", generate_nothing, **fields)
