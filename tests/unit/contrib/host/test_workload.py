"""Workloads of kernels: equal ones have equal kernels, and what a kernel depends on is in them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from property import test_host as graphs
from property.random_programs import modules
from runners.compiled import Batch, generate
from runners.test_host import BATCHES, add_case
from suites.ops import Case

from relaybuild.contrib.host import lower, schedule, workload
from relaybuild.contrib.host.fuse import Group
from relaybuild.contrib.host.kernel_code import KernelCode, Kernels
from relaybuild.contrib.host.place import View, is_own
from relaybuild.digest import Digest
from relaybuild.ir.expr import Constant, Expr, Function, Span, Tuple, Var, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.lower.loop_ir import Kernel

TARGETS = ("c", "x86-64-v3")


class Seen(dict[Digest, KernelCode]):
    """The kernels of all workloads so far, and how often one came up again."""

    again = 0


SEEN = Seen()


class Checking(Kernels):
    """Makes every kernel again, and compares it with those of the same workload, in whichever program."""

    def code(self, place: str, workload: Digest, lower: Callable[[], Kernel]) -> KernelCode:
        kernel = lower()
        made = KernelCode.of(kernel)
        known = SEEN.setdefault(workload, made)
        SEEN.again += known is not made
        assert known == made, f"two kernels of one workload:\n{known.text}\n{made.text}"
        return super().code(place, workload, lambda: kernel)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "Kernels", Checking)


@pytest.mark.parametrize("batch", BATCHES, ids=lambda batch: f"{batch[0]}...")
def test_equal_workloads_of_operators_have_equal_kernels(checked: None, batch: list[Case]) -> None:
    gathered = Batch()
    for case in batch:
        add_case(gathered, case)
    for target in TARGETS:
        gathered.generate(target)


def test_kernels_that_come_up_again_are_compared(checked: None) -> None:
    for value in (1.0, 2.0):
        before = SEEN.again
        generate(infer_types(IRModule({"main": block(value)}))["main"], TARGETS[0])
    assert SEEN.again > before


@pytest.mark.parametrize("seed", range(4))
def test_equal_workloads_of_graphs_have_equal_kernels(checked: None, seed: int) -> None:
    for target in TARGETS:
        generate(graphs.gather(seed).function(), target)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(modules())
def test_equal_workloads_of_programs_have_equal_kernels(checked: None, module: IRModule) -> None:
    generate(infer_types(module)["main"], "c")


def workloads(function: Function, target: str = "x86-64-v3", opt_level: int = 3) -> list[str]:
    """The workloads of a function's kernels."""
    found: list[str] = []

    class Listing(Kernels):
        def code(self, place: str, workload: Digest, lower: Callable[[], Kernel]) -> KernelCode:
            found.append(workload.hex)
            return super().code(place, workload, lower)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "Kernels", Listing)
        generate(infer_types(IRModule({"main": function}))["main"], target, opt_level)
    return found


def test_parts_of_one_memory_have_one_kernel() -> None:
    x = var("x", TensorType((6, 4, 8), "float32"))
    rows = [call_op("strided_slice", [x], begin=(begin,), end=(begin + 2,), axes=(0,)) for begin in (0, 2, 4)]
    whole = call_op("concatenate", [Tuple([call_op("tanh", [each]) for each in rows])], axis=0)
    found = workloads(Function([x], whole))
    assert len(found) == 3
    assert len(set(found)) == 1


def test_parts_of_what_is_reshaped_are_not_copied() -> None:
    x = var("x", TensorType((2, 3, 8), "float32"))
    rows = call_op("reshape", [call_op("tanh", [x])], newshape=(6, 8))
    parts = [call_op("strided_slice", [rows], begin=(b,), end=(e,), axes=(0,)) for b, e in ((0, 2), (2, 6))]
    assert len(workloads(Function([x], Tuple([call_op("exp", [part]) for part in parts])))) == 3


