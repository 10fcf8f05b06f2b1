"""Merging: what becomes one region, what must not, and how long it takes."""

from __future__ import annotations

import random
import time

import pytest
from partitioning import VECTOR, begin, compiled, end, op_names, ops_of, partition, run, takes, vectors

from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, Function, Tuple
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.merge_compiler_regions import MergeCompilerRegions, merge_units
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.partition.regions import read_regions
from relaybuild.relay import var


def groups_of(needs: list[list[int]], classes: list[str | None]) -> list[list[int]]:
    """The sets of more than one unit."""
    groups = merge_units(needs, classes)
    members: dict[int, list[int]] = {}
    for number in range(len(needs)):
        members.setdefault(groups.find(number), []).append(number)
    return sorted(each for each in members.values() if len(each) > 1)


def test_a_diamond_with_one_arm_elsewhere() -> None:
    """MR01: the arm of the compiler joins what is above it, and what is below stays apart; else there is a cycle."""
    takes("a", "nn.relu", "add")
    mod = vectors("%0 = nn.relu(%x); %1 = nn.relu(%0); %2 = abs(%0); add(%1, %2)", "x")
    wanted = vectors(
        f"%0 = nn.relu({begin('%x')}); %1 = nn.relu(%0); "
        f"%2 = {end('abs(' + begin(end('%0'), 'default') + ')', 'default')}; "
        + end(f"add({begin(end('%1'))}, {begin('%2')})"),
        "x",
    )
    after = run(mod, AnnotateTarget("a"), MergeCompilerRegions())
    assert structural_equal(after, wanted), str(after)
    assert ops_of(run(after, PartitionGraph())) == [["nn.relu", "nn.relu"], ["add"]]


def test_ten_sums_and_differences() -> None:
    """MR02: of ten calls over ten inputs, the sums above the host's detour are one region, those below another."""
    takes("a", "add")
    body = """
      %0 = add(%i1, %i2); %1 = add(%i3, %i4); %2 = add(%0, %1);
      %3 = subtract(%i5, %i6); %4 = subtract(%i7, %3);
      %5 = add(%4, %2); %6 = subtract(%i8, %5); %7 = add(%i9, %5);
      %8 = add(%7, %6); %9 = add(%8, %i10);
      %9
    """
    after = partition(vectors(body, *(f"i{number}" for number in range(1, 11))))
    assert ops_of(after) == [["add"] * 5, ["add"] * 2]
    assert op_names(after["main"]) == ["subtract"] * 3


def test_regions_around_conditionals() -> None:
    """MR03: regions in a condition, in branches and behind them are apart, and can be cut out without a cycle."""
    takes("a", "nn.relu", "add", "less", "sum")
    mod = vectors(
        """
        %0 = nn.relu(%x);
        %1 = if (less(sum(add(%0, %y)), 1f)) { add(%0, nn.relu(%y)) } else { nn.relu(exp(%0)) };
        %2 = nn.relu(%0);
        add(%1, %2)
        """,
        "x",
        "y",
    )
    after = partition(mod)
    assert sorted(map(sorted, ops_of(after))) == sorted(
        map(sorted, [["nn.relu", "add", "sum", "less", "nn.relu"], ["nn.relu", "add"], ["nn.relu"], ["add"]])
    )


def test_regions_of_a_marked_diamond() -> None:
    """AR01: a diamond of four calls, each marked, has four regions."""
    assert len(read_regions(diamond()).tags) == 4


def test_regions_can_be_put_together() -> None:
    """AR02: with two regions made one, three are left."""
    regions = read_regions(diamond())
    merged = regions.regrouped(lambda node: max(regions.region_of[id(node)], 1), regions.tag_of)
    assert len(merged.tags) == 3


def diamond() -> Function:
    top, left, right = "%0", end(f"abs({begin(end('%0'))})"), end(f"tanh({begin(end('%0'))})")
    return vectors(f"{top} = nn.relu({begin('%x')}); {end(f'add({begin(left)}, {begin(right)})')}", "x")["main"]


def test_a_way_through_another_compiler_keeps_regions_apart() -> None:
    assert groups_of([[], [0], [0, 1]], ["a", "b", "a"]) == []
    assert groups_of([[], [0], [0, 1]], ["a", "a", "a"]) == [[0, 1, 2]]


def test_regions_of_different_depth_are_merged_where_nothing_is_between() -> None:
    """0 and 3 are one, though 3 needs the host's 2, which does not need 0."""
    assert groups_of([[], [], [1], [0, 2]], ["a", "a", None, "a"]) == [[0, 3]]


def test_a_merge_can_rule_out_another() -> None:
    """Of two pairs that cross, one is merged: both would need each other."""
    needs = [[], [], [], [0], [1], [0, 4], [1, 3]]
    classes = ["a", "b", None, None, None, "a", "b"]
    assert groups_of(needs, classes) in ([[0, 5]], [[1, 6]])


def test_the_topological_order_is_kept_by_merging() -> None:
    """Chains that are merged crosswise, so that the order must change at each merge."""
    needs: list[list[int]] = [[]]
    classes: list[str | None] = ["a"]
    for number in range(1, 60):
        needs.append(sorted({number - 1 - (number % 3), max(0, number - 7)} & set(range(number))))
        classes.append(["a", "b", None, "a"][number % 4])
    assert_acyclic(needs, groups_of(needs, classes))


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_stay_acyclic_and_merge_as_far_as_they_can(seed: int) -> None:
    source = random.Random(seed)
    count = source.randrange(2, 40)
    needs = [sorted(source.sample(range(number), min(number, source.randrange(0, 4)))) for number in range(count)]
    classes = [source.choice(["a", "a", "b", None]) for _ in range(count)]
    groups = groups_of(needs, classes)
    assert_acyclic(needs, groups)
    assert_coarsest(needs, classes, groups)


