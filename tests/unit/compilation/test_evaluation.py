"""The bytes of `@weights`: what the interpreter computes, in order and in parts."""

from __future__ import annotations

import io
import tracemalloc
from typing import Any

import numpy as np
import pytest

from relaybuild.compilation.evaluation import WeightsPlan
from relaybuild.digest import digest_bytes
from relaybuild.errors import InternalError
from relaybuild.ir.expr import Constant, Expr, Function, If, Tuple, TupleGetItem, const
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.op import call_op

ALIGNMENT = 64


def numbers(*shape: int, seed: int = 3) -> Constant:
    return const(np.random.default_rng(seed).standard_normal(shape, dtype="float32"))


def plan_of(*results: Expr) -> WeightsPlan:
    """Results one after another, each from a multiple of 64 bytes on."""
    offsets, end = [], 0
    for result in results:
        offsets.append(end)
        kind = result.tensor_type
        end += -(-max(1, kind.num_elements * kind.itemsize) // ALIGNMENT) * ALIGNMENT
    return WeightsPlan(Function([], Tuple(results)), tuple(offsets), end)


def expected(plan: WeightsPlan) -> bytes:
    """The bytes, by the reference semantics of the whole function."""
    data = bytearray(plan.num_bytes)
    for value, offset in zip(interpret(plan.function), plan.offsets):
        found = np.ascontiguousarray(value).tobytes()
        data[offset : offset + len(found)] = found
    return bytes(data)


def written(plan: WeightsPlan) -> bytes:
    hashed, plain = io.BytesIO(), io.BytesIO()
    digest = plan.write(hashed)
    plan.write_unhashed(plain)
    assert digest == digest_bytes(hashed.getvalue())
    assert plain.getvalue() == hashed.getvalue()
    return hashed.getvalue()


def small_results() -> list[Expr]:
    """Constants, calls that make their result by rows and others, values that several results need."""
    weight, scale = numbers(40, 24, 3, 3), numbers(24, 1, 1, seed=4)
    scaled = call_op("multiply", [weight, scale])
    pair = call_op("split", [numbers(6, 5, seed=5)], indices_or_sections=2, axis=0)
    packed = call_op("contrib.pack_conv2d", [scaled])
    return [
        numbers(7),
        packed,
        call_op("contrib.pack_winograd", [scaled]),
        TupleGetItem(pair, 0),
        call_op("transpose", [TupleGetItem(pair, 1)], axes=(1, 0)),
        call_op("contrib.pack_matmul", [call_op("transpose", [numbers(33, 50)], axes=(1, 0))]),
        call_op("negative", [packed]),
        packed,
        const(np.zeros((0, 4), "float32")),
        const(np.array(2.5, "float64")),
    ]


def large_results() -> list[Expr]:
    """Many parts; the rows of one are larger than a part."""
    return [
        call_op("contrib.pack_winograd", [numbers(128, 160, 3, 3)]),
        numbers(300_001),
        call_op("contrib.pack_matmul", [call_op("multiply", [numbers(40, 30_000), numbers(30_000, seed=4)])]),
        call_op("contrib.pack_conv2d", [numbers(200, 100, 3, 3)], groups=1),
    ]


@pytest.mark.parametrize("results", [small_results, large_results])
def test_the_bytes_are_those_of_the_interpreter(results: Any) -> None:
    plan = plan_of(*results())
    assert written(plan) == expected(plan)


def test_a_function_with_more_in_it_than_calls() -> None:
    choice = If(const(np.array(True)), numbers(5), numbers(5, seed=9))
    plan = plan_of(choice, call_op("contrib.pack_matmul", [numbers(3, 4)]))
    assert written(plan) == expected(plan)


def test_what_several_results_need_is_computed_once() -> None:
    shared = call_op("exp", [numbers(30)])
    plan = plan_of(*(call_op("multiply", [shared, numbers(30, seed=seed)]) for seed in range(4)))
    calls: list[str] = []
    evaluate = shared.op.evaluate

    def counted(values: Any, attrs: Any) -> Any:
        calls.append("exp")
        return evaluate(values, attrs)

    object.__setattr__(shared.op, "evaluate", counted)
    try:
        plan.write_unhashed(io.BytesIO())
    finally:
        object.__setattr__(shared.op, "evaluate", evaluate)
    assert calls == ["exp"]


def test_memory_does_not_grow_with_the_weights() -> None:
    class Nowhere:
        def write(self, data: memoryview) -> int:
            return len(data)

    weight, factor = numbers(1000, 1024), numbers(1)
    plan = plan_of(*(call_op("contrib.pack_matmul", [call_op("multiply", [weight, factor])]) for _ in range(12)))
    tracemalloc.start()
    try:
        plan.write(Nowhere())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert plan.num_bytes > 12 * 4_000_000
    assert peak < 4 * 4_100_000 + 600_000


def test_results_that_overlap_are_refused() -> None:
    with pytest.raises(InternalError, match="overlap"):
        written(WeightsPlan(Function([], Tuple([numbers(32), numbers(32)])), (0, 64), 192))
