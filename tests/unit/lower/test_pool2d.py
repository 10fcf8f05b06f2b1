"""Pooling by pixels and by columns: every stride, dilation and padding, borders counted as asked, NaNs kept."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import Batch, call, target_params

WINDOWS = [
    ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    ((5, 5), (1, 1), (2, 2, 2, 2), (1, 1)),
    ((5, 4), (2, 2), (2, 1, 0, 3), (1, 1)),
    ((3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    ((2, 5), (3, 1), (0, 4, 1, 0), (1, 2)),
    ((1, 9), (1, 1), (0, 4, 0, 4), (1, 1)),
    ((9, 1), (1, 1), (4, 0, 4, 0), (1, 1)),
    ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)),
]


@pytest.mark.parametrize("target", target_params())
def test_windows(target: str) -> None:
    batch = Batch()
    rng = np.random.default_rng(3)
    for channels, columns in ((16, 11), (5, 26)):
        data = rng.normal(size=(2, channels, 10, columns)).astype("float32")
        damaged = data.copy()
        damaged[0, 1, 4, 5] = np.nan
        damaged[1, 0, 0, 0] = -np.inf
        x, y = batch.input(data), batch.input(damaged)
        for size, strides, padding, dilation in WINDOWS:
            attrs = {"pool_size": size, "strides": strides, "padding": padding, "dilation": dilation}
            label = f"{channels} on {columns}: {attrs}"
            batch.add(f"max {label}", call("nn.max_pool2d", y, **attrs))
            batch.add(f"avg {label}", call("tanh", call("nn.avg_pool2d", x, **attrs)))
            batch.add(f"avg, padded {label}", call("nn.avg_pool2d", x, count_include_pad=True, **attrs))
    # what gcc makes of a pool when it optimises is tried on a few of them, with all other kernels
    batch.compare(target, threads=(1, 3), optimisation="-Og")