def quotient(needs: list[list[int]], groups: list[list[int]]) -> dict[int, set[int]]:
    leader = {each: group[0] for group in groups for each in group}
    found: dict[int, set[int]] = {leader.get(number, number): set() for number in range(len(needs))}
    for number, operands in enumerate(needs):
        own = leader.get(number, number)
        found[own] |= {leader.get(each, each) for each in operands} - {own}
    return found


def assert_acyclic(needs: list[list[int]], groups: list[list[int]]) -> None:
    graph = quotient(needs, groups)
    while graph:
        ready = [each for each, operands in graph.items() if not operands & graph.keys()]
        assert ready, "the regions need each other"
        for each in ready:
            del graph[each]


def assert_coarsest(needs: list[list[int]], classes: list[str | None], groups: list[list[int]]) -> None:
    graph = quotient(needs, groups)
    for user, operands in graph.items():
        for operand in operands:
            if classes[operand] is not None and classes[operand] == classes[user]:
                others = [each for each in operands if each != operand]
                assert any(reaches(graph, each, operand) for each in others), (operand, user)


def reaches(graph: dict[int, set[int]], start: int, goal: int) -> bool:
    stack, seen = [start], {start}
    while stack:
        top = stack.pop()
        if top == goal:
            return True
        fresh = graph[top] - seen
        seen |= fresh
        stack += fresh
    return False


def test_a_tuple_of_the_host_joins_the_region_that_uses_it() -> None:
    """Branches of which some are the host's meet in a concatenation, which is one region with the others."""
    takes("a", "nn.relu", "concatenate")
    after = partition(vectors("concatenate((nn.relu(%x), exp(%y), nn.relu(%y)))", "x", "y"))
    assert ops_of(after) == [["nn.relu", "nn.relu", "concatenate"]]


def test_where_effects_count_regions_stay_apart() -> None:
    takes("a", "nn.relu")
    body = "let %r = ref(%x); %0 = nn.relu(nn.relu(ref_read(%r))); let %n = ref_write(%r, %0); ref_read(%r)"
    assert ops_of(partition(vectors(body, "x"))) == [["nn.relu"], ["nn.relu"]]


def test_a_let_ends_a_region() -> None:
    takes("a", "nn.relu")
    after = partition(vectors("let %y = nn.relu(nn.relu(%x)); nn.relu(%y)", "x"))
    assert ops_of(after) == [["nn.relu", "nn.relu"], ["nn.relu"]]


def test_a_region_that_needs_itself_is_an_error() -> None:
    """Marks by hand around both ends of a detour."""
    detour = f"exp({end('%0')})"
    mod = vectors(f"%0 = nn.relu({begin('%x')}); {end(f'add(%0, {begin(detour)})')}", "x")
    for each in (MergeCompilerRegions(), PartitionGraph()):
        with pytest.raises(UserError, match=r"of 2 nodes from the call of 'nn.relu' to the call of 'add', needs"):
            each(mod)


def densely_connected(layers: int, reach: int) -> IRModule:
    """Each layer concatenates what the last `reach` layers made; every other layer has a call of the host."""
    x = var("x", (1, 4, 2, 2))
    made: list[Expr] = [x]
    for number in range(layers):
        joined = call_op("concatenate", [Tuple(made[-reach:])], axis=1)
        part = call_op("strided_slice", [joined], begin=(0, 0, 0, 0), end=(1, 4, 2, 2))
        made.append(call_op("exp" if number % 2 else "nn.relu", [part]))
    return infer_types(IRModule({"main": Function([x], made[-1])}))


def test_densely_connected_layers_take_no_time() -> None:
    """600 nodes, each connected with many: a second on a quiet machine; minutes are what must not be."""
    takes("a", "concatenate", "nn.relu", "strided_slice")
    marked = AnnotateTarget("a")(densely_connected(200, 12))
    start = time.perf_counter()
    merged = MergeCompilerRegions()(marked)
    assert time.perf_counter() - start < 20
    assert len(compiled(PartitionGraph()(merged))) == 100


def test_long_chains_are_merged_under_the_default_recursion_limit() -> None:
    takes("a", "nn.relu")
    takes("b", "tanh")
    x = var("x", (3,))
    value: Expr = x
    for number in range(2400):
        value = call_op(("nn.relu", "nn.relu", "tanh", "exp")[number % 4], [value])
    after = PartitionGraph()(
        MergeCompilerRegions()(AnnotateTarget(("a", "b"))(IRModule({"main": Function([x], value)})))
    )
    assert len(compiled(after)) == 1200


def test_nested_functions_are_regions_of_their_own() -> None:
    takes("a", "nn.relu", "add")
    mod = parse(
        f"def @main(%x: {VECTOR}) {{ %0 = nn.relu(%x);"
        f" let %f = fn (%y: {VECTOR}) {{ add(nn.relu(%y), %0) }}; add(%f(%0), %f(%x)) }}"
    )
    assert ops_of(partition(mod)) == [["nn.relu", "add"], ["nn.relu"], ["add"]]
