"""A `dataclass` that costs a twentieth to define, for its methods are made when they are needed; knows no class.

The standard library's compiles six methods for each frozen class, about a millisecond: a command that only looks
something up would spend a third of its time on that. Here the constructor is compiled when it has been called a few
times, and the other methods are functions over a class's fields. Orders, slots and keyword-only fields are left to the
standard library.
"""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

_POST_INIT = "__post_init__"
_PARAMS = "__dataclass_params__"
_INTERPRETED_CALLS = 3
"""Calls of a constructor that cost less than its compilation."""


def _dataclass(cls: Any = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True) -> Any:
    """Like `dataclasses.dataclass`; what `dataclasses.fields` and `replace` say of the class is right."""
    if cls is None:
        return lambda cls: _define(cls, frozen, eq, repr)
    return _define(cls, frozen, eq, repr)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _define(cls: Any, frozen: bool, eq: bool, repr: bool) -> Any:
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    params = [getattr(base, _PARAMS) for base in cls.__mro__[1:] if hasattr(base, _PARAMS)]
    dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and any(each.frozen for each in params))(cls)
    # who derives from the class with the standard library's is held to its rules
    getattr(cls, _PARAMS).frozen = frozen
    fields = dataclasses.fields(cls)
    _define_init(cls, fields, frozen)
    if repr:
        _add(cls, "__repr__", _repr_of([field.name for field in fields if field.repr]))
    if eq:
        values = _values_of([field.name for field in fields if field.compare])
        has_own_hash = cls.__dict__.get("__hash__") is not None
        _add(cls, "__eq__", _eq_of(values))
        if not has_own_hash:
            cls.__hash__ = (lambda self: hash(values(self))) if frozen else None
    if frozen:
        names = frozenset(field.name for field in fields)
        _add(cls, "__setattr__", _refusing(cls, names, "assign to", "__setattr__"))
        _add(cls, "__delattr__", _refusing(cls, names, "delete", "__delattr__"))
    return cls


def _add(cls: Any, name: str, function: Callable[..., Any]) -> None:
    """Give a class a method that it has not defined itself."""
    if name not in cls.__dict__:
        function.__name__, function.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, function)


def _define_init(cls: Any, fields: Sequence[Field[Any]], frozen: bool) -> None:
    if "__init__" in cls.__dict__:
        return
    names = [field.name for field in fields if field.init]
    fixed = {field.name: field.default for field in fields if field.init and field.default is not MISSING}
    made: dict[str, Any] = {
        field.name: field.default_factory for field in fields if field.default_factory is not MISSING
    }
    allowed = frozenset(names)
    needed = allowed.difference(fixed, made)
    assign: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr
    has_post_init = hasattr(cls, _POST_INIT)
    order = [field.name for field in fields if field.init or field.name in made]
    calls = 0

    def compiled() -> Any:
        if cls.__init__ is init:
            cls.__init__ = _compiled_init(cls, fields, frozen)
        return cls.__init__

    def init(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        given = dict(zip(names, args), **kwargs)
        is_right = len(given) == len(args) + len(kwargs) and needed <= given.keys() <= allowed
        if calls > _INTERPRETED_CALLS or not is_right:
            compiled()(self, *args, **kwargs)
            return
        for name in order:
            assign(self, name, given[name] if name in given else fixed[name] if name in fixed else made[name]())
        if has_post_init:
            self.__post_init__()

    _add(cls, "__init__", init)
    cls.__signature__ = _Signature(compiled)


class _Signature:
    """Is not there, so that a class has its constructor's signature, and has that compiled before."""

    def __init__(self, compiled: Callable[[], object]) -> None:
        self._compiled = compiled

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._compiled()
        raise AttributeError("__signature__")


def _compiled_init(cls: Any, fields: Sequence[Field[Any]], frozen: bool) -> Any:
    """The constructor, compiled."""
    names: dict[str, object] = {"_set": object.__setattr__, "_missing": MISSING}
    parameters, body = [], []
    for field in fields:
        name, value = field.name, field.name
        if field.default_factory is not MISSING:
            names[f"_factory_{name}"] = field.default_factory
            value = f"_factory_{name}()" + (f" if {name} is _missing else {name}" if field.init else "")
            parameters += [f"{name}=_missing"] if field.init else []
        elif field.default is not MISSING:
            names[f"_default_{name}"] = field.default
            parameters += [f"{name}=_default_{name}"] if field.init else []
        elif field.init:
            parameters.append(name)
        if field.init or field.default_factory is not MISSING:
            body.append(f" _set(self, {name!r}, {value})" if frozen else f" self.{name} = {value}")
    body += [f" self.{_POST_INIT}()"] if hasattr(cls, _POST_INIT) else []
    text = f"def __init__(self, {', '.join(parameters)}):\n" + "\n".join(body or [" pass"])
    # Python kills itself at its end where an interrupt once left the execution of a text
    exec(compile(text, f"<{cls.__qualname__}>", "exec"), names)
    init: Any = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {field.name: field.type for field in fields if field.init} | {"return": None}
    return init


def _repr_of(names: Sequence[str]) -> Callable[[Any], str]:
    @reprlib.recursive_repr()
    def text(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return text


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an object to a tuple of its fields."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _eq_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def is_equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return is_equal


def _refusing(cls: Any, names: frozenset[str], deed: str, method: str) -> Callable[..., None]:
    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {deed} field {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return refuse
