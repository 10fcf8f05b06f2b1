"""Marks: who takes a call, what has no mark, and that runs add up."""

from __future__ import annotations

import itertools

import pytest
from partitioning import VECTOR, begin, compiled, end, op_names, ops_of, partition, run, takes, vectors

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.visitor import post_order
from relaybuild.partition.annotate_target import AnnotateTarget
from relaybuild.partition.backend import register_supports
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.partition.regions import is_mark, mark_tag
from relaybuild.relay import var


def assert_annotated(mod: IRModule, wanted: IRModule, targets: str | tuple[str, ...], non_calls: bool = True) -> None:
    after = run(mod, AnnotateTarget(targets, non_calls))
    assert structural_equal(after, wanted), str(after)


def tags(mod: IRModule) -> set[str]:
    return {mark_tag(node) for function in mod.functions.values() for node in post_order(function) if is_mark(node)}


def test_what_is_taken_is_marked_as_by_hand() -> None:
    """AT01: depthwise convolutions and their sum stand in begins and ends, as marked by hand."""
    takes("maker", "nn.conv2d", "add")
    params = "%x: Tensor[(1, 4, 6, 6), float32], %w: Tensor[(4, 1, 3, 3), float32]"
    conv = "nn.conv2d({x}, {w}, padding=[1], groups=4)"
    plain = f"%0 = {conv.format(x='%x', w='%w')}; %1 = {conv.format(x='%0', w='%w')}; %1 + %0"
    b = lambda value: begin(value, "maker")  # noqa: E731
    e = lambda value: end(value, "maker")  # noqa: E731
    marked = f"%0 = {conv.format(x=b('%x'), w=b('%w'))}; %1 = {conv.format(x=b(e('%0')), w=b('%w'))};" + e(
        f"add({b(e('%1'))}, {b(e('%0'))})"
    )
    mod, wanted = (infer_types(parse(f"def @main({params}) {{ {body} }}")) for body in (plain, marked))
    assert_annotated(mod, wanted, "maker")


def test_a_small_mobile_network_is_marked_and_keeps_its_values() -> None:
    """AT02: depthwise blocks of convolution, sum and activation, marked, give the same values."""
    takes("maker", "nn.conv2d", "nn.relu", "add")
    x = value = var("x", (1, 4, 6, 6))
    weights = [var(f"w{number}", (4, 1 if number % 2 else 4, 3, 3)) for number in range(4)]
    for number, weight in enumerate(weights):
        value = call_op("nn.conv2d", [value, weight], padding=(1,), groups=4 if number % 2 else 1)
        value = call_op("nn.relu", [call_op("add", [value, x])])
    after = run(IRModule({"main": Function([x, *weights], call_op("tanh", [value]))}), AnnotateTarget("maker"))
    assert tags(after) == {"maker", "default"}


def test_each_use_has_an_end_of_its_own() -> None:
    """AT03: a value with two consumers has two ends; what is not taken is marked for the host."""
    takes("a", "nn.relu")
    mod = vectors("%0 = nn.relu(%x); add(abs(%0), nn.relu(%0))", "x")
    r, host = begin("%x"), "default"
    wanted = vectors(
        f"%0 = nn.relu({r}); "
        f"%1 = abs({begin(end('%0'), host)}); "
        f"%2 = nn.relu({begin(end('%0'))}); "
        + end(f"add({begin(end('%1', host), host)}, {begin(end('%2'), host)})", host),
        "x",
    )
    assert_annotated(mod, wanted, "a")


def test_predicates_see_the_types_of_arguments() -> None:
    """AT04: a predicate that asks for a dtype sees it, at the second run too."""
    seen: list[str] = []

    @register_supports("a", "less")
    def less_of_floats(call: Call) -> bool | str:
        seen.extend(arg.tensor_type.dtype for arg in call.args)
        return call.args[0].tensor_type.dtype == "float32" or "it compares float32 alone"

    mod = parse(f"def @main(%x: {VECTOR}, %n: int32) {{ (less(%x, 1f), less(%n, 3)) }}")
    after = run(mod, AnnotateTarget("a"), AnnotateTarget(("a",)))
    assert set(seen) == {"float32", "int32"}
    assert tags(after) == {"a", "default"}


@pytest.mark.parametrize("non_calls", [True, False])
def test_references_are_the_hosts(non_calls: bool) -> None:
    """AT05: references have marks of the host where what is no call has marks, and none otherwise."""
    takes("a", "nn.relu")
    mod = vectors("let %r = ref(%x); let %n = ref_write(%r, nn.relu(ref_read(%r))); ref_read(%r)", "x")
    after = run(mod, AnnotateTarget("a", non_calls))
    assert tags(after) == ({"a", "default"} if non_calls else {"a"})
    assert len(compiled(run(after, PartitionGraph()))) == 1


