"""Row-major resizes: columns and weights by tables, wider and narrower than a vector, larger and smaller."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import Batch, call, runnable_targets

TARGETS = [*runnable_targets(), *["x86-64-v2"] * ("x86-64-v3" in runnable_targets())]
SIZES = ((4, 5, 9, 16), (3, 17, 6, 34), (5, 40, 7, 43), (6, 90, 5, 31), (2, 8, 4, 70), (4, 33, 4, 20))
"""Rows and columns, and those of the result."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_resized_rows(target: str, method: str, mode: str) -> None:
    generator = np.random.default_rng(7)
    batch = Batch()
    for rows, columns, *size in SIZES:
        data = batch.input(generator.normal(size=(2, 3, rows, columns)).astype("float32"))
        exclude = int(method == "cubic" and rows % 2 == 0)
        made = call(
            "image.resize2d",
            data,
            size=tuple(size),
            method=method,
            coordinate_transformation_mode=mode,
            cubic_exclude=exclude,
        )
        batch.add(f"{rows} x {columns} to {size}", made)
        batch.add(f"{rows} x {columns} to {size}, between maps", call("tanh", call("negative", made)))
    batch.compare(target, threads=(1, 2))
