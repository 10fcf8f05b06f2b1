"""A `dataclass` that costs a twentieth to define, for its methods are made when they are needed; knows no class.

The standard library's compiles six methods for each frozen class, about a millisecond: a command that only looks
something up would spend a third of its time on that. Here a constructor is compiled when it has been called often, the
other methods are functions over a class's fields, and of annotations no more is looked at than their first word. Orders
and keyword-only fields are left to the standard library.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import reprlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["dataclass"]

_POST_INIT = "__post_init__"
_FIELDS = "__dataclass_fields__"
_PARAMS = "__dataclass_params__"
_INTERPRETED_CALLS = 50
"""Calls of a constructor that cost less than its compilation."""

_CLASS_VARIABLE = "ClassVar"
_REFUSED = frozenset(("InitVar", "KW_ONLY"))


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Sample:
    """What the standard library makes of a class is taken from this one, for much of it has no public name."""

    member: int
    variable: ClassVar[int]


_MEMBER, _VARIABLE = (getattr(_Sample, _FIELDS)[name]._field_type for name in ("member", "variable"))
_REPLACE: Any = vars(_Sample).get("__replace__")


def _params(frozen: bool) -> Any:
    params = copy.copy(getattr(_Sample, _PARAMS))
    params.frozen = frozen
    return params


_PARAMS_OF = {frozen: _params(frozen) for frozen in (False, True)}


def _dataclass(
    cls: Any = None, /, *, frozen: bool = False, eq: bool = True, repr: bool = True, slots: bool = False
) -> Any:
    """Like `dataclasses.dataclass`; what `dataclasses.fields` and `replace` say of the class is right.

    A class variable is told by its annotation's first word, ClassVar, whatever that is. Raises TypeError or ValueError
    for what the standard library refuses, and TypeError for an InitVar and for a field by keyword only.
    """
    if cls is None:
        return lambda cls: _define(cls, frozen, eq, repr, slots)
    return _define(cls, frozen, eq, repr, slots)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _define(cls: Any, frozen: bool, eq: bool, repr: bool, slots: bool) -> Any:
    _check_bases(cls, frozen)
    by_name = _fields_of(cls)
    fields = [field for field in by_name.values() if field._field_type is _MEMBER]
    _check_order(fields)
    names = [field.name for field in fields]
    if slots:
        cls = _slotted(cls, names)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__
    setattr(cls, _FIELDS, by_name)
    # who derives from the class with the standard library's is held to its rules
    setattr(cls, _PARAMS, _PARAMS_OF[frozen])
    _set_new(cls, "__match_args__", tuple(field.name for field in fields if field.init))
    if _REPLACE is not None:
        _set_new(cls, "__replace__", _REPLACE)
    _define_init(cls, fields, frozen, slots)
    if repr:
        _add(cls, "__repr__", _repr_of([field.name for field in fields if field.repr]))
    if eq:
        _define_equality(cls, fields, frozen)
    if frozen:
        known = frozenset(names)
        _add(cls, "__setattr__", _refusing(cls, known, "assign to", "__setattr__"))
        _add(cls, "__delattr__", _refusing(cls, known, "delete", "__delattr__"))
    if frozen and slots:
        _set_new(cls, "__getstate__", _state)
        _set_new(cls, "__setstate__", _set_state)
    return cls


def _check_bases(cls: Any, frozen: bool) -> None:
    bases = [getattr(base, _PARAMS).frozen for base in cls.__mro__[1:-1] if hasattr(base, _PARAMS)]
    if bases and any(bases) != frozen:
        kinds = ("frozen", "non-frozen")
        raise TypeError("cannot inherit {} dataclass from a {} one".format(*(kinds if frozen else kinds[::-1])))


def _fields_of(cls: Any) -> dict[str, Any]:
    """The fields of a class by name, those of its bases first; a class attribute that describes one goes."""
    found: dict[str, Any] = {}
    for base in cls.__mro__[-2:0:-1]:
        found.update(getattr(base, _FIELDS, ()))
    own = cls.__annotations__
    for name, annotation in own.items():
        word = _first_word(annotation)
        if word in _REFUSED:
            raise TypeError(f"'{name}' of {cls.__qualname__} is {word}, which is left to dataclasses.dataclass")
        found[name] = _field(cls, name, annotation, _VARIABLE if word == _CLASS_VARIABLE else _MEMBER)
    for name, value in vars(cls).items():
        if isinstance(value, Field) and name not in own:
            raise TypeError(f"{name!r} is a field but has no type annotation")
    return found


def _first_word(annotation: object) -> str:
    """What an annotation applies to its arguments, without its module."""
    if annotation is dataclasses.KW_ONLY:
        return "KW_ONLY"
    text = annotation if isinstance(annotation, str) else repr(annotation)
    return text.partition("[")[0].rpartition(".")[2]


def _field(cls: Any, name: str, annotation: object, kind: object) -> Any:
    # to ask a class in vain takes as long as to make its field, and most have no bases
    default = vars(cls).get(name, MISSING) if cls.__bases__ == (object,) else getattr(cls, name, MISSING)
    made: Any
    if not isinstance(default, Field):
        # that of a slot is what reads it
        made = dataclasses.field(default=MISSING if isinstance(default, MemberDescriptorType) else default)
    else:
        made = default
        if made.default is MISSING:
            delattr(cls, name)
        else:
            setattr(cls, name, made.default)
    made.name, made.type, made._field_type = name, annotation, kind
    if kind is _MEMBER:
        _check_member(cls, made)
        made.kw_only = False
    elif made.default_factory is not MISSING:
        raise TypeError(f"field {name} cannot have a default factory")
    return made


def _check_member(cls: Any, member: Any) -> None:
    if member.kw_only is True:
        raise TypeError(f"'{member.name}' of {cls.__qualname__} is keyword-only: left to dataclasses.dataclass")
    if type(member.default).__hash__ is None:
        kind = type(member.default)
        raise ValueError(f"mutable default {kind} for field {member.name} is not allowed: use default_factory")


def _check_order(fields: Iterable[Any]) -> None:
    has_default = False
    for field in fields:
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            if has_default:
                raise TypeError(f"non-default argument {field.name!r} follows default argument")
        elif field.init:
            has_default = True


def _slotted(cls: Any, names: Iterable[str]) -> Any:
    """A class like another one, whose objects have these attributes and no others."""
    if "__slots__" in vars(cls):
        raise TypeError(f"{cls.__name__} already specifies __slots__")
    taken = {slot for base in cls.__mro__[1:-1] for slot in _slots_of(base)}
    without = {*names, "__dict__", "__weakref__"}
    members = {name: value for name, value in vars(cls).items() if name not in without}
    members["__slots__"] = tuple(name for name in names if name not in taken)
    made = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    return made


def _slots_of(cls: Any) -> Iterable[str]:
    slots: Any = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else slots


def _define_equality(cls: Any, fields: Sequence[Any], frozen: bool) -> None:
    members = vars(cls)
    # a class with an equality of its own has a __hash__ that is None
    has_own_hash = "__hash__" in members and not (members["__hash__"] is None and "__eq__" in members)
    compared = [field.name for field in fields if field.compare]
    values = _values_of(compared)
    _add(cls, "__eq__", _eq_of(values))
    if has_own_hash:
        return
    if not frozen:
        cls.__hash__ = None
        return
    hashed = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
    cls.__hash__ = _hash_of(values if hashed == compared else _values_of(hashed))


def _set_new(cls: Any, name: str, value: object) -> None:
    if name not in cls.__dict__:
        setattr(cls, name, value)


def _add(cls: Any, name: str, function: Callable[..., Any]) -> None:
    """Give a class a method that it has not defined itself."""
    if name not in cls.__dict__:
        function.__name__, function.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, function)


def _define_init(cls: Any, fields: Sequence[Any], frozen: bool, slots: bool) -> None:
    if "__init__" in cls.__dict__:
        return
    assign: Callable[[Any, str, Any], None] = object.__setattr__ if frozen else setattr
    plan: _Plan | None = None
    calls = 0

    def compiled() -> Any:
        if cls.__init__ is init:
            cls.__init__ = _compiled_init(cls, fields, frozen, slots)
        return cls.__init__

    def init(self: Any, /, *args: Any, **kwargs: Any) -> None:
        nonlocal calls, plan
        calls += 1
        if plan is None:
            plan = _Plan(cls, fields, slots)
        given = plan.values(args, kwargs) if calls <= _INTERPRETED_CALLS else None
        if given is None:
            compiled()(self, *args, **kwargs)
            return
        for name, value in given:
            assign(self, name, value)
        if plan.has_post_init:
            self.__post_init__()

    _add(cls, "__init__", init)
    cls.__signature__ = _Signature(compiled)


def _is_assigned(field: Field[Any], slots: bool) -> bool:
    """Whether a constructor assigns a field: not one that it does not take, whose default is an attribute of the class;
    but a slot hides that."""
    has_default = field.default is not MISSING
    return field.init or field.default_factory is not MISSING or (slots and has_default)


class _Plan:
    """What a constructor that is interpreted does."""

    def __init__(self, cls: Any, fields: Sequence[Any], slots: bool) -> None:
        self.has_post_init = hasattr(cls, _POST_INIT)
        self._names = [field.name for field in fields if field.init]
        assigned = [field for field in fields if _is_assigned(field, slots)]
        self._fixed = {field.name: field.default for field in assigned if field.default is not MISSING}
        self._made = {field.name: field.default_factory for field in assigned if field.default_factory is not MISSING}
        self._order = [field.name for field in assigned]
        self._allowed = frozenset(self._names)
        self._needed = self._allowed.difference(self._fixed, self._made)

    def values(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[tuple[str, Any]] | None:
        """The value of each field, in order; None for arguments that do not fit."""
        given = dict(zip(self._names, args), **kwargs)
        if len(given) != len(args) + len(kwargs) or not self._needed <= given.keys() <= self._allowed:
            return None
        fixed, made = self._fixed, self._made
        return [
            (name, given[name] if name in given else fixed[name] if name in fixed else made[name]())
            for name in self._order
        ]


class _Signature:
    """Is not there, so that a class has its constructor's signature, and has that compiled before."""

    def __init__(self, compiled: Callable[[], object]) -> None:
        self._compiled = compiled

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        self._compiled()
        raise AttributeError("__signature__")