@pytest.mark.parametrize("non_calls", [True, False])
def test_a_tuple_between_calls_that_are_taken(non_calls: bool) -> None:
    """AT06: a tuple is marked as its operands are, or not at all; partitioning follows."""
    takes("a", "nn.relu", "concatenate")
    mod = vectors("concatenate((nn.relu(%x), nn.relu(%y)))", "x", "y")
    x, y = (end(f"nn.relu({begin(name)})") for name in ("%x", "%y"))
    pair = end(f"({begin(x)}, {begin(y)})") if non_calls else f"({x}, {y})"
    assert_annotated(mod, vectors(end(f"concatenate({begin(pair)})"), "x", "y"), "a", non_calls)
    after = run(mod, AnnotateTarget("a", non_calls), PartitionGraph())
    assert sorted(ops_of(after)) == [["concatenate"], ["nn.relu"], ["nn.relu"]]


def test_a_pattern_goes_to_the_compiler_by_which_its_name_begins() -> None:
    """AT07: a composite function of 'test.conv' is taken by 'test', its body is not looked into."""
    takes("test", "nn.relu")
    body = f'%0 = fn (%y: {VECTOR}, Composite="test.conv.relu") {{ nn.relu(abs(%y)) }}; '
    mod = vectors(body + "%0(%x)", "x")
    wanted = vectors(body + end(f"%0({begin('%x', 'test')})", "test"), "x")
    assert_annotated(mod, wanted, "test")
    assert tags(run(mod, AnnotateTarget("other"))) == {"default"}


def test_the_same_target_twice_is_once() -> None:
    """AT08: a second run with the same target changes nothing."""
    takes("a", "nn.relu")
    once = run(vectors("exp(nn.relu(%x))", "x"), AnnotateTarget("a"))
    assert structural_equal(run(once, AnnotateTarget("a")), once)


def test_runs_with_different_targets_are_one_run() -> None:
    """AT09: after 'a' a run with 'b' marks what 'a' has left; a third run changes nothing."""
    takes("a", "nn.relu", "abs")
    takes("b", "abs", "tanh")
    mod = vectors("exp(tanh(abs(nn.relu(%x))))", "x")
    together = run(mod, AnnotateTarget(("a", "b")))
    apart = run(mod, AnnotateTarget("a"), AnnotateTarget("b"))
    assert structural_equal(apart, together)
    assert structural_equal(run(apart, AnnotateTarget(("b", "a"))), together)
    assert tags(together) == {"a", "b", "default"}


@pytest.mark.parametrize("non_calls", [True, False])
def test_several_runs_over_tuples_are_one(non_calls: bool) -> None:
    """AT10: 'a' then 'b' is both in that order, with marks on tuples and without."""
    takes("a", "nn.relu", "split")
    takes("b", "abs", "concatenate", "split")
    body = "%0 = concatenate((abs(%x), abs(%y))); %1 = split(%0, indices_or_sections=2); (nn.relu(%1.0), %1.1)"
    mod = vectors(body, "x", "y")
    together = run(mod, AnnotateTarget(("a", "b"), non_calls))
    assert structural_equal(run(mod, AnnotateTarget("a", non_calls), AnnotateTarget("b", non_calls)), together)


@pytest.mark.parametrize(("non_calls", "field"), list(itertools.product([True, False], [True, False])))
def test_a_function_that_ends_with_a_tuple(non_calls: bool, field: bool) -> None:
    """AT11: a tuple, or a field of one, as the result is marked as its operands are, or not at all."""
    takes("clip", "clip")
    clip = lambda value, high: f"clip({value}, a_min=0f, a_max={high}f)"  # noqa: E731
    b = lambda value: begin(value, "clip")  # noqa: E731
    e = lambda value: end(value, "clip")  # noqa: E731
    mod = vectors(f"%0 = {clip('%x', 1)}; %1 = ({clip('%0', 15)}, {clip('%0', 16)}); {'%1.0' if field else '%1'}", "x")
    first, second = (e(clip(b(e("%0")), high)) for high in (15, 16))
    pair = e(f"({b(first)}, {b(second)})") if non_calls else f"({first}, {second})"
    last = (e(f"{b('%1')}.0") if non_calls else "%1.0") if field else "%1"
    wanted = vectors(f"%0 = {clip(b('%x'), 1)}; %1 = {pair}; {last}", "x")
    assert_annotated(mod, wanted, "clip", non_calls)