def block(
    value: float = 1.0,
    *,
    name: str = "x",
    channels: int = 16,
    side: int = 9,
    kernel: int = 3,
    strides: tuple[int, int] = (1, 1),
    bound: float = 6.0,
    dtype: str = "float32",
    tail: str = "clip",
) -> Function:
    """A convolution with a bias and something element-wise behind it."""
    x = Var(name, TensorType((1, 8, side, side), dtype), Span("a file", name))
    weight = Constant(np.full((channels, 8, kernel, kernel), value, dtype), Span("a file", f"{name}.w"))
    pad = kernel // 2
    conv = call_op(
        "nn.conv2d", [x, weight], Span("a file", f"{name}.conv"), padding=(pad, pad, pad, pad), strides=strides
    )
    biased = call_op("nn.bias_add", [conv, const(np.full(channels, value, dtype))], Span("a file", f"{name}.bias"))
    attrs: dict[str, Any] = {"a_min": 0.0, "a_max": bound} if tail == "clip" else {}
    return Function([x], call_op(tail, [biased], **attrs))


def test_names_spans_and_values_of_weights_do_not_count() -> None:
    assert workloads(block(1.0)) == workloads(block(2.0, name="other"))


@pytest.mark.parametrize(
    "change",
    [
        {"channels": 32},
        {"side": 10},
        {"kernel": 1},
        {"strides": (2, 2)},
        {"bound": 5.0},
        {"tail": "nn.relu"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_a_kernel_computes_counts(change: dict[str, Any]) -> None:
    # between copies into blocks and out of them
    assert workloads(block())[1] not in workloads(block(**change))


def test_where_a_kernel_writes_counts() -> None:
    """The halo that the next convolution needs, which the first one writes around what it computes."""

    def two(kernel: int) -> Function:
        x = var("x", (1, 16, 9, 9), "float32")
        first = call_op("nn.conv2d", [x, const(np.ones((16, 16, 3, 3), "float32"))], padding=(1, 1, 1, 1))
        pad = kernel // 2
        weight = const(np.ones((16, 16, kernel, kernel), "float32"))
        return Function([x], call_op("nn.conv2d", [call_op("nn.relu", [first]), weight], padding=(pad, pad, pad, pad)))

    narrow, wide = workloads(two(1)), workloads(two(3))
    assert narrow[0] == wide[0]
    assert narrow[1] not in wide


def test_machines_count() -> None:
    found = [set(workloads(block(), target)) for target in ("c", "x86-64-v3", "x86-64-v4")]
    assert not found[0] & found[1]
    assert not found[1] & found[2]


def elementwise(first: str, second: str, order: tuple[int, int] = (0, 1), dtype: str = "float32") -> Function:
    params = [var("x", (4, 5), dtype), var("y", (4, 5), dtype)]
    left, right = (params[place] for place in order)
    return Function(params, call_op(second, [call_op(first, [left, right]), left]))


def test_operators_operands_and_types_of_a_map_count() -> None:
    cases = [
        elementwise("add", "multiply"),
        elementwise("multiply", "add"),
        elementwise("subtract", "multiply"),
        elementwise("subtract", "multiply", (1, 0)),
        elementwise("add", "multiply", dtype="float64"),
        Function([(x := var("x", (4, 5), "float32"))], call_op("multiply", [x, const(2.0, "float32")])),
        Function([(x := var("x", (4, 5), "float32"))], call_op("multiply", [x, const(3.0, "float32")])),
    ]
    found = [tuple(workloads(case)) for case in cases]
    # operands are numbered as they are read: which input of the program one is does not count
    assert found[2] == found[3]
    assert len(set(found)) == len(found) - 1


def test_what_was_made_of_equal_workloads_is_made_once() -> None:
    x = var("x", (1, 8, 9, 9), "float32")
    value: Expr = x
    for _ in range(3):
        weight = const(np.full((8, 8, 3, 3), 0.5, "float32"))
        value = call_op("nn.relu", [call_op("nn.conv2d", [value, weight], padding=(1, 1, 1, 1))])
    found = workloads(Function([x], value), "c", 0)
    assert len(set(found)) < len(found)


Given = tuple[Callable[..., Digest], tuple[Any, ...], dict[str, Any]]
"""A call that made a workload."""


def given_for(function: Function) -> list[Given]:
    """What the workloads of a function's kernels were made from."""
    found: list[Given] = []

    def listing(make: Callable[..., Digest]) -> Callable[..., Digest]:
        def call(*args: Any, **options: Any) -> Digest:
            found.append((make, args, options))
            return make(*args, **options)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for make in (workload.group_workload, workload.copy_workload):
            patch.setattr(lower, make.__name__, listing(make))
        generate(infer_types(IRModule({"main": function}))["main"], "x86-64-v3", 3)
    return found


def varied(value: Any) -> Iterator[Any]:
    """The value with one thing in it changed, for each thing in it."""
    if is_dataclass(value) and not isinstance(value, type):
        for item in fields(value):
            for other in varied(getattr(value, item.name)):
                changed = copy.copy(value)
                object.__setattr__(changed, item.name, other)
                yield changed
    elif isinstance(value, tuple):
        yield (*value, 7)
        for place, each in enumerate(value):
            yield from ((*value[:place], other, *value[place + 1 :]) for other in varied(each))
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from ({**value, name: other} for other in varied(each))
    elif isinstance(value, bool):
        yield not value
    elif value is None or isinstance(value, (int, float)):
        yield (value or 0) + 1
    elif isinstance(value, str):
        yield f"{value}x"
    else:
        raise AssertionError(f"{value} is of no kind that a workload is made of")


def varied_view(view: View) -> Iterator[View]:
    """Of the memory counts only whether it is shared."""
    yield from (replace(view, layout=layout) for layout in varied(view.layout))
    yield replace(view, dtype="int8")
    yield replace(view, storage=replace(view.storage, kind="input" if is_own(view) else "arena"))


def varied_group(group: Group) -> Iterator[Group]:
    marks = [node for node in group.nodes if node not in (group.root, group.anchor, group.staged)]
    for node in marks[:1]:
        yield from (replace(group, root=node), replace(group, anchor=node), replace(group, staged=node))
    yield replace(group, nodes=group.nodes[:-1])
    yield replace(group, nodes=[*group.nodes, group.nodes[0]])


def variations(make: Callable[..., Digest], args: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The arguments with one thing in them changed."""
    if make is workload.copy_workload:
        kind, setting, source, target, *numbers = args
        yield (f"{kind}x", *args[1:])
        yield from ((kind, other, *args[2:]) for other in varied(setting))
        yield from ((kind, setting, other, *args[3:]) for other in varied_view(source))
        yield from ((kind, setting, source, other, *numbers) for other in varied_view(target))
        yield from ((kind, setting, source, target, *other) for other in varied(tuple(numbers)))
        return
    group, setting, numbers, reads, view, *needs = args
    yield from ((other, *args[1:]) for other in varied_group(group))
    yield from ((group, other, *args[2:]) for other in varied(setting))
    if len(numbers) > 1:
        yield (group, setting, {name: len(numbers) - 1 - place for name, place in numbers.items()}, *args[3:])
    for place, each in enumerate(reads):
        for other in varied_view(each):
            yield (group, setting, numbers, [*reads[:place], other, *reads[place + 1 :]], view, *needs)
    yield from ((group, setting, numbers, reads, other, *needs) for other in varied_view(view))
    yield from ((group, setting, numbers, reads, view, other) for each in needs for other in varied(tuple(each)))


@pytest.mark.parametrize("function", [block(), elementwise("subtract", "multiply")], ids=["anchor", "map"])
def test_each_thing_that_a_workload_is_made_of_counts(function: Function) -> None:
    found = given_for(function)
    assert found
    for make, args, _ in found:
        own = make(*args)
        assert make(*args) == own
        others = [make(*changed) for changed in variations(make, args)]
        assert len(others) > 20
        same = [changed for changed, other in zip(variations(make, args), others) if other == own]
        assert same == [], f"{len(same)} of {len(others)} variations have one workload"


def test_where_in_the_programs_memory_a_value_lies_does_not_count() -> None:
    for make, args, _ in given_for(block()):
        if make is workload.group_workload:
            group, setting, numbers, reads, view, *needs = args
            moved = [replace(each, storage=replace(each.storage, number=9, offset=64)) for each in reads]
            assert make(group, setting, numbers, moved, view, *needs) == make(*args)
