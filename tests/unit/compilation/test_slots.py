"""Weights by number and constants by content: which arrays are the same, and when one is loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaybuild.compilation.slots import Given, Weights, pack, unpack
from relaybuild.digest import digest_bytes
from relaybuild.ir.expr import Constant, const


def arrays() -> list[np.ndarray[Any, Any]]:
    """Arrays of all kinds of types and shapes, also those that are not contiguous."""
    found = [
        np.arange(12, dtype="float32").reshape(3, 4),
        np.arange(12, dtype="float64").reshape(3, 4).T,
        np.arange(130, dtype="int64")[::2],
        np.zeros((0, 5), "float32"),
        np.array(2.5, "float32"),
        np.arange(70) % 2 == 0,
        np.array([1.5, np.nan, -0.0, np.inf], "float16"),
        np.arange(100, dtype="uint8"),
    ]
    try:
        import ml_dtypes
    except ImportError:
        return found
    return [*found, np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("array", arrays(), ids=lambda array: f"{array.dtype.name}{array.shape}")
def test_arrays_are_packed_without_loss(array: np.ndarray[Any, Any]) -> None:
    found = unpack(pack(array))
    assert (found.dtype, found.shape) == (array.dtype, array.shape)
    assert found.tobytes() == array.tobytes()
    assert not found.flags.writeable


@pytest.mark.parametrize("data", [b"", b"{}\n", b"[]\n", b'{"dtype": "float32", "shape": [2]}\n1234', b"\xff\n"])
def test_bytes_that_are_no_array_are_refused(data: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        unpack(data)


class Counted:
    """Gives an array, and counts how often."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.times = 0

    def __call__(self) -> np.ndarray[Any, Any]:
        self.times += 1
        return self.array


def test_a_weight_is_loaded_when_it_is_asked_for_and_once() -> None:
    first, second = Counted(np.arange(3, dtype="float32")), Counted(np.arange(4, dtype="float32"))
    weights = Weights([Given(first), Given(second)])
    assert len(weights) == 2
    assert 1 in weights
    assert 2 not in weights
    assert -1 not in weights
    assert "12" not in weights
    assert weights.array(1) is weights.array(1)
    assert weights.digest(1) == digest_bytes(np.arange(4, dtype="float32").tobytes())
    assert (first.times, second.times) == (0, 1)


def test_a_digest_that_is_known_needs_no_array() -> None:
    given = Counted(np.arange(3, dtype="float32"))
    digest = digest_bytes(b"known")
    assert Weights([Given(given, digest)]).digest(0) == digest
    assert given.times == 0


@pytest.mark.parametrize("is_writable", [True, False])
def test_a_constant_over_a_weights_array_is_that_weight(is_writable: bool) -> None:
    array = np.arange(3, dtype="float32")
    array.flags.writeable = is_writable
    weights = Weights([Given(lambda: array)])
    constant = Constant(weights.array(0))
    assert weights.origin(constant) == weights.known(constant) == 0


def test_a_weight_is_known_by_every_array_that_was_adopted() -> None:
    first, second = (const(np.arange(3, dtype="float32")) for _ in range(2))
    weights = Weights([Given(lambda: np.arange(3, dtype="float32"))])
    assert weights.known(first) is None
    weights.adopt(0, first.array)
    # as when a step is executed although the value was taken for its key before
    weights.adopt(0, second.array)
    loaded = Constant(weights.array(0))
    assert [weights.origin(each) for each in (first, second, loaded)] == [0, 0, 0]


def test_an_adopted_weight_is_not_loaded() -> None:
    given = Counted(np.arange(3, dtype="float32"))
    weights = Weights([Given(given)])
    constant = const(np.arange(3, dtype="float32"))
    weights.adopt(0, constant.array)
    assert weights.array(0) is constant.array
    assert given.times == 0


def test_constants_are_known_by_type_and_content() -> None:
    weights = Weights()
    first, equal = const(np.arange(4, dtype="float32")), const(np.arange(4, dtype="float32"))
    assert weights.origin(first) == weights.origin(equal)
    others = [
        const(np.arange(4, dtype="float32").reshape(2, 2)),
        const(np.arange(4, dtype="float32").view("int32")),
        const(np.arange(4, dtype="float32") + 1),
    ]
    assert len({weights.origin(each) for each in (first, *others)}) == 4
    for each in (first, *others):
        found = weights.array(weights.origin(each))
        assert (found.dtype.name, found.shape) == (each.dtype, each.array.shape)


def test_a_constant_that_was_told_of_is_read_when_it_is_asked_for() -> None:
    array = np.arange(4, dtype="float32")
    made = Weights()
    origin = made.origin(const(array))
    assert isinstance(origin, str)
    read: list[str] = []

    def load() -> bytes:
        read.append(origin)
        return pack(array)

    weights = Weights()
    weights.add(origin, load)
    assert origin in weights
    assert read == []
    assert weights.origin(Constant(weights.array(origin))) == origin
    assert weights.digest(origin) == made.digest(origin)
    assert read == [origin]
    with pytest.raises(KeyError):
        weights.array("absent")


def test_weights_of_a_module_share_what_shares_memory() -> None:
    array = np.arange(3, dtype="float32")
    array.flags.writeable = False
    first, second, other = Constant(array), Constant(array), const(np.arange(3, dtype="float32"))
    weights = Weights.of([first, other, second, first])
    assert len(weights) == 2
    assert [weights.origin(each) for each in (first, other, second)] == [0, 1, 0]
    assert weights.array(0) is array
