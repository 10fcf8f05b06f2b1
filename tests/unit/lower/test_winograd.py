"""Convolution by Winograd's way: where it is chosen (what it computes: `tests/unit/contrib/host/test_kernels.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from runners.compiled import call, weight

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.anchors.convolution import winograd_of
from relaybuild.ir.expr import var
from relaybuild.ir.types import TensorType
from relaybuild.lower.machine import Machine

V3 = Machine(8, 16, l2_bytes=1 << 19)
V4 = Machine(16, 32, l2_bytes=1 << 20)


@pytest.mark.parametrize(
    ("machine", "channels", "rows", "chosen"),
    [(V3, 64, 56, True), (V3, 512, 7, True), (V3, 32, 7, False), (V4, 64, 56, True), (V4, 512, 7, False)],
)
def test_is_chosen_where_it_is_faster(machine: Machine, channels: int, rows: int, chosen: bool) -> None:
    data = var("x", TensorType((1, channels, rows, rows), "float32"))
    made = call("nn.conv2d", data, weight(np.ones((channels, channels, 3, 3), "float32")), padding=1)
    assert (winograd_of(made, Setting(machine, False)) is not None) == chosen  # type: ignore[arg-type]


def test_sums_stay_as_they_are_where_that_was_asked_for() -> None:
    data = var("x", TensorType((1, 64, 56, 56), "float32"))
    made = call("nn.conv2d", data, weight(np.ones((64, 64, 3, 3), "float32")), padding=1)
    assert winograd_of(made, Setting(V3, True)) is None  # type: ignore[arg-type]
