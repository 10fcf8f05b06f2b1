"""What travels is believed only as it was sealed, by whom it was sealed, and where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from build.cache.conftest import action
from relaybuild.build.cache.action import Action
from relaybuild.build.cache.record import Output, RecordError, Result, UntrustedRecord
from relaybuild.build.cache.remote.sealed import (
    note_action,
    note_result,
    read_note,
    seal_result,
    unseal_result,
)
from relaybuild.build.cache.wire import bytes_field, expect_bytes, read_fields
from relaybuild.digest import digest_bytes

SECRET = b"secret"
RESULT = Result(
    (Output("code.c", digest_bytes(b"x" * 5000)), Output("code.h", digest_bytes(b"y"), True, b"y")), 1.7e9, 2.5, "here"
)
WHAT = action("Fold")


def sealed(result: Result = RESULT, what: Action = WHAT, namespace: str = "main", secret: bytes = b"") -> bytes:
    return seal_result(result, namespace, what.key(namespace), secret)


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_what_was_sealed_is_what_is_read(secret: bytes) -> None:
    assert unseal_result(sealed(secret=secret), WHAT, "main", secret).has_same_outputs(RESULT)


def test_what_a_server_may_rearrange_does_not_count() -> None:
    fields = list(read_fields(sealed(secret=SECRET)))
    files = [expect_bytes(value) for number, value in fields if number == 2]
    bare = [b"".join(bytes_field(n, expect_bytes(v)) for n, v in read_fields(each) if n in (1, 2)) for each in files]
    metadata = [expect_bytes(value) for number, value in fields if number == 9]
    added = bytes_field(7, bytes_field(1, "0" * 64))
    plain = replace(RESULT, outputs=tuple(replace(each, is_executable=False) for each in RESULT.outputs))
    resealed = list(read_fields(sealed(plain, secret=SECRET)))
    metadata = [expect_bytes(value) for number, value in resealed if number == 9]
    record = bytes_field(9, metadata[0]) + added + b"".join(bytes_field(2, each) for each in bare)
    found = unseal_result(record, WHAT, "main", SECRET)
    assert [each.contents for each in found.outputs] == [None, None]


def test_every_changed_byte_of_what_counts_is_seen() -> None:
    record = sealed()
    accepted = 0
    for place in range(len(record)):
        for bit in (1, 64):
            altered = bytearray(record)
            altered[place] ^= bit
            try:
                found = unseal_result(bytes(altered), WHAT, "main", b"")
            except RecordError:
                continue
            accepted += 1
            assert found.has_same_outputs(RESULT)
            assert found.origin == RESULT.origin
    # Times are not sealed, nor is what no reader knows.
    assert accepted < len(record) // 4


@pytest.mark.parametrize("length", [0, 1, 10, 100])
def test_a_record_that_was_cut_is_none(length: int) -> None:
    with pytest.raises(RecordError):
        unseal_result(sealed()[:length], WHAT, "main", b"")


def test_what_was_not_sealed_with_the_secret_is_not_trusted() -> None:
    for record in (sealed(), sealed(secret=b"other"), RESULT.encode()):
        with pytest.raises(UntrustedRecord):
            unseal_result(record, WHAT, "main", SECRET)


def test_a_result_without_a_seal_is_not_believed() -> None:
    with pytest.raises(RecordError, match="without a seal"):
        unseal_result(RESULT.encode(), WHAT, "main", b"")


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_a_seal_holds_in_its_place_only(secret: bytes) -> None:
    record = sealed(secret=secret)
    for what, namespace in ((action("Other"), "main"), (WHAT, "pr/1")):
        with pytest.raises(RecordError):
            unseal_result(record, what, namespace, secret)


def test_an_output_without_bytes_travels() -> None:
    empty = replace(RESULT, outputs=(Output("code.c", digest_bytes(b"")),))
    assert unseal_result(sealed(empty), WHAT, "main", b"").has_same_outputs(empty)


def test_a_note_is_a_result_of_its_name() -> None:
    what = note_action("headers", "one")
    assert what.key("main") != note_action("headers", "two").key("main")
    assert what.key("main") != note_action("facts", "one").key("main")
    record = sealed(note_result(b"a list" * 1000, "here"), what)
    assert read_note(unseal_result(record, what, "main", b"")) == b"a list" * 1000
