"""Passes made of functions and classes; knows no pass by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaybuild.passes._base import FunctionPass, ModulePass, Pass, builtin_passes, register_pass
from relaybuild.passes._context import PassInfo


def module_pass(
    pass_func: Any = None, opt_level: int | None = None, name: str | None = None, required: Sequence[str] | None = None
) -> Any:
    """Make a ModulePass of a function `(mod, ctx) -> mod`, or of a class that has `transform_module`.

    Used as a decorator with keywords; `opt_level` must be given, `name` is the function's or class's own by default.
    A decorated function is a pass; a decorated class makes one from its constructor's arguments.
    """
    return _pass_decorator(pass_func, ModulePass, "transform_module", opt_level, name, required)


def function_pass(
    pass_func: Any = None, opt_level: int | None = None, name: str | None = None, required: Sequence[str] | None = None
) -> Any:
    """Make a FunctionPass of a function `(func, mod, ctx) -> func`, or of a class that has `transform_function`."""
    return _pass_decorator(pass_func, FunctionPass, "transform_function", opt_level, name, required)


def _pass_decorator(
    pass_func: Any,
    base: Any,
    method: str,
    opt_level: int | None,
    name: str | None,
    required: Sequence[str] | None,
) -> Any:
    if opt_level is None:
        raise ValueError("a pass needs an opt_level")
    if required is not None and not isinstance(required, (list, tuple)):
        raise TypeError(f"'required' must be a list or tuple of names, found {type(required).__name__}")

    def decorate(target: Any) -> Any:
        info = PassInfo(name or target.__name__, opt_level, tuple(required or ()))
        make = _from_class if isinstance(target, type) else _from_function
        made = make(target, base, method, info)
        # a function of the name of one of relaybuild's passes is still a pass, found by nobody
        if info.name not in builtin_passes():
            register_pass(made, info.name)
        return made

    return decorate if pass_func is None else decorate(pass_func)


def _from_function(target: Callable[..., Any], base: Any, method: str, info: PassInfo) -> Pass:
    body = {
        method: lambda self, *args: target(*args),
        "info": info,
        "__doc__": target.__doc__,
        "__module__": target.__module__,
    }
    made: Pass = type(target.__name__, (base,), body)()
    return made


def _from_class(target: type[Any], base: Any, method: str, info: PassInfo) -> type[Pass]:
    if not hasattr(target, method):
        raise TypeError(f"class '{target.__name__}' has no method '{method}'")
    body = {"info": info, "__doc__": target.__doc__, "__module__": target.__module__}
    return type(target.__name__, (target, base), body)
