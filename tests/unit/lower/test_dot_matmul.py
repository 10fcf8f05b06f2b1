"""Products of few rows with columns in one piece: every remainder of rows, columns and depth, and which are chosen."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, runnable_targets, target_params, weight

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.codegen import machine_of
from relaybuild.contrib.host.legalize import legalize
from relaybuild.contrib.host.lower import lower_function
from relaybuild.ir.expr import Function, var
from relaybuild.target import Target


def values(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def kernel_text(rows: int, depth: int, columns: int, target: str, *, transposed: bool = True) -> str:
    left, right = (
        var("left", (3, rows, depth)),
        var("right", (3, columns, depth) if transposed else (3, depth, columns)),
    )
    function = Function([left, right], call("nn.matmul", left, right, transpose_b=transposed))
    steps = lower_function(legalize(function), Setting(machine_of(Target.parse(target)))).steps
    return "".join(step.kernel.named("kernel") for step in steps)


@pytest.mark.parametrize("target", target_params())
def test_every_remainder_of_rows_columns_and_depth(target: str) -> None:
    batch = Batch()
    for rows, depth, columns in ((1, 16, 16), (2, 199, 40), (3, 176, 19), (7, 130, 5), (13, 167, 33), (4, 300, 1)):
        left, right = batch.input(values(2, rows, depth)), batch.input(values(2, columns, depth))
        made = call("nn.matmul", left, right, transpose_b=True)
        biased = call("nn.relu", call("add", made, weight(values(columns))))
        batch.add(f"{rows} x {depth} x {columns}", biased, 1e-4)
        shared = call("nn.matmul", left, batch.input(values(1, columns, depth)), transpose_b=True)
        batch.add(f"{rows} x {depth} x {columns}, one right side", shared, 1e-4)
    dense = call("nn.dense", batch.input(values(3, 210)), batch.input(values(50, 210)))
    batch.add("dense", dense, 1e-4)
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", runnable_targets())
def test_infinite_elements_that_the_last_vector_reads_again_count_once(target: str) -> None:
    batch = Batch()
    left, right = values(2, 2, 199), values(2, 20, 199)
    left[0, 1, 186], right[0, 3, 190], right[1, 5, 198] = np.inf, -np.inf, np.nan
    batch.add("product", call("nn.matmul", batch.input(left), batch.input(right), transpose_b=True), 1e-4)
    batch.compare(target)


@pytest.mark.parametrize("target", ["x86-64-v4", "x86-64-v3"])
def test_only_few_rows_of_columns_in_one_piece_are_not_packed(target: str) -> None:
    assert "rb_sum_each" in kernel_text(2, 198, 200, target)
    assert "rb_sum_each" not in kernel_text(2, 198, 200, target, transposed=False)
    assert "rb_sum_each" not in kernel_text(128, 64, 128, target)
    assert "rb_sum_each" not in kernel_text(2, 5, 200, target)
    assert "rb_sum_each" not in kernel_text(2, 198, 200, "c")
