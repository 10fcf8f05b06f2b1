"""Backends: where they come from, and what they are asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call
from relaybuild.ir.op import call_op
from relaybuild.partition import backend as backends
from relaybuild.partition.backend import Backend, all_backends, register_backend, register_supports, supports
from relaybuild.relay import var


def generate_nothing(*args: Any) -> Any:
    raise AssertionError("no code is generated here")


def vendor(tag: str = "vendor", **fields: Any) -> Backend:
    return Backend("Vendor", tag, "USE_VENDOR", generate_nothing, **fields)


def relu() -> Call:
    return call_op("nn.relu", [var("x", (3,))])


def test_the_host_is_a_backend_and_last() -> None:
    assert all_backends()["host"].priority < vendor().priority


def test_a_registered_backend_is_found_and_asked() -> None:
    assert supports("vendor", relu()) is False
    register_backend(vendor(supports=lambda call: "not today"))
    assert all_backends()["vendor"].name == "Vendor"
    assert supports("vendor", relu()) == "not today"


def test_a_predicate_for_an_operator_goes_before_the_backend() -> None:
    register_backend(vendor(supports=lambda call: "not today"))
    register_supports("vendor", "nn.relu")(lambda call: True)
    assert supports("vendor", relu()) is True
    assert supports("vendor", call_op("exp", [var("x", (3,))])) == "not today"


@dataclass(frozen=True)
class Point:
    """An entry point of an installed package."""

    name: str
    value: object

    def load(self) -> object:
        return self.value


@pytest.fixture
def _search_again() -> Iterator[None]:
    backends._found_backends.cache_clear()
    yield
    backends._found_backends.cache_clear()


@pytest.mark.usefixtures("_search_again")
def test_an_installed_package_brings_a_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def entry_points(group: str) -> list[Point]:
        asked.append(group)
        return [Point("vendor", vendor())]

    monkeypatch.setattr(backends, "entry_points", entry_points)
    assert set(all_backends()) >= {"host", "vendor"}
    assert asked == ["relaybuild.backends"]


@pytest.mark.usefixtures("_search_again")
@pytest.mark.parametrize(
    ("value", "message"),
    [("a text", "'v' of group 'relaybuild.backends' is a str"), (vendor("host"), "a second backend of the tag 'host'")],
)
def test_what_is_no_backend_is_an_error(monkeypatch: pytest.MonkeyPatch, value: object, message: str) -> None:
    monkeypatch.setattr(backends, "entry_points", lambda group: [Point("v", value)])
    with pytest.raises(UserError, match=message):
        all_backends()
