"""Softmax of rows and columns of every remainder, with what is fused to it and into layouts of channel blocks."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, runnable_targets, target_params, weight


def values(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32") * np.float32(4)


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
def test_rows_and_columns_of_every_remainder(target: str, name: str) -> None:
    batch = Batch()
    for width in (3, 16, 31, 300):
        x = batch.input(values(5, width))
        batch.add(f"row {width}", call(name, x, axis=-1))
        batch.add(f"column {width}", call(name, x, axis=0))
        batch.add(f"scaled {width}", call("multiply", call(name, x, axis=-1), weight(values(width))))
        middle = batch.input(values(2, 3, 2, width))
        batch.add(f"middle {width}", call("add", call(name, middle, axis=1), weight(values(1, 3, 1, width))))
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
def test_between_channel_blocks(target: str, name: str) -> None:
    batch = Batch()
    for axis in (1, 2, 3):
        x = call("nn.max_pool2d", batch.input(values(1, 19, 6, 21)), pool_size=2, padding=1)
        soft = call(name, x, axis=axis)
        batch.add(f"axis {axis}", call("nn.conv2d", soft, weight(values(5, 19, 3, 3)), padding=1), 1e-4)
    batch.compare(target, threads=(1, 2))


@pytest.mark.parametrize("target", runnable_targets())
def test_special_values_reach_their_row_alone(target: str) -> None:
    batch = Batch()
    for width in (7, 35):
        data = values(8, width)
        data[1, width - 1] = np.nan
        data[2, 0] = np.inf
        data[3, :] = -np.inf
        data[4, width // 2] = -np.inf
        data[5, :] -= 300 * (np.arange(width) % 2)
        x = batch.input(data)
        batch.add(f"rows {width}", call("nn.softmax", x, axis=-1))
        batch.add(f"columns {width}", call("nn.softmax", call("transpose", x, axes=(1, 0)), axis=0))
        batch.add(f"column {width}", call("nn.softmax", x, axis=0))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
def test_many_columns_beyond_the_cache(target: str, name: str) -> None:
    batch = Batch()
    for shape in ((2100, 256), (2059, 301)):
        data = values(*shape)
        data[7, shape[1] - 1] = np.nan
        data[:, 3] = -np.inf
        data[:2000, 4] = -np.inf
        data[2050, shape[1] - 17] = np.inf
        x = batch.input(data)
        batch.add(f"{shape}", call(name, x, axis=0))
        batch.add(f"{shape} scaled", call("multiply", call(name, x, axis=0), weight(values(shape[1]))))
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("name", ["nn.softmax", "nn.log_softmax"])
def test_greatest_values_that_a_sample_of_rows_may_miss(target: str, name: str) -> None:
    batch = Batch()
    for shape in ((2, 371, 652), (1, 1100, 259)):
        data = values(*shape)
        data[0, 7, 5] = np.nan
        data[0, 64, 6] = np.nan
        data[0, -1, -1] = np.nan
        data[0, :, 3] = -np.inf
        data[0, :, 4] = 2.5
        batch.add(f"{shape} near", call(name, batch.input(data), axis=1))
        far = data * np.float32(1)
        far[0, 1:8, 10] = 90, 3e38, 60, -3e38, np.nan, 0, 1
        far[0, 33, 11:13] = 40, 3e38
        far[0, :-1, 13] = -np.inf
        far[0, ::32, 14] = -1e9
        far[-1, :, 15] = np.arange(shape[1])
        far[0, 9, 16] = np.inf
        far[0, 32, 17] = np.inf
        far[-1, 40, -1] = 30
        batch.add(f"{shape} far", call(name, batch.input(far), axis=1))
        batch.add(f"{shape} scaled", call(name, call("multiply", batch.input(far), weight(values(1, 1, 1))), axis=1))
    batch.compare(target, threads=(1, 3))
