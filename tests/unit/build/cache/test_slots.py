"""A slot remembers what was last done in it, and says what is new."""

from __future__ import annotations

import pytest

from relaybuild.build.cache import slots
from relaybuild.build.cache.journal import Change, MissReason, Storing
from relaybuild.build.cache.record import Output, RecordError, Result
from relaybuild.build.cache.slots import Past
from relaybuild.build.cache.store import Cache
from relaybuild.digest import digest_bytes

from .conftest import action

RESULT = Result((Output("a", digest_bytes(b"1"), contents=b"1"),), 5.0, 1.0, "host")


def past(storing: Storing = Storing.STORED, **inputs: bytes) -> Past:
    made = action(**inputs)
    return Past(made.key("main"), made, RESULT, storing)


def test_what_was_done_is_remembered_by_layer_and_slot(cache: Cache) -> None:
    slots.remember(cache.records, "pass", "m", past(x=b"1"))
    assert slots.recall(cache.records, "pass", "m") == past(x=b"1")
    assert slots.recall(cache.records, "codegen", "m") is None
    assert slots.recall(cache.records, "pass", "n") is None
    slots.remember(cache.records, "pass", "m", past(x=b"2"))
    assert slots.recall(cache.records, "pass", "m") == past(x=b"2")


@pytest.mark.parametrize("payload", [b"", b"\xff", past(x=b"1").encode()[:-3]])
def test_a_damaged_slot_is_as_none(cache: Cache, payload: bytes) -> None:
    with pytest.raises(RecordError):
        Past.decode(payload)
    cache.records.write(slots.KIND, slots._name("pass", "m"), payload)
    assert slots.recall(cache.records, "pass", "m") is None


def test_only_news_is_written() -> None:
    key = action(x=b"1").key("main")
    assert slots.is_news(None, key, Storing.STORED)
    assert slots.is_news(past(x=b"2"), key, Storing.KNOWN)
    assert not slots.is_news(past(x=b"1"), key, Storing.KNOWN)
    assert not slots.is_news(past(Storing.RACY_INPUT, x=b"1"), key, Storing.RACY_INPUT)
    assert slots.is_news(past(Storing.RACY_INPUT, x=b"1"), key, Storing.KNOWN)


def test_why_something_is_missing() -> None:
    made = action(x=b"1")
    key = made.key("main")
    assert slots.why_missing(None, made, key) == (MissReason.NEVER_SEEN, "", ())
    assert slots.why_missing(past(x=b"1"), made, key) == (MissReason.EVICTED, "", ())
    found = slots.why_missing(past(Storing.TOO_LARGE, x=b"1"), made, key)
    assert found == (MissReason.EVICTED, "was not kept: too-large", ())
    assert slots.why_missing(past(Storing.RACY_INPUT, x=b"1"), made, key)[0] is MissReason.RACY_INPUT
    changes = (Change("in/x", digest_bytes(b"0").hex, digest_bytes(b"1").hex),)
    assert slots.why_missing(past(x=b"0"), made, key) == (MissReason.CHANGED, "", changes)
    assert slots.why_missing(past(x=b"1"), made, made.key("pr/1"))[0] is MissReason.NEVER_SEEN


def test_other_outputs_contradict_only_a_result_that_was_kept() -> None:
    key, other = action(x=b"1").key("main"), Result((Output("a", digest_bytes(b"2"), contents=b"2"),))
    assert slots.is_contradicted(past(x=b"1"), key, other)
    assert not slots.is_contradicted(past(x=b"1"), key, RESULT)
    assert not slots.is_contradicted(past(x=b"2"), key, other)
    assert not slots.is_contradicted(past(Storing.RACY_INPUT, x=b"1"), key, other)
    assert not slots.is_contradicted(None, key, other)


def test_a_difference_names_what_is_new_and_what_is_gone() -> None:
    old, new = {"a": "1", "b": "1", "c": "1"}, {"b": "2", "c": "1", "d": "1"}
    assert slots.difference(old, new) == (Change("a", "1", None), Change("b", "1", "2"), Change("d", None, "1"))
