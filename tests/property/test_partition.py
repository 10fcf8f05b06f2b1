"""What must hold of partitioning every program, with any compilers that take any operators."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_language import language_arguments, language_modules
from random_programs import arguments, modules

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem
from relaybuild.ir.infer import infer_types
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, all_ops, call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order, rewrite
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.partition.pipeline import partition
from relaybuild.partition.regions import Markable, compiler_begin, compiler_end, is_mark, read_regions, unit_graph
from relaybuild.passes.infra import Sequential
from relaybuild.relay import var

EXAMPLES = settings(max_examples=40, deadline=None)
TAGS = ("a", "b", "c")

Assignment = Mapping[str, frozenset[str]]
"""The operators that the compiler of each tag takes."""


@st.composite
def assignments(draw: Callable[[Any], Any]) -> Assignment:
    """Some compilers in some order, each of which takes some operators, often the same."""
    chosen = draw(st.lists(st.sampled_from(TAGS), unique=True, min_size=1))
    names = [name for name in all_ops() if not name.startswith("annotation.")]
    seed, share = draw(st.integers(0, 1 << 16)), draw(st.floats(0.2, 0.9))
    source = random.Random(seed)
    return {tag: frozenset(name for name in names if source.random() < share) for tag in chosen}


@contextmanager
def asking(assignment: Assignment) -> Iterator[None]:
    """Compilers take what is assigned to them, and say so."""

    def supports(tag: str, call: Call) -> bool | str:
        return call.op_name in assignment[tag] or f"'{tag}' has no '{call.op_name}'"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("relaybuild.partition.placement.supports", supports)
        yield


def partitioned(mod: IRModule, assignment: Assignment, non_calls: bool, merge: bool) -> IRModule:
    passes = [AnnotateTarget(tuple(assignment), non_calls), *([MergeCompilerRegions()] if merge else [])]
    with asking(assignment):
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
    # a field of a tuple may be all that is needed of it
    assert count_calls(after) <= count_calls(mod)


def check_regions(after: IRModule, assignment: Assignment) -> None:
    """Regions hold what their compiler takes, all that it takes is in one, and each is called at one place."""
    called: list[str] = []
    for function in after.functions.values():
        tag = function.attrs.get("Compiler")
        for node in post_order(function):
            assert not is_mark(node)
            if isinstance(node, GlobalVar) and after[node].attrs.get("Compiler"):
                called.append(node.name_hint)
            if isinstance(node, Call) and isinstance(node.op, Op) and node.args:
                takers = [each for each, taken in assignment.items() if node.op_name in taken]
                assert takers[:1] == ([tag] if tag else [])
    assert sorted(called) == [name for name, each in after.functions.items() if each.attrs.get("Compiler")]


def count_calls(mod: IRModule) -> int:
    nodes = (node for function in mod.functions.values() for node in post_order(function))
    return sum(isinstance(node, Call) and isinstance(node.op, Op) for node in nodes)


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
    with asking(assignment):
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
    with asking(assignment):
        together = AnnotateTarget(tuple(assignment), non_calls)(mod)
        apart = Sequential([AnnotateTarget(tag, non_calls) for tag in assignment])(mod)
        assert structural_equal(apart, together)
        assert structural_equal(AnnotateTarget(tuple(assignment), non_calls)(together), together)
    assert structural_equal(parse(print_module(together)), together)
    assert structural_equal(PartitionGraph()(AnnotateTarget((), non_calls)(mod)), mod)


@EXAMPLES
@given(language_modules(), st.integers(0, 1 << 16), st.sampled_from([1, 3]))
def test_marks_made_anyhow_mean_nothing_or_are_refused(mod: IRModule, seed: int, compilers: int) -> None:
    marked = infer_types(mod.with_function("main", with_random_marks(mod["main"], random.Random(seed), compilers)))
    for passes in (
        [PartitionGraph()],
        [MergeCompilerRegions(), PartitionGraph()],
        [AnnotateTarget(), PartitionGraph()],
    ):
        try:
            after = Sequential(passes)(marked)
        except UserError as error:
            if "is marked for the compilers" in error.message or "needs a result of its own" in error.message:
                continue
            raise
        verify_module(after, "typed")
        assert not any(is_mark(node) for function in after.functions.values() for node in post_order(function))
        for a, b in zip(interpret(mod, *language_arguments()), interpret(after, *language_arguments())):
            np.testing.assert_array_equal(b, a)


def with_random_marks(function: Function, source: random.Random, compilers: int) -> Function:
    """Begins and ends around some operands of some calls, tuples and fields."""
    markable = Markable()

    def rule(node: Expr) -> Expr:
        if not isinstance(node, (Call, Tuple, TupleGetItem)):
            return node
        first = 1 if isinstance(node, Call) and isinstance(node.op, Expr) else 0
        children = list(node.children())
        for number in range(first, len(children)):
            for mark in source.choice(((), (compiler_end,), (compiler_begin,), (compiler_end, compiler_begin))):
                if markable.holds(children[number]):
                    children[number] = mark(children[number], source.choice(TAGS[:compilers]))
        return node.with_children(children)

    result = rewrite(function, rule)
    assert isinstance(result, Function)
    return result


@EXAMPLES
@given(modules(), assignments(), st.sampled_from([0, 8, 4096]))
def test_the_whole_way_means_the_same(mod: IRModule, assignment: Assignment, limit: int) -> None:
    """Weights outside of regions, and what is constant with the host."""
    mod = infer_types(mod)
    with asking(assignment):
        after = partition(mod, tuple(assignment), bind_limit=limit)
        assert print_module(partition(mod, tuple(assignment), bind_limit=limit)) == print_module(after)
    verify_module(after, "typed")
    for a, b in zip(interpret(mod, *arguments()), interpret(after, *arguments())):
        np.testing.assert_array_equal(b, a)
    for function in after.functions.values():
        if function.attrs.get("Compiler"):
            weights = [node for node in post_order(function) if isinstance(node, Constant) and node.is_weight]
            assert all(weight.data.nbytes <= limit for weight in weights)


def test_thousands_of_nodes_take_a_second() -> None:
    """2,000 calls for two compilers and the host: a second on a quiet machine, and far less than the limit anywhere."""
    source = random.Random(0)
    x = var("x", (3,))
    values: list[Expr] = [x]
    for _ in range(2000):
        name = source.choice(["add", "multiply", "maximum"])
        values.append(call_op(name, [source.choice(values[-8:]), source.choice(values[-8:])]))
    mod = infer_types(IRModule({"main": Function([x], Tuple(values[-8:]))}))
    with asking({"a": frozenset(["add"]), "b": frozenset(["multiply"])}):
        start = time.perf_counter()
        after = partition(mod, ["a", "b"])
        assert time.perf_counter() - start < 10
    verify_module(after, "typed")
    assert count_calls(after) == count_calls(mod)
