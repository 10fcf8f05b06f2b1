"""Digests: the plain ones agree with hashlib, and no two sequences of fields have one preimage."""

from __future__ import annotations

import hashlib
import importlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaybuild import digest
from relaybuild.digest import Digest, Hasher, Value, digest_bytes, digest_file, encode_field

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)
FIELDS = st.lists(st.tuples(st.text(max_size=4), VALUES), max_size=4)


def digest_of(fields: list[tuple[str, Value]], domain: str = "test") -> Digest:
    hasher = Hasher(domain)
    for tag, value in fields:
        hasher.field(tag, value)
    return hasher.digest()


def spelled(value: object) -> str:
    """Equality that tells `1`, `1.0`, `True` and `-0.0` apart."""
    return repr(value)


@given(FIELDS, FIELDS)
def test_fields_collide_only_if_they_are_equal(left: list[tuple[str, Value]], right: list[tuple[str, Value]]) -> None:
    assert (digest_of(left) == digest_of(right)) == (spelled(left) == spelled(right))


def test_values_of_different_types_differ() -> None:
    values: list[Value] = [None, 0, 0.0, -0.0, False, "", b"", (), 1, 1.0, True, "1", b"1", (1,), ((1,),), ("1",)]
    values.append(digest_bytes(b""))
    digests = [digest_of([("x", value)]) for value in values]
    for (i, left), (j, right) in itertools.combinations(enumerate(digests), 2):
        assert left != right, (values[i], values[j])


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ([("ab", "c")], [("a", "bc")]),
        ([("a", ("b", "c"))], [("a", ("bc",))]),
        ([("a", ("b",)), ("c", ())], [("a", ("b", "c", ()))]),
        ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)]),
    ],
)
def test_moving_a_boundary_changes_the_digest(left: list[tuple[str, Value]], right: list[tuple[str, Value]]) -> None:
    assert digest_of(left) != digest_of(right)


@given(FIELDS)
def test_fields_may_be_encoded_before(fields: list[tuple[str, Value]]) -> None:
    encoded = b"".join(encode_field(tag, value) for tag, value in fields)
    assert Hasher("test").append(encoded).digest() == digest_of(fields)


def test_domains_differ() -> None:
    assert digest_of([], "kernel.1") != digest_of([], "kernel.2")


def test_digests_do_not_change_between_versions_of_python_or_machines() -> None:
    fields: list[tuple[str, Value]] = [("name", "é"), ("sizes", (1, -2, 2**70)), ("scale", 0.1), ("raw", b"\0")]
    fields += [("none", None), ("flag", True), ("part", digest_bytes(b"x"))]
    assert digest_of(fields).hex == "a799bc7719298f4c73be21af9ee23217b487c688f27ca1a058fe8acead4b9be7"


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot hash a value of type 'list'"):
        Hasher("test").field("x", [1])  # type: ignore[arg-type]


def test_a_digest_prints_as_its_hex_and_knows_its_size() -> None:
    digest = digest_bytes(b"abc")
    assert str(digest) == digest.hex == hashlib.sha256(b"abc").hexdigest()
    assert digest.size == 3
    assert digest.short(8) == digest.hex[:8]


def test_buffers_of_wide_items_are_hashed_by_bytes() -> None:
    buffer = memoryview(bytes(range(16))).cast("f")
    assert digest_bytes(buffer) == digest_bytes(bytes(range(16)))


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1])
def test_a_file_has_the_digest_of_its_bytes(tmp_path: Path, size: int) -> None:
    data = bytes(i % 251 for i in range(size))
    path = tmp_path / "data"
    path.write_bytes(data)
    assert digest_file(path) == digest_bytes(data)


def test_where_sha256_is_implemented_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for: list[str] = []

    def counting(name: str) -> Any:
        looked_for.append(name)
        return importlib.import_module(name)

    monkeypatch.delitem(sys.modules, "hashlib")
    monkeypatch.setattr(digest, "importlib", SimpleNamespace(import_module=counting))
    digest._own_sha256.cache_clear()
    expected = {"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
    assert {digest.sha256().hexdigest() for _ in range(3)} == expected
    assert len(set(looked_for)) == len(looked_for) <= 3
