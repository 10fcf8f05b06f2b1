"""The wire format: what is written is read back, and nothing that is cut or odd is believed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.build.cache.wire import (
    WireError,
    bytes_field,
    expect_bytes,
    expect_int,
    expect_text,
    optional_field,
    read_fields,
    varint_field,
)

FIELDS = st.lists(
    st.tuples(st.integers(1, 2**20), st.one_of(st.integers(1, 2**63 - 1), st.binary(max_size=300))), max_size=8
)


@settings(deadline=None)
@given(FIELDS)
def test_fields_are_read_back(fields: list[tuple[int, int | bytes]]) -> None:
    data = b"".join(
        varint_field(number, value) if isinstance(value, int) else bytes_field(number, value)
        for number, value in fields
    )
    assert list(read_fields(data)) == fields


def test_bytes_are_those_of_the_specification() -> None:
    assert varint_field(1, 150) == b"\x08\x96\x01"
    assert bytes_field(2, "testing") == b"\x12\x07testing"
    assert (varint_field(1, 0), optional_field(2, b""), bytes_field(2, b"")) == (b"", b"", b"\x12\x00")


@pytest.mark.parametrize("data", [b"\x08", b"\x12\x05abc", b"\x0b", b"\x08" + b"\xff" * 11, b"\x0d\x00"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        list(read_fields(data))


def test_fixed_fields_are_skipped() -> None:
    assert list(read_fields(b"\x0d\x01\x00\x00\x00\x10\x01")) == [(1, b"\x01\x00\x00\x00"), (2, 1)]


def test_values_of_another_kind_are_refused() -> None:
    for expect, value in ((expect_bytes, 1), (expect_int, b""), (expect_text, b"\xff")):
        with pytest.raises(WireError):
            expect(value)  # type: ignore[operator]
