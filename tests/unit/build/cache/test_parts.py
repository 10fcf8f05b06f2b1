"""Where blobs are cut, and the lists of their parts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaybuild.build.cache.parts import MOST_BYTES, decode, encode, spans
from relaybuild.digest import digest_bytes

MB = 1 << 20


@given(
    st.integers(1, 200 * MB),
    st.lists(st.integers(0, 210 * MB), max_size=200).map(sorted),
)
def test_parts_follow_each_other_and_are_no_larger_than_they_may_be(size: int, cuts: list[int]) -> None:
    found = spans(size, cuts)
    assert found[0][0] == 0
    assert found[-1][1] == size
    assert all(before[1] == after[0] for before, after in itertools.pairwise(found))
    assert all(0 < end - begin <= MOST_BYTES for begin, end in found)
    assert len(found) <= 140


def test_what_comes_before_the_first_cut_is_a_part_and_small_neighbours_are_one() -> None:
    assert spans(4 * MB, [1000, 2000, 3000, 2 * MB]) == [(0, 1000), (1000, 2 * MB), (2 * MB, 4 * MB)]
    assert spans(4 * MB, []) == [(0, 4 * MB)]


def test_cuts_come_together_again_behind_what_is_new() -> None:
    sizes = [3 * MB, 10_000, 20_000, 5 * MB, 400_000, 30_000, 7 * MB]
    other = [3 * MB, 2 * MB, 20_000, 5 * MB, 400_000, 30_000, 7 * MB]

    def lengths(sizes: list[int]) -> list[int]:
        cuts = [1000 + sum(sizes[:number]) for number in range(len(sizes))]
        return [end - begin for begin, end in spans(1000 + sum(sizes), cuts)]

    assert lengths(sizes)[-2:] == lengths(other)[-2:] == [400_000, 7 * MB + 30_000]


@pytest.mark.parametrize("data", [b"", b"x", b"0" * 64, b"0" * 64 + b" 1", b"\xff" * 66 + b"\n", b"A" * 64 + b" 1\n"])
def test_bytes_that_are_no_list(data: bytes) -> None:
    assert decode(data) is None


def test_a_list_is_read_as_it_was_written() -> None:
    parts = tuple(map(digest_bytes, (b"", b"one", b"two")))
    assert decode(encode(parts)) == parts
