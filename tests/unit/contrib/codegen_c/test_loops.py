"""Loops are as few as the operands' shapes allow, and reach every element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaybuild.contrib.codegen_c.loops import Axis, loop_axes, loop_nest


@pytest.mark.parametrize(
    ("shape", "operands", "axes"),
    [
        ((), [(), ()], []),
        ((2, 3, 4), [(2, 3, 4), (2, 3, 4)], [Axis(24, (1, 1, 1))]),
        ((2, 3, 4), [(2, 3, 4), ()], [Axis(24, (1, 1, 0))]),
        ((2, 3, 4), [(2, 3, 4), (3, 4)], [Axis(2, (12, 12, 0)), Axis(12, (1, 1, 1))]),
        ((2, 3, 4), [(2, 3, 1), (2, 3, 4)], [Axis(6, (4, 1, 4)), Axis(4, (1, 0, 1))]),
        ((2, 1, 4), [(2, 1, 4), (1, 4)], [Axis(2, (4, 4, 0)), Axis(4, (1, 1, 1))]),
        ((5, 7), [(5, 1), (7,)], [Axis(5, (7, 1, 0)), Axis(7, (1, 0, 1))]),
        ((1, 1), [(1,), ()], []),
    ],
)
def test_neighbours_are_one_loop_where_they_can(
    shape: tuple[int, ...], operands: list[tuple[int, ...]], axes: list[Axis]
) -> None:
    assert loop_axes(shape, operands) == axes


@given(st.data())
def test_every_element_meets_those_that_broadcasting_gives_it(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 3), max_size=6)))
    operand = tuple(data.draw(st.sampled_from((extent, 1))) for extent in shape)
    operand = operand[data.draw(st.integers(0, len(shape))) :]
    axes = loop_axes(shape, [operand])
    found = [
        tuple(sum(i * stride for i, stride in zip(index, strides)) for strides in zip(*(axis.strides for axis in axes)))
        for index in itertools.product(*(range(axis.extent) for axis in axes))
    ]
    numbered = np.broadcast_to(np.arange(np.prod(operand, dtype=int)).reshape(operand), shape)
    assert [each or (0, 0) for each in found] == list(enumerate(numbered.ravel()))


def test_a_loop_nest_runs_a_statement_for_every_element() -> None:
    axes = [Axis(5, (7, 1, 0)), Axis(7, (1, 0, 1))]
    assert loop_nest(axes, ["out", "a", "b"], "{out} = {a} + {b};") == [
        "for (int64_t i0 = 0; i0 < 5; ++i0) {",
        "  for (int64_t i1 = 0; i1 < 7; ++i1) {",
        "    out[i0 * 7 + i1] = a[i0] + b[i1];",
        "  }",
        "}",
    ]


def test_a_tensor_without_elements_takes_no_loop() -> None:
    assert loop_nest([Axis(0, (1, 1))], ["out", "a"], "{out} = {a};") == ["(void)out;", "(void)a;"]
