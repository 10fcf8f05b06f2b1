"""Direct convolutions: which tiles are chosen, what they leave out, and what they compute."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, runnable_targets, target_params, weight

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.legalize import legalize
from relaybuild.contrib.host.lower import lower_function
from relaybuild.ir.expr import Expr, Function, var
from relaybuild.ir.types import TensorType
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.conv2d import Conv2D, Tile, choose_tile, direct_phase

WIDE = Machine(16, 32, l2_bytes=1 << 20)
NARROW = Machine(8, 16, l2_bytes=1 << 19)
PLAIN = Machine(4, 16, l2_bytes=1 << 19, has_fma=False)


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape).astype("float32")


def text_of(root: Expr, data: Expr, machine: Machine) -> str:
    """The text of the convolution's kernel."""
    steps = lower_function(legalize(Function([data], root)), Setting(machine, True)).steps  # type: ignore[list-item]
    return next(step.kernel for step in steps if "nn.conv2d" in step.kernel.title).named("k")


def tile(out_channels: int, machine: Machine, in_channels: int = 16) -> Tile:
    phase = direct_phase((32, 32), (3, 3), (1, 1), (1, 1), (1, 1))
    return choose_tile(Conv2D((phase,), (3, 3), in_channels), phase, out_channels, machine)


def test_vectors_of_pad_lanes_are_in_no_tile() -> None:
    assert tile(24, NARROW).vectors == 3
    assert tile(8, NARROW).vectors == 1
    assert tile(24, WIDE).vectors == 2


@pytest.mark.parametrize("channels", [8, 24, 32, 40, 72, 300])
@pytest.mark.parametrize("machine", [WIDE, NARROW, PLAIN], ids=["wide", "narrow", "plain"])
def test_tiles_fit_into_registers_and_begin_at_blocks(channels: int, machine: Machine) -> None:
    found = tile(channels, machine)
    assert machine.fits(found.rows * found.columns, found.vectors)
    assert found.vectors * machine.lanes >= channels or found.vectors * machine.lanes % 16 == 0


def test_without_multiply_adds_more_registers_accumulate() -> None:
    """Weights are multiplied as they are loaded: gcc keeps none of them in a register."""
    found = tile(64, PLAIN)
    assert found.rows * found.columns * found.vectors == 12
    assert not Machine(4, 16, l2_bytes=1 << 19).fits(found.rows * found.columns, found.vectors)


def accumulators(text: str) -> set[tuple[int, int]]:
    return {(int(pixels), int(vectors)) for pixels, vectors in re.findall(r"rb_v acc\d*\[(\d+)\]\[(\d+)\];", text)}


def test_a_small_image_is_one_row() -> None:
    data = var("x", TensorType((1, 64, 7, 7), "float32"))
    made = call("nn.relu", call("nn.conv2d", data, weight(random(256, 64, 1, 1))))
    assert {pixels for pixels, _ in accumulators(text_of(made, data, NARROW))} == {6, 1}
    strided = call("nn.conv2d", data, weight(random(256, 64, 1, 1)), strides=2)
    padded = call("nn.conv2d", data, weight(random(256, 64, 1, 1)), padding=1)
    for other in (strided, padded):
        assert 49 not in {pixels for pixels, _ in accumulators(text_of(other, data, NARROW))}


@pytest.mark.parametrize("target", runnable_targets())
def test_small_images_with_neighbours_of_other_layouts(target: str) -> None:
    """Readers that want a halo, and sums with values that have one, are not computed as one row."""
    batch = Batch()
    x = batch.input(random(2, 40, 7, 7))
    made = call("nn.conv2d", x, weight(random(264, 40, 1, 1)))
    batch.add("alone", made, 1e-4)
    batch.add("sum", call("add", made, batch.input(random(2, 264, 7, 7))), 1e-4)
    batch.add("by column", call("multiply", made, batch.input(random(1, 1, 1, 7))), 1e-4)
    haloed = call("nn.relu", call("nn.conv2d", x, weight(random(264, 40, 1, 1))))
    filters = weight(random(264, 1, 3, 3))
    batch.add("then a halo", call("nn.conv2d", haloed, filters, groups=264, padding=1), 1e-4)
    batch.add("with one that has", call("add", call("nn.conv2d", x, weight(random(264, 40, 1, 1))), haloed), 1e-4)
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", target_params())
def test_pad_lanes_are_zero(target: str) -> None:
    """A sum over all channels of a block reads them."""
    batch = Batch()
    x = batch.input(random(1, 12, 9, 11))
    for channels, stride in product((3, 8, 20, 24, 40), (1, 2)):
        made = call("nn.conv2d", x, weight(random(channels, 12, 3, 3)), padding=1, strides=stride)
        again = call(
            "nn.conv2d", call("exp", call("clip", made, a_min=-1.0, a_max=1.0)), weight(random(24, channels, 1, 1))
        )
        batch.add(f"{channels} stride {stride}", again, 1e-4)
    batch.compare(target, threads=(1, 2))
