"""Resizes: columns and weights by tables, rows in a window; wider and narrower than a vector, larger and smaller."""

from __future__ import annotations

import re

import numpy as np
import pytest
from runners.compiled import Batch, call, target_params

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.codegen import machine_of
from relaybuild.contrib.host.legalize import legalize
from relaybuild.contrib.host.lower import lower_function
from relaybuild.ir.expr import Function, var
from relaybuild.target import Target

SIZES = ((4, 5, 9, 16), (3, 17, 6, 34), (5, 40, 7, 43), (6, 90, 5, 31), (2, 8, 4, 70), (4, 33, 4, 20))
"""Rows and columns, and those of the result."""
PERIODIC = ((4, 65, 8, 130), (3, 50, 9, 150), (3, 32, 12, 128), (5, 100, 8, 160), (8, 260, 4, 130))
"""The same, by factors after which columns repeat themselves: 2, 3, 4, 8/5, 1/2."""
BLOCKED = (("NCHW", 16, 4, 5, 9, 16), ("NCHW", 35, 3, 17, 6, 34), ("NCHW", 21, 40, 7, 13, 11), ("NHWC", 19, 4, 6, 9, 8))
"""Layout, channels, rows and columns, and those of the result."""


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_resized_rows(target: str, method: str, mode: str) -> None:
    generator = np.random.default_rng(7)
    batch = Batch()
    for rows, columns, *size in (*SIZES, *PERIODIC):
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


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_resized_blocks(target: str, method: str) -> None:
    generator = np.random.default_rng(8)
    batch = Batch()
    for layout, channels, rows, columns, *size in BLOCKED:
        shape = (1, channels, rows, columns) if layout == "NCHW" else (1, rows, columns, channels)
        data = batch.input(generator.normal(size=shape).astype("float32"))
        attrs = {"size": tuple(size), "method": method, "layout": layout}
        around = {"pool_size": (1, 1), "layout": layout}
        made = call("image.resize2d", call("nn.max_pool2d", data, **around), **attrs)
        batch.add(f"{layout} {channels} on {rows} x {columns} to {size}", call("nn.max_pool2d", made, **around))
    batch.compare(target, threads=(1, 3))


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("channels", [17, 85])
def test_channels_in_groups_behind_pixels(target: str, channels: int) -> None:
    """Which block and lane a channel is in depends on its group and on its place in that, in one term."""
    generator = np.random.default_rng(9)
    batch = Batch()
    data = batch.input(generator.normal(size=(1, 3 * channels, 5, 4)).astype("float32"))
    blocked = call("nn.max_pool2d", data, pool_size=(1, 1))
    split = call("reshape", blocked, newshape=(1, 3, channels, 5, 4))
    behind = call("tanh", call("transpose", split, axes=(0, 1, 3, 4, 2)))
    batch.add("of groups", behind)
    batch.add("of all groups", call("reshape", behind, newshape=(1, 60, channels)))
    batch.compare(target, threads=(1, 2))


def test_a_resize_of_rows_and_columns_is_one_kernel() -> None:
    data = var("x", (1, 3, 40, 50))
    large = call("nn.relu", call("image.resize2d", data, size=(80, 90)))
    steps = lower_function(legalize(Function([data], large)), Setting(machine_of(Target.parse("c")))).steps
    assert [step.kernel.title for step in steps] == ["image.resize2d, image.resize2d, nn.relu"]
    assert steps[0].kernel.scratch_bytes == 2 * 96 * 4


def kernel_text(shape: tuple[int, ...], **attrs: object) -> str:
    """The kernel of a linear resize of rows, for 8 lanes."""
    data = var("x", shape)
    made = call("image.resize2d", data, **attrs)
    (step,) = lower_function(legalize(Function([data], made)), Setting(machine_of(Target.parse("x86-64-v3")))).steps
    return step.kernel.named("f")


@pytest.mark.parametrize(
    ("columns", "width", "loop", "moves"),
    [
        (65, 130, "t < 15", ["t * 4"]),
        (50, 150, "t < 5", ["t * 8"]),
        (32, 128, "t < 14", ["t * 2"]),
        (40, 133, "", []),
    ],
    ids=["twice", "three times", "four times", "by no whole factor"],
)
def test_columns_that_repeat_themselves_need_one_part_of_the_tables(
    columns: int, width: int, loop: str, moves: list[str]
) -> None:
    text = kernel_text((1, 3, 20, columns), size=(40, width))
    assert loop in text
    assert sorted(set(re.findall(r"t \* \d+(?=, table)", text))) == moves


def test_rows_that_read_the_same_are_computed_together() -> None:
    twice = kernel_text((1, 3, 20, 50), size=(40, 100))
    begins = ", ".join(map(str, (0, *range(1, 39, 2), 39, 40)))
    assert f"[22] = {{{begins}}};" in twice
    joined = twice[twice.index("== 2)") : twice.index("} else {")]
    assert re.search(r"< 96; v\d* \+= 16", joined)
    for height in (10, 33):
        assert "following" not in kernel_text((1, 3, 20, 50), size=(height, 100))
    assert "following" not in kernel_text((1, 400, 100, 100), size=(200, 200))


@pytest.mark.parametrize(("width", "ahead"), [(180, 512), (20, 640), (18, None)])
def test_a_large_output_in_blocks_is_fetched_ahead(width: int, ahead: int | None) -> None:
    data = call("nn.max_pool2d", var("x", (1, 32, 90, width // 2)), pool_size=(1, 1))
    large = call("nn.max_pool2d", call("image.resize2d", data, size=(1640, width)), pool_size=(1, 1))
    machine = machine_of(Target.parse("x86-64-v3"))
    steps = lower_function(legalize(Function([data.args[0]], large)), Setting(machine)).steps
    (text,) = (step.kernel.named("f") for step in steps if "resize2d" in step.kernel.title)
    fetched = {line.rsplit(" ", 1)[-1].rstrip(");") for line in text.splitlines() if "RB_PREFETCH" in line}
    assert fetched == ({str(ahead)} if ahead else set())
