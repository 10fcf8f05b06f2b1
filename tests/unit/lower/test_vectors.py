"""Groups of columns cover every column once, or twice within one group."""

from __future__ import annotations

import pytest

from relaybuild.lower.loop_ir import Builder, Loop
from relaybuild.lower.templates.vectors import column_groups, column_runs, tail_mask


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("size", [2, 4])
def test_groups_cover_all_columns_and_overlap_only_within(lanes: int, size: int) -> None:
    for width in range(lanes, 14 * lanes):
        groups = column_groups(width, lanes, size)
        whole = range(0, groups.size * lanes, lanes)
        owner: dict[int, int] = {}
        for number in range(groups.count):
            offsets = groups.last_offsets if number == groups.count - 1 else whole
            start = number * groups.size * lanes
            for column in (start + offset + lane for offset in offsets for lane in range(lanes)):
                assert owner.setdefault(column, number) == number
        assert sorted(owner) == list(range(width))
        assert len(groups.last_offsets) < 2 * size or groups.count == 1


def test_tail_mask_has_the_last_lanes() -> None:
    assert tail_mask(4, 1) == "(rb_m){0, 0, 0, -1}"
    assert tail_mask(4, 3) == "(rb_m){0, -1, -1, -1}"


@pytest.mark.parametrize(("width", "most", "longest"), [(160, 64, 10), (165, 64, 11), (16, 64, 1), (1600, 64, 50)])
def test_runs_of_a_row_are_equally_long_and_have_the_ragged_vector(width: int, most: int, longest: int) -> None:
    builder = Builder()
    with column_runs(builder, 3, width, 16, most) as run:
        pass
    assert run.most == longest
    assert run.is_ragged == (width % 16 > 0)
    loop = builder.body[-1]
    assert isinstance(loop, Loop)
    assert loop.axis.last == 3 * -(-width // 16 // most) - 1
