"""Functions of the process by name, through which parts and users' scripts reach what they must not import.

It knows no function. Names are dotted: `relay.ext.<tag>` is a code generator, `runtime.module.loadfile_<key>` a loader.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Deferred:
    """A function that is imported when it is first asked for."""

    module: str
    attribute: str

    def load(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(importlib.import_module(self.module), self.attribute)
        return function


_functions: dict[str, Callable[..., Any] | _Deferred] = {}


@overload
def register_func(name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...
@overload
def register_func(name: str, f: F, override: bool = False) -> F: ...
@overload
def register_func(name: F, f: None = None, override: bool = False) -> F: ...
def register_func(name: Any, f: Any = None, override: bool = False) -> Any:
    """Register a function under a name: `register_func(name, f)`, or a decorator, `@register_func(name)`.

    `@register_func` alone takes the function's own name. Returns the function. Raises UserError for a name that is
    taken, unless `override` is given, and for what cannot be called.
    """
    if callable(name):
        return register_func(name.__name__, name, override)
    if f is None:
        return lambda function: register_func(name, function, override)
    if not isinstance(name, str) or not name:
        raise UserError(f"a function is registered as {name!r}, expected a name")
    if not callable(f):
        raise UserError(f"'{name}' is registered as {f!r}, expected a function")
    if name in _functions and not override:
        raise UserError(f"a function '{name}' is registered already; register_func(..., override=True) replaces it")
    _functions[name] = f
    return f


def register_deferred(name: str, module: str, attribute: str) -> None:
    """Register a function of a module that is imported when the function is first asked for; replaces any other."""
    _functions[name] = _Deferred(module, attribute)


@overload
def get_global_func(name: str) -> Callable[..., Any]: ...
@overload
def get_global_func(name: str, allow_missing: Literal[False]) -> Callable[..., Any]: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> Callable[..., Any] | None: ...
def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The function of a name; an unknown one is None with `allow_missing`, else a UserError that has the nearest."""
    found = _functions.get(name)
    if isinstance(found, _Deferred):
        found = _functions[name] = found.load()
    if found is None and not allow_missing:
        from difflib import get_close_matches

        near = get_close_matches(name, _functions, 3)
        hint = f"; the nearest are {', '.join(near)}" if near else "; register_func adds one"
        raise UserError(f"no function '{name}' is registered{hint}")
    return found


def list_global_func_names(prefix: str = "") -> list[str]:
    """The names that begin so, in alphabetical order."""
    return sorted(name for name in _functions if name.startswith(prefix))


def remove_global_func(name: str) -> None:
    """Forget the function of a name; nothing happens where there is none."""
    _functions.pop(name, None)
