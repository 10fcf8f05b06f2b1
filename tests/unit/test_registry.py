"""Functions are registered and found by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaybuild.errors import UserError
from relaybuild.registry import (
    get_global_func,
    list_global_func_names,
    register_deferred,
    register_func,
    remove_global_func,
)


def double(number: int) -> int:
    return 2 * number


def by_decorator(name: str) -> Callable[[int], int]:
    return register_func(name)(double)


def by_argument(name: str) -> Callable[[int], int]:
    return register_func(name, double)


@pytest.mark.parametrize("register", [by_decorator, by_argument])
def test_a_function_is_found_by_its_name(register: Callable[[str], Callable[[int], int]]) -> None:
    assert register("test.double") is double
    assert get_global_func("test.double")(4) == 8


def test_a_function_has_its_own_name_where_none_is_given() -> None:
    register_func(double)
    assert get_global_func("double") is double


def test_a_name_is_taken_until_it_is_overridden() -> None:
    register_func("test.double", double)
    with pytest.raises(UserError, match=r"'test.double' is registered already; .*override=True"):
        register_func("test.double", abs)
    assert get_global_func("test.double") is double
    register_func("test.double", abs, override=True)
    assert get_global_func("test.double") is abs


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    register_func("relay.ext.mycompiler", double)
    with pytest.raises(UserError) as raised:
        get_global_func("relay.ext.mycompilr")
    assert str(raised.value).startswith(
        "no function 'relay.ext.mycompilr' is registered; the nearest are relay.ext.mycompiler"
    )


def test_an_unknown_name_far_from_all_others() -> None:
    with pytest.raises(UserError, match="no function '\\?\\?' is registered; register_func adds one"):
        get_global_func("??")
    assert get_global_func("??", allow_missing=True) is None


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [("test.text", "text", "'test.text' is registered as 'text', expected a function"), ("", abs, "expected a name")],
)
def test_what_is_no_function_or_no_name_is_refused(name: str, function: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        register_func(name, function)  # type: ignore[call-overload]


def test_names_are_listed_by_their_beginning() -> None:
    for name in ("test.b", "test.a", "testing"):
        register_func(name, double)
    assert list_global_func_names("test.") == ["test.a", "test.b"]


def test_a_removed_function_is_unknown() -> None:
    register_func("test.double", double)
    remove_global_func("test.double")
    remove_global_func("test.double")
    assert get_global_func("test.double", allow_missing=True) is None


def test_a_deferred_function_is_imported_when_it_is_asked_for() -> None:
    register_deferred("test.later", "relaybuild.no_such_module", "f")
    assert "test.later" in list_global_func_names()
    with pytest.raises(ModuleNotFoundError):
        get_global_func("test.later")
    register_deferred("test.later", "math", "floor")
    assert get_global_func("test.later")(2.5) == 2
