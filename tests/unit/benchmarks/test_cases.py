"""Shapes that are drawn: the same for the same seed, spread over sizes, with work that is counted right."""

from __future__ import annotations

import itertools

import pytest
from benchlib.cases import LEAST_SECONDS, MOST_SECONDS, TEMPLATES, _conv, _same, _Window, draw_cases, nominal_seconds
from benchlib.limits import Work


@pytest.mark.parametrize("name", TEMPLATES)
def test_sizes_ascend_from_tiny_to_large(name: str) -> None:
    cases = draw_cases([name], 5, 1)
    sizes = [nominal_seconds(case.work) for case in cases]
    assert all(case.template == name for case in cases)
    assert sizes[0] < LEAST_SECONDS * 20
    assert sizes[-1] > MOST_SECONDS / 10
    assert sum(after > before for before, after in itertools.pairwise(sizes)) >= 3


def test_the_seed_decides_and_templates_do_not_disturb_each_other() -> None:
    both = [case.label for case in draw_cases(["matrix product", "softmax"], 3, 0)]
    assert [case.label for case in draw_cases(["softmax"], 3, 0)] == both[3:]
    assert [case.label for case in draw_cases(["softmax"], 3, 7)] != both[3:]


def test_a_strided_window_without_overlap_touches_a_part_of_its_input() -> None:
    assert _Window(10, 1, 2).touched == 5
    assert _Window(10, 3, 2, 1, 1).touched == 10
    assert _Window(10, 3, 2, 1, 1).outputs == 5
    assert _same(10, 3, dilation=4).outputs == 10


def test_the_work_of_a_grouped_convolution() -> None:
    case = _conv("a", 8, 4, _same(5, 3), _same(6, 3), groups=2)
    assert case.work == Work(2.0 * 4 * 30 * 4 * 9, 4.0 * (8 * 30 + 4 * 4 * 9), 4.0 * 4 * 30)
