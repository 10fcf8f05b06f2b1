"""Maps that read across the order in which they write, over whole and ragged tiles."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, runnable_targets, target_params

from relaybuild.ir.expr import const

TARGETS = runnable_targets()
SHAPES = ((1, 16, 16), (2, 19, 33), (3, 40, 17), (2, 130, 300), (1, 15, 40), (5, 64, 23))
AXES = ((0, 2, 1), (2, 1, 0), (2, 0, 1), (1, 2, 0))


def numbers(*shape: int) -> Array:
    return np.arange(np.prod(shape), dtype="float32").reshape(shape)


@pytest.mark.parametrize("target", TARGETS)
def test_axes_change_places(target: str) -> None:
    batch = Batch()
    for shape in SHAPES:
        for axes in AXES:
            batch.add(f"{shape} {axes}", call("transpose", batch.input(numbers(*shape)), axes=axes), 0.0)
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", TARGETS)
def test_neighbours_share_a_run_and_what_is_beyond_the_cache_is_fetched_ahead(target: str) -> None:
    batch = Batch()
    for shape, axes in (((18, 23, 40), (2, 1, 0)), ((41, 7, 33), (2, 1, 0)), ((23, 113, 150), (2, 1, 0))):
        batch.add(f"{shape} {axes}", call("transpose", batch.input(numbers(*shape)), axes=axes), 0.0)
    for shape, axes in (((6, 40, 21), (2, 0, 1)), ((16, 120, 200), (2, 0, 1)), ((4, 300, 301), (0, 2, 1))):
        batch.add(f"{shape} {axes}", call("transpose", batch.input(numbers(*shape)), axes=axes), 0.0)
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", TARGETS)
def test_arithmetic_on_the_way(target: str) -> None:
    batch = Batch()
    for rows, columns in ((16, 32), (37, 50)):
        moved = call("transpose", batch.input(numbers(rows, columns)), axes=(1, 0))
        scaled = call("multiply", moved, batch.input(numbers(rows)))
        other = call("transpose", batch.input(numbers(rows, columns)), axes=(1, 0))
        batch.add(f"{rows} x {columns}", call("add", call("tanh", scaled), other))
    batch.compare(target, threads=(1, 2))


@pytest.mark.parametrize("target", target_params())
def test_between_rows_and_channel_blocks(target: str) -> None:
    batch = Batch()
    for channels, (rows, columns) in product((3, 15, 16, 17, 40), ((1, 1), (3, 5), (7, 7), (16, 16), (9, 33))):
        data = batch.input(numbers(2, channels, rows, columns))
        pooled = call("nn.max_pool2d", data, pool_size=(1, 1))
        batch.add(f"{channels} on {rows} x {columns}", call("reshape", pooled, newshape=(2, -1)), 0.0)
    batch.compare(target, threads=(1, 2))


@pytest.mark.parametrize("target", target_params())
def test_rows_to_channel_blocks(target: str) -> None:
    generator = np.random.default_rng(6)
    batch = Batch()
    for shape in ((1, 16, 3, 8), (2, 35, 4, 19), (1, 48, 2, 33), (1, 32, 5, 5), (1, 64, 60, 61)):
        data = batch.input(generator.normal(size=shape).astype("float32"))
        batch.add(str(shape), call("nn.max_pool2d", data, pool_size=(1, 1)))
        weight = const(generator.normal(size=(16, shape[1], 3, 3)).astype("float32"))
        batch.add(f"{shape}, with a halo", call("nn.conv2d", call("tanh", data), weight, padding=(1, 1, 1, 1)))
    batch.compare(target, threads=(1, 3))