def _compiled_init(cls: Any, fields: Sequence[Field[Any]], frozen: bool, slots: bool) -> Any:
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
            value = name if field.init else f"_default_{name}"
            parameters += [f"{name}=_default_{name}"] if field.init else []
        elif field.init:
            parameters.append(name)
        if _is_assigned(field, slots):
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
    text: Callable[[Any], str] | None = None

    def shown(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def guarded(self: Any) -> str:
        nonlocal text
        if text is None:
            text = reprlib.recursive_repr()(shown)
        return text(self)

    return guarded


def _values_of(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function from an object to a tuple of its fields."""
    if len(names) > 1:
        return operator.attrgetter(*names)
    if not names:
        return lambda self: ()
    [name] = names
    return lambda self: (getattr(self, name),)


def _eq_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def is_equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return is_equal


def _hash_of(values: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], int]:
    return lambda self: hash(values(self))


def _state(self: Any) -> list[Any]:
    """What a frozen object with slots is sent as, with the fields of who derives from its class."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state):
        object.__setattr__(self, field.name, value)


def _refusing(cls: Any, names: frozenset[str], deed: str, method: str) -> Callable[..., None]:
    def refuse(self: Any, name: str, *value: Any) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot {deed} field {name!r}")
        getattr(super(cls, self), method)(name, *value)

    return refuse
