"""Convolution with pixels in the lanes: when it is chosen, what its schedule promises, and what it computes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, target_params, weight

from relaybuild.contrib.host import codegen
from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.anchors.convolution import pixels_of
from relaybuild.ir.expr import Expr, var
from relaybuild.ir.types import TensorType
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.conv2d import direct_phase
from relaybuild.lower.templates.pixel_conv2d import PixelConv2D, choose_pixel_schedule, estimate_cycles

WIDE = Machine(16, 32, l2_bytes=1 << 20)
NARROW = Machine(8, 16, l2_bytes=1 << 19)

SHAPES = [
    # groups, inputs and outputs of a group, rows, columns, kernel, strides, dilation, padding
    (4, 20, 20, 13, 40, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    (3, 10, 17, 9, 70, (3, 2), (1, 1), (1, 1), (0, 2, 1, 0)),
    (6, 8, 4, 20, 33, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    (5, 6, 3, 15, 64, (3, 3), (1, 3), (2, 2), (2, 2, 2, 2)),
    (9, 2, 5, 11, 47, (2, 4), (3, 2), (2, 3), (0, 4, 1, 5)),
    (1, 40, 8, 18, 50, (4, 4), (1, 1), (1, 1), (2, 3, 3, 2)),
]


def conv(groups: int, inputs: int, outputs: int, rows: int, columns: int, size: int = 3) -> PixelConv2D:
    phase = direct_phase((rows, columns), (size, size), (1, 1), (size // 2, size // 2), (1, 1))
    return PixelConv2D(phase, groups, inputs, outputs)


def grouped(data: Expr, groups: int, inputs: int, outputs: int, size: int, **attrs: object) -> Expr:
    filters = weight(np.ones((groups * outputs, inputs, size, size), "float32"))
    return call("nn.conv2d", data, filters, groups=groups, padding=size // 2, **attrs)


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "size", "chosen"),
    [(16, 20, 20, 3, True), (4, 64, 8, 3, True), (1, 288, 8, 5, True), (4, 32, 32, 3, False), (16, 4, 4, 1, False)],
)
def test_is_chosen_where_blocks_would_be_half_empty(
    groups: int, inputs: int, outputs: int, size: int, chosen: bool
) -> None:
    data = var("x", TensorType((1, groups * inputs, 26, 26), "float32"))
    made = grouped(data, groups, inputs, outputs, size)
    assert (pixels_of(made, Setting(WIDE, True)) is not None) == chosen  # type: ignore[arg-type]


@pytest.mark.parametrize("machine", [WIDE, NARROW, Machine(1, 16)])
def test_groups_of_a_unit_fill_blocks(machine: Machine) -> None:
    found = conv(16, 20, 20, 26, 26)
    assert (found.joined, found.in_blocks, found.out_blocks, found.units_of_rows) == (4, 5, 5, 4)
    odd = conv(10, 10, 8, 26, 26)
    assert (odd.joined, odd.in_blocks, odd.out_blocks, odd.units_of_rows) == (2, 2, 1, 5)
    crossing = conv(16, 11, 8, 26, 26)
    # Channels 110 to 131 of the sixth pair of groups lie in three blocks.
    assert (crossing.joined, crossing.in_blocks) == (2, 3)
    all_of_them = conv(3, 5, 17, 26, 26)
    assert (all_of_them.joined, all_of_them.in_blocks, all_of_them.out_blocks) == (3, 1, 4)
    assert estimate_cycles(found, machine) is not None


def test_wide_images_are_split_into_columns() -> None:
    narrow, wide = (choose_pixel_schedule(conv(4, 20, 20, 100, width), WIDE) for width in (100, 2000))
    assert narrow is not None
    assert narrow.columns == 100
    assert wide is not None
    assert wide.columns < 2000
    assert wide.rows >= 4


def test_has_no_schedule_without_room() -> None:
    assert choose_pixel_schedule(conv(1, 4000, 8, 30, 30), NARROW) is None
    assert estimate_cycles(conv(1, 4000, 8, 30, 30), NARROW) is None


@pytest.mark.parametrize("l2_bytes", [1 << 20, 96 * 1024])
@pytest.mark.parametrize("target", target_params())
def test_convolutions(target: str, l2_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small second-level cache makes bands of few rows, and of parts of rows."""
    machine_of = codegen.machine_of
    monkeypatch.setattr(codegen, "machine_of", lambda target: replace(machine_of(target), l2_bytes=l2_bytes))
    monkeypatch.setattr("relaybuild.contrib.host.anchors.convolution.MUCH_FASTER", 1e9)
    monkeypatch.setattr("relaybuild.contrib.host.anchors.convolution.MOST_USED", 2.0)
    rng = np.random.default_rng(7)
    batch = Batch()

    def real(*shape: int) -> Array:
        return rng.normal(size=shape).astype("float32")

    for groups, inputs, outputs, rows, columns, kernel, strides, dilation, padding in SHAPES:
        data = batch.input(real(2, groups * inputs, rows, columns))
        attrs = {"groups": groups, "strides": strides, "dilation": dilation, "padding": padding}
        made = call("nn.conv2d", data, weight(real(groups * outputs, inputs, *kernel)), **attrs)
        rest = batch.input(real(*made.checked_type.static_shape))  # type: ignore[union-attr]
        value = call("nn.relu", call("add", call("nn.bias_add", made, weight(real(groups * outputs))), rest))
        # A reader that needs a halo.
        value = call("nn.max_pool2d", value, pool_size=2, padding=1)
        batch.add(f"{groups} groups of {inputs} to {outputs}, {attrs}", value, 1e-4)
    batch.compare(target, threads=(1, 3))
