"""Records: read back as they were, refused when altered, moved, of another version or sealed by somebody else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaybuild.build.cache.record import (
    Entry,
    OtherVersion,
    Output,
    RecordError,
    Result,
    UntrustedRecord,
    products,
    read_reference,
    reference,
    seal,
    unseal,
)
from relaybuild.build.cache.wire import WireError, bytes_field, varint_field
from relaybuild.digest import digest_bytes

from .conftest import action

RESULT = Result(
    (
        Output("a.c", digest_bytes(b"int x;")),
        Output("b", digest_bytes(b"small"), is_executable=True, contents=b"small"),
    ),
    ended=1.75e9,
    seconds=0.5,
    origin="host",
)


def test_a_result_is_read_back() -> None:
    assert Result.decode(RESULT.encode()) == RESULT


def test_an_output_without_bytes_is_in_the_record() -> None:
    result = Result((Output("a", digest_bytes(b""), contents=b""), Output("b", digest_bytes(b"b"))))
    assert Result.decode(result.encode()) == result
    assert Entry.blobs_of(Entry(result, b"action").encode()) == (digest_bytes(b"b").hex,)


def test_an_entry_belongs_to_its_key_in_its_namespace() -> None:
    made = action(x=b"1")
    entry = Entry.decode(Entry(RESULT, made.encode()).encode())
    assert entry.belongs_to(made.key("main"), "main")
    assert not entry.belongs_to(made.key("main"), "release")
    assert not entry.belongs_to(action(x=b"2").key("main"), "main")


def test_a_failed_action_has_no_result() -> None:
    with pytest.raises(WireError, match="failed"):
        Result.decode(RESULT.encode() + varint_field(4, 1))


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a//b", "", "a\0"])
def test_an_output_with_a_path_elsewhere_is_refused(name: str) -> None:
    data = Result((Output(name, digest_bytes(b"x")),)).encode()
    with pytest.raises(WireError, match="no name of an output"):
        Result.decode(data)


def test_contents_must_have_the_digest_that_is_said() -> None:
    data = Result((Output("a", digest_bytes(b"right"), contents=b"wrong"),)).encode()
    with pytest.raises(WireError, match="not what their digest says"):
        Result.decode(data)


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 2**30), st.integers(0, 7))
def test_a_record_with_one_bit_changed_is_refused(payload: bytes, place: int, bit: int) -> None:
    record = bytearray(seal("ac/main", "00", payload))
    record[place % len(record)] ^= 1 << bit
    with pytest.raises(RecordError):
        unseal("ac/main", "00", bytes(record))


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=60), st.integers(0, 2**30))
def test_a_record_that_is_cut_is_refused(payload: bytes, place: int) -> None:
    record = seal("ac/main", "00", payload)
    with pytest.raises(RecordError):
        unseal("ac/main", "00", record[: place % len(record)])


def test_a_record_is_good_in_its_place_only() -> None:
    record = seal("ac/main", "00", b"payload")
    assert unseal("ac/main", "00", record) == b"payload"
    for kind, name in (("ac/release", "00"), ("ac/main", "01"), ("slot", "00")):
        with pytest.raises(RecordError):
            unseal(kind, name, record)


def test_a_record_of_another_version_is_told_apart() -> None:
    record = bytearray(seal("ac/main", "00", b"payload"))
    record[3] += 1
    with pytest.raises(OtherVersion, match="version 2, expected 1"):
        unseal("ac/main", "00", bytes(record))


def test_a_secret_keeps_out_who_does_not_have_it() -> None:
    record = seal("ac/main", "00", b"payload", b"secret")
    assert unseal("ac/main", "00", record, b"secret") == b"payload"
    with pytest.raises(RecordError):
        unseal("ac/main", "00", record, b"other")
    with pytest.raises(RecordError):
        unseal("ac/main", "00", record)
    with pytest.raises(UntrustedRecord):
        unseal("ac/main", "00", seal("ac/main", "00", b"payload"), b"secret")


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_in_one_way(data: bytes) -> None:
    with pytest.raises(RecordError):
        Entry.decode(bytes_field(1, data))
    with pytest.raises(RecordError):
        unseal("ac/main", "00", data)


def test_a_digest_can_be_an_output() -> None:
    digest = digest_bytes(b"module")
    assert read_reference(reference(digest)) == digest
    for contents in (b"", b"relaybuild-digest xx 3\n", b"relaybuild-digest " + b"0" * 64 + b" x\n", b"\xff"):
        assert read_reference(contents) is None
    outputs = (Output("m", digest_bytes(reference(digest)), contents=reference(digest)),)
    assert digest.hex in products(outputs)