def test_branches_are_marked_apart() -> None:
    """AT12: both branches have regions of their own, and the condition ends before the conditional."""
    takes("a", "nn.relu", "less", "sum")
    mod = vectors("%0 = nn.relu(%x); if (less(sum(%0), 1f)) { nn.relu(%0) } else { abs(%0) }", "x")
    condition = end(f"less({begin(end('sum(' + begin(end('%0')) + ')'))}, {begin('1f')})")
    branches = [end(f"nn.relu({begin(end('%0'))})"), end(f"abs({begin(end('%0'), 'default')})", "default")]
    wanted = vectors(f"%0 = nn.relu({begin('%x')}); if ({condition}) {{ {branches[0]} }} else {{ {branches[1]} }}", "x")
    assert_annotated(mod, wanted, "a")


def test_a_recursive_local_function() -> None:
    """AT13: the body of a loop is marked, the call of the loop is the host's."""
    takes("a", "less", "add")
    loop = "fn (%i: int32) -> int32 {{ if ({cond}) {{ {again} }} else {{ %i }} }}"
    mod = parse(
        "def @main(%n: int32) { let %loop = "
        + loop.format(cond="less(%i, 10)", again="%loop(add(%i, 1))")
        + "; %loop(%n) }"
    )
    step = end(f"add({begin('%i')}, {begin('1')})")
    marked = loop.format(
        cond=end(f"less({begin('%i')}, {begin('10')})"),
        again=end(f"%loop({begin(step, 'default')})", "default"),
    )
    wanted = parse(
        f"def @main(%n: int32) {{ let %loop = {marked}; {end('%loop(' + begin('%n', 'default') + ')', 'default')} }}"
    )
    assert_annotated(mod, infer_types(wanted), "a")


def test_calls_without_operands_in_branches_have_no_marks() -> None:
    """AT14: what a branch makes of nothing is not marked itself."""
    takes("a", "full", "nn.relu")
    mod = vectors("if (less(sum(%x), 1f)) { full(shape=[3], fill_value=1.0) } else { nn.relu(%x) }", "x")
    after = run(mod, AnnotateTarget("a"))
    branch = next(node for node in post_order(after["main"]) if type(node).__name__ == "If")
    assert not any(is_mark(node) for node in post_order(branch.children()[1]))
    assert any(is_mark(node) for node in post_order(branch.children()[2]))


def test_calls_without_operands_have_no_end() -> None:
    """AT15: zeros are handed over by a begin alone."""
    takes("a", "full", "add")
    mod = vectors("add(%x, full(shape=[3], fill_value=0.0))", "x")
    wanted = vectors(end(f"add({begin('%x')}, {begin('full(shape=[3], fill_value=0.0)')})"), "x")
    assert_annotated(mod, wanted, "a")


def test_an_empty_tuple_has_no_marks() -> None:
    """AT16: a function of nothing that returns an empty tuple stays as it is."""
    mod = infer_types(parse("def @main() { () }"))
    assert_annotated(mod, mod, "a")


def test_functions_of_other_compilers_are_left_alone() -> None:
    takes("a", "nn.relu")
    once = partition(vectors("exp(nn.relu(%x))", "x"))
    name = next(iter(compiled(once)))
    assert run(once, AnnotateTarget("a"))[name] is once[name]
    assert op_names(once[name]) == ["nn.relu"]


TWO_FUNCTIONS = f"def @main(%x: {VECTOR}) {{ exp(@g(%x)) }} def @g(%x: {VECTOR}) -> {VECTOR} {{ exp(%x) }}"


def test_functions_that_are_named_are_marked_alone() -> None:
    takes("a", "exp")
    after = partition_functions("g")
    assert [name for name in after if "Compiler" in after[name].attrs] == ["relaybuild_default_a_g_0"]
    assert len(partition_functions("g", "main")) == 4


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UserError, match="no function '@mian' to be partitioned; the nearest are main"):
        partition_functions("mian")


def partition_functions(*names: str) -> IRModule:
    return run(parse(TWO_FUNCTIONS), AnnotateTarget("a", functions=names), PartitionGraph())


def test_what_is_computed_from_constants_has_no_marks_where_it_is_left_out() -> None:
    takes("a", "add", "exp")
    mod = vectors("add(%x, exp(full(fill_value=0.0, shape=[3])))", "x")
    wanted = vectors(end(f"add({begin('%x')}, {begin('exp(full(fill_value=0.0, shape=[3]))')})"), "x")
    assert structural_equal(run(mod, AnnotateTarget("a", include_constants=False)), wanted)
    assert not structural_equal(run(mod, AnnotateTarget("a")), wanted)
