"""Random dataflow graphs compiled by the host compute what the interpreter computes, from text that never varies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from runners.compiled import Batch, call, generate, target_params, weight

from relaybuild.ir.expr import Expr, Function, Tuple, const, var
from relaybuild.ir.types import TensorType

GRAPHS = 4
"""Graphs in one library."""


class Graph:
    """Grows one graph of images: any value may be read by any later node, and any may be an output."""

    def __init__(self, seed: int, batch: Batch) -> None:
        self.r = np.random.default_rng(seed)
        self.batch = batch
        size = int(self.r.integers(3, 12))
        self.shape = (int(self.r.integers(1, 3)), size, int(self.r.integers(3, 10)))
        self.values: list[Expr] = [self.input(self.channels()) for _ in range(2)]

    def channels(self) -> int:
        return int(self.r.choice([1, 3, 8, 16, 20, 32, 37]))

    def real(self, *shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return self.r.normal(size=shape).astype("float32") * np.float32(0.5)

    def input(self, channels: int) -> Expr:
        return self.batch.input(self.real(self.shape[0], channels, *self.shape[1:]))

    def pick(self) -> Expr:
        recent = len(self.values) - 1 - int(self.r.integers(0, min(4, len(self.values))))
        return self.values[recent]

    def like(self, value: Expr) -> Expr:
        """Another value of the same shape where there is one."""
        same = [other for other in self.values if other.checked_type == value.checked_type]
        return same[int(self.r.integers(0, len(same)))]

    def step(self) -> Expr:
        kinds: list[Callable[[Expr], Expr]] = [
            self.convolution,
            self.convolution,
            self.depthwise,
            self.pool,
            self.join,
            self.join,
            self.part,
            self.unary,
            self.unary,
            self.binary,
            self.binary,
            self.scaled,
            self.excite,
            self.shuffle,
            self.turned,
            self.attend,
            self.normalise,
        ]
        return kinds[int(self.r.integers(0, len(kinds)))](self.pick())

    def convolution(self, x: Expr) -> Expr:
        size = int(self.r.choice([1, 3, 5]))
        outs = self.channels()
        filters = weight(self.real(outs, channels_of(x), size, size) / np.float32(size))
        value = call("nn.conv2d", x, filters, padding=size // 2)
        return call("nn.bias_add", value, weight(self.real(outs))) if self.r.random() < 0.5 else value

    def depthwise(self, x: Expr) -> Expr:
        channels = channels_of(x)
        return call("nn.conv2d", x, weight(self.real(channels, 1, 3, 3)), padding=1, groups=channels)

    def pool(self, x: Expr) -> Expr:
        return call(str(self.r.choice(["nn.max_pool2d", "nn.avg_pool2d"])), x, pool_size=3, padding=1)

    def join(self, x: Expr) -> Expr:
        parts = [x, *(self.pick() for _ in range(int(self.r.integers(1, 4))))]
        return call("concatenate", Tuple(parts), axis=1) if sum(map(channels_of, parts)) < 150 else x

    def part(self, x: Expr) -> Expr:
        channels = channels_of(x)
        begin = int(self.r.integers(0, channels)) // (16 if self.r.random() < 0.5 else 1)
        end = int(self.r.integers(begin + 1, channels + 1))
        return call("strided_slice", x, begin=(begin,), end=(end,), axes=(1,))

    def unary(self, x: Expr) -> Expr:
        return call(str(self.r.choice(["nn.relu", "tanh", "sigmoid", "negative", "abs"])), x)

    def binary(self, x: Expr) -> Expr:
        name = str(self.r.choice(["add", "subtract", "multiply", "maximum"]))
        return call("tanh", call(name, x, self.like(x)))

    def scaled(self, x: Expr) -> Expr:
        return call("add", call("multiply", x, weight(self.real(channels_of(x), 1, 1))), const(0.25, "float32"))

    def excite(self, x: Expr) -> Expr:
        channels = channels_of(x)
        gate = call("nn.global_avg_pool2d", x)
        gate = call("nn.relu", call("nn.conv2d", gate, weight(self.real(5, channels, 1, 1))))
        gate = call("sigmoid", call("nn.conv2d", gate, weight(self.real(channels, 5, 1, 1))))
        return call("multiply", x, gate)

    def shuffle(self, x: Expr) -> Expr:
        batch, channels, height, width = x.tensor_type.static_shape
        if channels % 2:
            return call("reverse", x, axis=3)
        split = call("reshape", x, newshape=(batch, 2, channels // 2, height, width))
        turned = call("transpose", split, axes=(0, 2, 1, 3, 4))
        return call("reshape", turned, newshape=(batch, channels, height, width))

    def turned(self, x: Expr) -> Expr:
        inner = call("transpose", x, axes=(0, 2, 3, 1))
        normal = call("nn.layer_norm", inner, *(weight(self.real(channels_of(x))) for _ in range(2)), axis=-1)
        return call("transpose", normal, axes=(0, 3, 1, 2))

    def attend(self, x: Expr) -> Expr:
        shape = x.tensor_type.static_shape
        rows = call("reshape", x, newshape=(shape[0], shape[1], -1))
        scores = call("nn.softmax", call("nn.matmul", rows, rows, transpose_b=True))
        return call("reshape", call("nn.matmul", scores, rows), newshape=shape)

    def normalise(self, x: Expr) -> Expr:
        return call("subtract", x, call("mean", x, axis=(2, 3), keepdims=True))


def channels_of(expr: Expr) -> int:
    return expr.tensor_type.static_shape[1]


def grow(seed: int, batch: Batch) -> None:
    graph = Graph(seed, batch)
    for _ in range(int(graph.r.integers(3, 18))):
        graph.values.append(graph.step())
    outputs = [graph.values[-1], graph.pick(), graph.pick()]
    if graph.r.random() < 0.3:
        outputs += [outputs[0], graph.values[0], weight(graph.real(3)), call("tanh", weight(graph.real(2)))]
    for number, value in enumerate(outputs):
        batch.add(f"graph {seed}, output {number} {value.checked_type}", value, 1e-4)


def gather(seed: int) -> Batch:
    batch = Batch()
    for number in range(GRAPHS):
        grow(100 * seed + number, batch)
    return batch


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("opt_level", [0, 3])
@pytest.mark.parametrize("target", target_params())
def test_graphs(target: str, opt_level: int, seed: int) -> None:
    # so that gcc relies on what kernels promise of their pointers
    gather(seed).compare(target, threads=(1, 3), opt_level=opt_level, optimisation="-O1")


def text_of(seed: int) -> str:
    return "\n".join(unit.text for unit in generate(gather(seed).function(), "x86-64-v3").units)


def test_text_does_not_vary() -> None:
    tests = Path(__file__).resolve().parents[1]
    script = "from test_host import text_of; import sys; sys.stdout.write(text_of(7))"
    path = os.pathsep.join([str(tests), str(tests / "property"), str(tests.parent)])
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        found = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert found.stdout == text_of(7)


def test_a_sum_of_a_value_and_itself_sixty_four_times_is_sixty_four_additions() -> None:
    x = var("x", TensorType((32,), "float32"))
    value: Expr = x
    for _ in range(64):
        value = call("add", value, value)
    for target in ("x86-64-v3", "c"):
        kernels = [unit.text for unit in generate(Function([x], value), target).units if unit.hot]
        assert len(kernels) == 1
        assert len(re.findall(r"\b(v\d*) \+ \1\b", kernels[0])) == 64


def test_a_shared_node_is_computed_once() -> None:
    x = var("x", TensorType((32,), "float32"))
    shared = call("log", x)
    for target, name in (("x86-64-v3", "rb_log("), ("c", "logf(")):
        units = generate(Function([x], call("add", shared, shared)), target).units
        assert [unit.text.count(name) for unit in units if unit.hot] == [1]
