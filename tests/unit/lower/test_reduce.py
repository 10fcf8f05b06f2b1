"""Reductions over rows and columns of every remainder: ragged ends are counted once, NaNs are kept."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, runnable_targets, target_params, weight


def values(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).uniform(0.8, 1.2, size=shape).astype("float32")


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_rows_and_columns_of_every_remainder(target: str, name: str) -> None:
    batch = Batch()
    for width in (5, 16, 33, 130):
        data = values(3, 7, width)
        data[1, 2, width - 1] = np.nan if name in ("max", "min") else 2
        x = batch.input(data)
        for axis in ((1,), (2,), (0, 1), (1, 2)):
            batch.add(f"{width} over {axis}", call(name, x, axis=axis))
        batch.add(f"{width} scaled", call("multiply", call(name, x, axis=(1,)), weight(values(width))))
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", runnable_targets())
def test_narrow_columns_of_integers_and_truths(target: str) -> None:
    batch = Batch()
    for dtype in ("int8", "int32", "int64"):
        x = batch.input((values(4, 6, 3) * 40).astype(dtype))
        for name in ("sum", "max", "min"):
            batch.add(f"{name} {dtype}", call(name, x, axis=1))
    truths = batch.input(values(4, 6, 3) > 1)
    for name in ("any", "all"):
        batch.add(name, call(name, truths, axis=1))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_wide_rows_beyond_the_cache_of_every_remainder(target: str, name: str) -> None:
    batch = Batch()
    for shape in ((3, 259, 176), (2, 270, 275), (2, 5, 14000), (1, 16, 8200)):
        data = values(*shape) if name != "prod" else values(*shape) ** np.float32(0.05)
        data[0, 2, shape[2] - 1] = np.nan if name == "max" else 2
        x = batch.input(data)
        for axis in ((1,), (0, 1)):
            batch.add(f"{shape} over {axis}", call(name, x, axis=axis), 1e-4)
        batch.add(f"{shape} scaled", call("multiply", call(name, x, axis=(1,)), weight(values(shape[2]))), 1e-4)
        batch.add(f"{shape} of products", call(name, call("multiply", x, x), axis=(1,)), 1e-4)
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", target_params())
def test_sum_of_many_rows_keeps_precision(target: str) -> None:
    batch = Batch()
    data = np.random.default_rng(0).uniform(0.5, 1.5, size=(20000, 131)).astype("float32")
    batch.add("sum", call("sum", batch.input(data), axis=(0,)), 1e-5)
    batch.compare(target)
