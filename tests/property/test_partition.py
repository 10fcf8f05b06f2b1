"""What must hold of partitioning every program, with any compilers that take any operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_language import language_arguments, language_modules
from random_programs import arguments, modules

from relaybuild.ir.expr import Call, Expr, Function, GlobalVar
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.partition import backend
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.partition.regions import is_mark, read_regions, region_number, unit_graph
from relaybuild.passes.infra import Sequential

EXAMPLES = settings(max_examples=40, deadline=None)
TAGS = ("a", "b", "c")

Assignment = Mapping[str, frozenset[str]]
"""The operators that the compiler of each tag takes."""


@st.composite
def assignments(draw: Callable[[Any], Any]) -> Assignment:
    """Some compilers in some order, each of which takes some operators, often the same."""
    chosen = draw(st.lists(st.sampled_from(TAGS), unique=True, min_size=1))
    salt = draw(st.integers(0, 1 << 16))
    share = draw(st.integers(3, 9))
    names = sorted(backend_ops())
    return {
        tag: frozenset(name for number, name in enumerate(names) if hash((salt, tag_number, number)) % 10 < share)
        for tag_number, tag in enumerate(chosen)
    }


def backend_ops() -> list[str]:
    from relaybuild.ir.op import all_ops

    return [name for name in all_ops() if not name.startswith("annotation.")]


@pytest.fixture(autouse=True, scope="module")
def _compilers() -> Any:
    """Compilers that take what `_taken` says at the moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "supports", backend.supports)
        yield


def partitioned(mod: IRModule, assignment: Assignment, non_calls: bool, merge: bool) -> IRModule:
    def supports(tag: str, call: Call) -> bool | str:
        return call.op_name in assignment[tag] or f"'{tag}' has no '{call.op_name}'"

    passes = [AnnotateTarget(tuple(assignment), non_calls), *([MergeCompilerRegions()] if merge else [])]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relaybuild.partition.placement.supports", supports)
        return Sequential([*passes, PartitionGraph()])(mod)


def check(mod: IRModule, args: tuple[Any, ...], assignment: Assignment, non_calls: bool, merge: bool) -> None:
    mod = infer_types(mod)
    text, kind = print_module(mod), mod["main"].checked_type
    after = partitioned(mod, assignment, non_calls, merge)
    assert print_module(mod) == text
    verify_module(after, "typed")
    assert after["main"].checked_type == kind
    assert print_module(partitioned(mod, assignment, non_calls, merge)) == print_module(after)
    for a, b in zip(interpret(mod, *args), interpret(after, *args)):
        np.testing.assert_array_equal(b, a)
    check_regions(after, assignment)
    check_result(mod, after)


def check_regions(after: IRModule, assignment: Assignment) -> None:
    """Regions hold what their compiler takes, and everything it takes is in one; none is called twice."""
    called: list[str] = []
    for name, function in after.functions.items():
        tag = function.attrs.get("Compiler")
        for node in post_order(function):
            assert not is_mark(node)
            if isinstance(node, GlobalVar) and after[node].attrs.get("Compiler"):
                called.append(node.name_hint)
            if not isinstance(node, Call) or not isinstance(node.op, Op) or not node.args:
                continue
            takers = [each for each, taken in assignment.items() if node.op_name in taken]
            assert takers[:1] == ([tag] if tag else []), name
    names = [name for name, function in after.functions.items() if function.attrs.get("Compiler")]
    assert len(called) >= len(names)


def check_result(mod: IRModule, after: IRModule) -> None:
    """Putting the regions back gives a program of the same number of calls."""
    count = {True: 0, False: 0}
    for which, each in ((True, mod), (False, after)):
        for function in each.functions.values():
            count[which] += sum(isinstance(node, Call) and isinstance(node.op, Op) for node in post_order(function))
    assert count[True] == count[False]


@EXAMPLES
@given(modules(), assignments(), st.booleans(), st.booleans())
def test_partitioned_dataflow_means_the_same(mod: IRModule, to: Assignment, non_calls: bool, merge: bool) -> None:
    check(mod, arguments(), to, non_calls, merge)


@EXAMPLES
@given(language_modules(), assignments(), st.booleans(), st.booleans())
def test_partitioned_programs_mean_the_same(mod: IRModule, to: Assignment, non_calls: bool, merge: bool) -> None:
    check(mod, language_arguments(), to, non_calls, merge)


@EXAMPLES
@given(modules(), assignments())
def test_merged_regions_cannot_be_merged_further(mod: IRModule, assignment: Assignment) -> None:
    merged = annotated(mod, assignment)
    assert structural_equal(MergeCompilerRegions()(merged), merged)
    for function in merged.functions.values():
        check_coarsest(function)


def annotated(mod: IRModule, assignment: Assignment) -> IRModule:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relaybuild.partition.placement.supports", lambda tag, call: call.op_name in assignment[tag])
        return Sequential([AnnotateTarget(tuple(assignment)), MergeCompilerRegions()])(infer_types(mod))


def check_coarsest(function: Function) -> None:
    """Between neighbouring regions of one compiler and scope there is a way through something else."""
    regions = read_regions(function)
    graph = unit_graph(regions)
    users: list[list[int]] = [[] for _ in graph.units]
    for number, needs in enumerate(graph.needs):
        for each in needs:
            users[each].append(number)
    for number, needs in enumerate(graph.needs):
        for each in needs:
            a, b = graph.units[each], graph.units[number]
            if a.region is None or b.region is None or regions.tags[a.region] != regions.tags[b.region]:
                continue
            if regions.scope_of(a.nodes[0]) == regions.scope_of(b.nodes[0]):
                assert leads_around(users, each, number), (a, b)


def leads_around(users: list[list[int]], start: int, goal: int) -> bool:
    stack = [each for each in users[start] if each != goal]
    seen = set(stack)
    while stack:
        top = stack.pop()
        if top == goal:
            return True
        fresh = [each for each in users[top] if each not in seen]
        seen.update(fresh)
        stack += fresh
    return False


@EXAMPLES
@given(modules(), assignments(), st.booleans())
def test_annotating_twice_is_annotating_once(mod: IRModule, assignment: Assignment, non_calls: bool) -> None:
    mod = infer_types(mod)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relaybuild.partition.placement.supports", lambda tag, call: call.op_name in assignment[tag])
        together = AnnotateTarget(tuple(assignment), non_calls)(mod)
        apart = Sequential([AnnotateTarget(tag, non_calls) for tag in assignment])(mod)
        assert structural_equal(apart, together)
        assert structural_equal(AnnotateTarget(tuple(assignment), non_calls)(together), together)
    assert structural_equal(parse(print_module(together)), together)
    assert structural_equal(PartitionGraph()(AnnotateTarget((), non_calls)(mod)), mod)


def regions_of(mod: IRModule) -> set[int | None]:
    regions = read_regions(mod["main"])
    return {region_number(regions, node) for node in regions.order}


def size(root: Expr) -> int:
    return sum(1 for _ in post_order(root))
