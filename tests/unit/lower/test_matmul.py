"""Products whose right side is computed: read where it lies by few rows, packed for many; every ragged end."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import Batch, call, runnable_targets

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.codegen import machine_of
from relaybuild.contrib.host.lower import lower_function
from relaybuild.ir.expr import Function, var
from relaybuild.target import Target

SIZES = ((1, 40, 64), (2, 33, 80), (3, 17, 41), (2, 9, 7), (50, 20, 48), (13, 1, 100))
"""Rows, depth and columns."""


@pytest.mark.parametrize("target", runnable_targets())
def test_right_sides_that_are_computed(target: str) -> None:
    generator = np.random.default_rng(5)
    batch = Batch()
    for rows, depth, columns in SIZES:
        left = batch.input(generator.normal(size=(3, rows, depth)).astype("float32"))
        right = batch.input(generator.normal(size=(3, depth, columns)).astype("float32"))
        batch.add(f"{rows} x {depth} x {columns}", call("nn.matmul", left, right))
        between = call("nn.matmul", call("tanh", left), call("tanh", right))
        batch.add(f"{rows} x {depth} x {columns}, between maps", call("tanh", between))
    batch.compare(target, threads=(1, 2))


@pytest.mark.parametrize(("rows", "packs"), [(2, False), (200, True)])
def test_few_rows_pack_nothing(rows: int, packs: bool) -> None:
    left, right = var("a", (3, rows, 40)), var("b", (3, 40, 64))
    function = Function([left, right], call("nn.matmul", left, right))
    steps = lower_function(function, Setting(machine_of(Target.parse("x86-64-v3")))).steps
    assert (steps[0].kernel.scratch_bytes > 0) == packs
