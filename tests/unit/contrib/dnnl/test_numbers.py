"""Regions of oneDNN compute what their operators mean; skipped where oneDNN is not installed."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from runners.packed import typed
from runners.vendors import compare, require

from relaybuild.contrib.dnnl import BACKEND
from relaybuild.contrib.dnnl.patterns import PATTERNS
from relaybuild.contrib.dnnl.supports import supports_long
from relaybuild.ir.expr import Call, Expr, Var, const
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType


@pytest.fixture(autouse=True)
def _installed() -> None:
    require(BACKEND)


class Program:
    """Parameters and calls over them, as they are drawn."""

    def __init__(self, draw: st.DrawFn | None = None) -> None:
        self.draw = draw
        self.params: list[Var] = []
        self.results: list[Expr] = []

    def param(self, *shape: int) -> Var:
        self.params.append(Var(f"x{len(self.params)}", TensorType(shape)))
        return self.params[-1]

    def integer(self, low: int, high: int) -> int:
        assert self.draw is not None
        return self.draw(st.integers(low, high))

    def convolution(self) -> Expr:
        """A convolution of any kind, with a bias, a sum and an activation or without."""
        groups = self.integer(1, 4)
        inner, outer = self.integer(1, 9), self.integer(1, 9)
        if self.draw(st.booleans()):
            groups, inner, outer = groups * inner, 1, self.integer(1, 2)
        window = [self.integer(1, 4) for _ in "HW"]
        dilation = [self.integer(1, 3) for _ in "HW"]
        padding = [self.integer(0, 3) for _ in range(4)]
        extents = [
            max(dilation[axis] * (window[axis] - 1) + 1 - padding[axis] - padding[axis + 2], 1) + self.integer(0, 6)
            for axis in (0, 1)
        ]
        data = self.param(self.integer(1, 2), groups * inner, *extents)
        weight = self.param(groups * outer, inner, *window)
        result = call_op(
            "nn.conv2d",
            [data, weight],
            groups=groups,
            padding=padding,
            dilation=dilation,
            strides=[self.integer(1, 3) for _ in "HW"],
        )
        return self.followed(result, (groups * outer, 1, 1))

    def product(self) -> Expr:
        """A dense or a batched product, either operand of which may lie transposed or be broadcast."""
        rows, inner, columns = (self.integer(1, 9) for _ in range(3))
        leading = [self.integer(1, 3) for _ in range(self.integer(0, 2))]
        if self.draw(st.booleans()):
            result = call_op("nn.dense", [self.param(*leading, rows, inner), self.param(columns, inner)])
            return self.followed(result, (columns,))
        transposed = [self.draw(st.booleans()) for _ in "ab"]
        shapes = [[rows, inner], [inner, columns]]
        operands = []
        for shape, is_transposed in zip(shapes, transposed):
            extents = [self.draw(st.sampled_from((extent, extent, 1))) for extent in leading]
            kept = extents[self.integer(0, len(extents)) :]
            operands.append(Var("x", TensorType((*kept, *(reversed(shape) if is_transposed else shape)))))
        call = call_op("nn.matmul", operands, transpose_a=transposed[0], transpose_b=transposed[1])
        assume(BACKEND.supports(call) is True)
        self.params += operands
        result = call
        return self.followed(result, (columns,))

    def followed(self, result: Call, bias: tuple[int, ...]) -> Expr:
        """A result with what may follow it in one operation."""
        assert self.draw is not None
        anchor, shape = result, result.tensor_type.static_shape
        has_bias, has_sum = self.draw(st.booleans()), self.draw(st.booleans())
        activation = self.draw(st.sampled_from((None, *ACTIVATIONS)))
        assume(not has_sum or activation is None or supports_long(anchor) is True)
        if has_bias:
            result = call_op("add", [result, self.param(*bias)])
        if has_sum:
            result = call_op("add", [self.param(*shape), result])
        return activated(result, activation)

    def pooling(self) -> Expr:
        """A pooling of any kind."""
        window = [self.integer(1, 4) for _ in "HW"]
        padding = [self.integer(0, window[side % 2] - 1) for side in range(4)]
        data = self.param(self.integer(1, 2), self.integer(1, 20), *(self.integer(4, 12) for _ in "HW"))
        return call_op(
            f"nn.{self.draw(st.sampled_from(('max', 'avg')))}_pool2d",
            [data],
            pool_size=window,
            padding=padding,
            strides=[self.integer(1, 3) for _ in "HW"],
            ceil_mode=self.draw(st.booleans()),
        )


ACTIVATIONS = ("relu", "leaky_relu", "clip", "sigmoid", "tanh", "swish", "gelu", "double gelu")


def activated(x: Expr, name: str | None) -> Expr:
    if name in ("relu", "leaky_relu"):
        return call_op(f"nn.{name}", [x], **({"alpha": 0.3} if name == "leaky_relu" else {}))
    if name == "clip":
        return call_op("clip", [x], a_min=-0.5)
    if name in ("sigmoid", "tanh"):
        return call_op(name, [x])
    if name == "swish":
        return call_op("multiply", [x, call_op("sigmoid", [x])])
    if name is None:
        return x
    number = {key: const(np.float32(key)) for key in (0.5, 1.0, 2**0.5)}
    gate = call_op("add", [call_op("erf", [call_op("divide", [x, number[2**0.5]])]), number[1.0]])
    half = call_op("multiply", [x, number[0.5]]) if name == "gelu" else x
    return call_op("multiply", [half, gate])


@st.composite
def programs(draw: st.DrawFn) -> Program:
    program = Program(draw)
    for _ in range(draw(st.integers(4, 8))):
        kind = draw(st.sampled_from((Program.convolution, Program.convolution, Program.product, Program.pooling)))
        program.results.append(kind(program))
    return program


def test_leading_axes_that_are_broadcast() -> None:
    """Every way in which one operand can be, with either transposed."""
    program = Program()
    shapes = [(2, 3, 2), (1, 3, 2), (2, 1, 2), (2, 3, 1), (1, 1, 2), (2, 1, 1), (1, 3, 1), (3, 2), (3, 1), (2,), ()]
    for a, b in product(shapes, shapes):
        operands = [program.param(*a, 5, 4), program.param(*b, 3, 4)]
        call = call_op("nn.matmul", operands, transpose_b=True)
        if BACKEND.supports(call) is True:
            program.results.append(call)
    assert len(program.results) > 50
    compare(BACKEND, program.params, program.results)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.booleans())
def test_operations_of_all_kinds(program: Program, are_weights: bool) -> None:
    weights = range(len(program.params)) if are_weights else ()
    compare(BACKEND, program.params, program.results, weights=weights)


def test_every_pattern() -> None:
    """One region in which each pattern has a call, so that no name lacks its reading."""
    program = Program()
    image, kernel, bias = program.param(1, 8, 6, 6), program.param(16, 8, 3, 3), program.param(16, 1, 1)
    rows, matrix, vector = program.param(4, 8), program.param(16, 8), program.param(16)
    anchors = {
        "conv2d": (lambda: call_op("nn.conv2d", [image, kernel]), bias, program.param(1, 16, 4, 4)),
        "dense": (lambda: call_op("nn.dense", [rows, matrix]), vector, program.param(4, 16)),
        "matmul": (lambda: call_op("nn.matmul", [rows, matrix], transpose_b=True), vector, program.param(4, 16)),
    }
    for entry in PATTERNS:
        anchor, *parts = entry.name.removeprefix("dnnl.").replace("leaky_relu", "leaky-relu").split("_")
        make, added, summed = anchors[anchor]
        result: Expr = make()
        for part in parts:
            if part in ("bias", "sum"):
                result = call_op("add", [result, added if part == "bias" else summed])
            else:
                result = activated(result, part.replace("-", "_"))
        program.results.append(result)
    compare(BACKEND, program.params, program.results)


CHAIN = """def @main(%x: Tensor[(2, 3, 20, 20), float32], %w0: Tensor[(20, 3, 3, 3), float32],
    %b0: Tensor[(20, 1, 1), float32], %w1: Tensor[(20, 20, 3, 3), float32], %w2: Tensor[(20, 1, 3, 3), float32],
    %w3: Tensor[(40, 20, 1, 1), float32], %d: Tensor[(7, 10), float32]) {
  %0 = nn.conv2d(%x, %w0, padding=[1, 1, 1, 1]);
  %1 = add(%0, %b0);
  %2 = nn.relu(%1);
  %3 = nn.max_pool2d(%2, pool_size=[2, 2], strides=[2, 2]);
  %4 = nn.conv2d(%3, %w1, padding=[1, 1, 1, 1]);
  %5 = add(%4, %3);
  %6 = nn.relu(%5);
  %7 = nn.conv2d(%6, %w2, groups=20, padding=[1, 1, 1, 1]);
  %8 = add(%7, %6);
  %9 = nn.conv2d(%8, %w3);
  %10 = nn.dense(%9, %d);
  %11 = nn.conv2d(%2, %w1, padding=[1, 1, 1, 1]);
  %12 = add(%11, %2);
  RESULTS
}"""


@pytest.mark.parametrize(
    "results",
    [
        "%10",
        # outputs of the region that are read within it too, also after a sum has been made of them
        "(%10, %6, %8)",
        "(%2, %12)",
        "(%12, %3, %9)",
        "(%8, %2)",
    ],
)
def test_values_that_are_read_summed_and_returned(results: str) -> None:
    main = typed(CHAIN.replace("RESULTS", results))["main"]
    compare(BACKEND, main.params, [main.body], weights=range(1, 7))


def test_an_input_and_a_literal_may_be_summed_and_returned() -> None:
    """Neither is written to."""
    program = Program()
    x, weight = program.param(1, 8, 5, 5), program.param(8, 8, 1, 1)
    literal = const(np.random.default_rng(3).normal(size=(1, 8, 5, 5)).astype("float32"))
    first = call_op("nn.conv2d", [x, weight])
    second = call_op("nn.conv2d", [call_op("add", [first, x]), weight])
    program.results = [call_op("add", [second, literal]), x, literal, call_op("nn.max_pool2d", [x], pool_size=[1, 1])]
    compare(BACKEND, program.params, program.results)


@pytest.mark.parametrize("limits", [(0.0, 6.0), (None, 0.25), (-0.25, None), (None, None), (0.5, 0.5)])
def test_limits_of_a_clip(limits: tuple[Any, Any]) -> None:
    program = Program()
    call = call_op("nn.dense", [program.param(5, 7), program.param(33, 7)])
    program.results = [call_op("clip", [call], a_min=limits[0], a_max=limits[1])]
    compare(BACKEND, program.params, program.results)
