"""Backends: where they come from, and what they are asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.op import call_op
from relaybuild.partition import backend as backends
from relaybuild.partition.backend import (
    Backend,
    Blob,
    CodegenOptions,
    GeneratedCode,
    SourceUnit,
    all_backends,
    register_backend,
    register_supports,
    supports,
)
from relaybuild.registry import register_func
from relaybuild.relay import var
from relaybuild.target import Target


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
class Module:
    """What a registered code generator returns."""

    type_key: str
    text: str
    language: str = "c"

    def get_source(self) -> str:
        return self.text

    def save_to_binary(self) -> bytes:
        return self.text.encode()


def generated(tag: str) -> GeneratedCode:
    """What the backend of a tag makes of a function in a region 'region_7'."""
    x = var("x", (3,))
    options = CodegenOptions("region_7", "region_7", Target.parse("c"), (), ("x",), ("out0",))
    return all_backends()[tag].codegen(Function([x], x + x), options)


def test_a_registered_function_is_a_code_generator() -> None:
    seen: list[object] = []

    @register_func("relay.ext.script")
    def generate(function: Function) -> Module:
        seen.append(function.attrs["global_symbol"])
        return Module("c", "int __tvm_ffi_region_7;", "c++")

    backend = all_backends()["script"]
    assert (backend.name, backend.cmake_flag, backend.optimize) == ("script", "", None)
    assert generated("script") == GeneratedCode(
        units=(SourceUnit("region_7", "int __tvm_ffi_region_7;", hot=True, language="c++"),)
    )
    assert seen == ["region_7"]


def test_the_same_function_is_the_same_backend_each_time() -> None:
    register_func("relay.ext.script", generate_nothing)
    assert all_backends()["script"] == all_backends()["script"]


def test_a_registered_function_prepares_modules() -> None:
    register_func("relay.ext.script", generate_nothing)
    register_func("relay.ext.script.optimize", infer_types)
    assert all_backends()["script"].optimize is infer_types
    assert set(all_backends()) & {"script.optimize", "optimize"} == set()


def test_a_registered_function_replaces_the_generator_of_a_backend() -> None:
    register_backend(vendor(priority=7, optimize=infer_types))
    register_func("relay.ext.vendor", lambda function: Module("vendorgraph", "nodes"))
    backend = all_backends()["vendor"]
    assert (backend.name, backend.priority, backend.cmake_flag) == ("Vendor", 7, "USE_VENDOR")
    assert backend.optimize is infer_types
    assert generated("vendor") == GeneratedCode(blob=Blob("vendorgraph", b"nodes"))


def test_a_registered_function_may_return_generated_code() -> None:
    code = GeneratedCode(units=(SourceUnit("u", "", hot=False),), stateful=True)
    register_func("relay.ext.script", lambda function: code)
    assert generated("script") is code


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (None, "'relay.ext.script' returned a NoneType for region 'region_7', expected a module"),
        ("int x;", "returned a str"),
        (Module("c", "int __tvm_ffi_other;"), "does not define '__tvm_ffi_region_7'"),
    ],
)
def test_what_a_registered_function_must_not_return(made: object, message: str) -> None:
    register_func("relay.ext.script", lambda function: made)
    with pytest.raises(UserError, match=message):
        generated("script")


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
