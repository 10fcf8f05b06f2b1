"""Layouts put every element at a place of its own, inside the buffer; views reach the same places."""

from __future__ import annotations

from itertools import product

import pytest

from relaybuild.lower.layout import BLOCK, Layout

SHAPES = ((1, 1, 1, 1), (2, 3, 4, 5), (1, 16, 2, 2), (2, 33, 3, 1))
HALOS = ((0, 0, 0, 0), (1, 2, 3, 0), (0, 1, 0, 1))


def places(layout: Layout) -> dict[tuple[int, ...], int]:
    found = {}
    for index in product(*map(range, layout.shape)):
        place = layout.address(list(index)).constant
        assert place is not None
        found[index] = place
    return found


@pytest.mark.parametrize("halo", HALOS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [Layout.row_major, Layout.blocked])
def test_places_are_distinct_and_inside(make: object, shape: tuple[int, ...], halo: tuple[int, int, int, int]) -> None:
    layout = make(shape, halo)  # type: ignore[operator]
    found = places(layout)
    assert len(set(found.values())) == len(found)
    assert min(found.values()) >= 0
    assert max(found.values()) < layout.size
    top, left, bottom, right = halo
    for row, column in ((-top, -left), (shape[2] - 1 + bottom, shape[3] - 1 + right)):
        corner = layout.address([shape[0] - 1, shape[1] - 1, row, column]).constant
        assert corner is not None
        assert 0 <= corner < layout.size
        if halo != (0, 0, 0, 0):
            assert corner not in found.values()


def test_a_slice_of_channels_begins_at_a_block() -> None:
    layout = Layout.blocked((2, 48, 3, 3), (1, 1, 1, 1))
    part = layout.channel_slice(16, 32)
    assert part is not None
    whole = places(layout)
    assert all(place == whole[n, c + 16, y, x] for (n, c, y, x), place in places(part).items())
    assert layout.channel_slice(8, 16) is None
    assert layout.channel_slice(0, 20) is None
    assert layout.channel_slice(32, 16) is not None
    ragged = Layout.blocked((1, 20, 2, 2)).channel_slice(16, 4)
    assert ragged is not None
    assert ragged.has_pad_lanes


def test_a_strided_slice_is_a_view() -> None:
    layout = Layout.row_major((5, 7, 6))
    view = layout.slice_view([1, 0, 3], [2, 3, 1], [2, 3, 3])
    whole = places(layout)
    assert all(place == whole[1 + 2 * a, 3 * b, 3 + c] for (a, b, c), place in places(view).items())
    assert not view.is_dense
    assert layout.is_dense


def test_blocks_hold_pad_lanes() -> None:
    layout = Layout.blocked((1, 17, 1, 1))
    assert (layout.num_blocks, layout.size, layout.has_pad_lanes) == (2, 2 * BLOCK, True)
    assert not Layout.blocked((1, 32, 1, 1)).has_pad_lanes
