"""Digests of Python functions and values by all that they reach, or why there is none; knows no registry.

What a user registers decides what is compiled, so it has to count by content: a function by its code, its defaults,
what it closes over and the globals that it names; a class by its methods; an object by its class and its fields. What
belongs to relaybuild or to the standard library is only named, for their digests are part of every key; other installed
packages are named with their versions. Whatever else is reached (an open file, a lock) has no content that could be
told, and is an error. An object may spare itself all this by `cache_id()`, a text that changes with what it does.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
import sysconfig
import types
from collections.abc import Iterable
from typing import Any

from relaybuild.digest import Digest, Hasher, encode_value

_PLAIN = (type(None), bool, int, float, str, bytes)
_MAX_DEPTH = 200

# Of a class: what Python keeps there for itself, or has made of other members, which count.
_NO_CONTENT = frozenset(
    "__dict__ __weakref__ __module__ __doc__ __abstractmethods__ _abc_impl __dataclass_fields__ __dataclass_params__"
    " __annotations__".split()
)


class NoFingerprint(Exception):
    """Something is reached whose content cannot be told; the message names it."""


def fingerprint(value: object) -> Digest:
    """The digest of a value by content; raises NoFingerprint."""
    hasher = Hasher("fingerprint.1")
    _Walk(hasher).visit(value, 0)
    return hasher.digest()


class _Walk:
    """Feeds a hasher with a graph of objects, each of them once."""

    def __init__(self, hasher: Hasher) -> None:
        self._hasher = hasher
        self._seen: dict[int, int] = {}
        # an object that is gone could lend its id to another
        self._kept: list[object] = []

    def visit(self, value: Any, depth: int) -> None:
        if depth > _MAX_DEPTH:
            raise NoFingerprint("it is nested too deeply")
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            self._say("plain", value)
        elif id(value) in self._seen:
            self._say("again", self._seen[id(value)])
        else:
            self._seen[id(value)] = len(self._seen)
            self._kept.append(value)
            self._content(value, depth + 1)

    def _content(self, value: Any, depth: int) -> None:
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            self._each(type(value).__name__, value, depth)
        elif type(value) in (set, frozenset):
            self._say("set", _sorted_plain(value))
        elif type(value) in (dict, types.MappingProxyType):
            self._each("mapping", [part for item in value.items() for part in item], depth)
        elif isinstance(value, types.ModuleType):
            self._module(value)
        elif isinstance(value, types.CodeType):
            self._code(value, depth)
        elif isinstance(value, (staticmethod, classmethod)):
            self._each(type(value).__name__, [value.__func__], depth)
        elif isinstance(value, property):
            self._each("property", [value.fget, value.fset, value.fdel], depth)
        elif isinstance(value, types.MethodType):
            self._each("method", [value.__func__, value.__self__], depth)
        elif (own := _cache_id(value)) is not None:
            self._say("cache-id", (type(value).__qualname__, own))
        elif isinstance(value, type):
            self._class(value, depth)
        elif isinstance(value, types.FunctionType):
            self._function(value, depth)
        elif isinstance(value, types.BuiltinFunctionType):
            self._named(value)
        else:
            self._object(value, depth)

    def _function(self, function: types.FunctionType, depth: int) -> None:
        # an installed function, too, may have been made around one of the user's
        cells = [_cell(cell, function) for cell in function.__closure__ or ()]
        self._each("function", [function.__defaults__, function.__kwdefaults__, *cells], depth)
        if _is_installed(function.__module__):
            self._named(function)
            return
        self.visit(function.__code__, depth)
        reached = {name for code in _codes(function.__code__) for name in code.co_names}
        for name in sorted(reached & function.__globals__.keys()):
            self._say("global", name)
            found = function.__globals__[name]
            if isinstance(found, types.ModuleType) and not _is_installed(found.__name__):
                self._attributes(found, reached, depth)
            else:
                self.visit(found, depth)

    def _attributes(self, module: types.ModuleType, reached: Iterable[str], depth: int) -> None:
        """A module of the user's counts by those of its attributes that a function may mean."""
        self._say("module", module.__name__)
        for name in sorted(set(reached) & vars(module).keys()):
            self._say("attribute", name)
            self.visit(vars(module)[name], depth)

    def _code(self, code: types.CodeType, depth: int) -> None:
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        self._say("code", (code.co_code, *names, *counts))
        # a constant may be a set, whose order is none, and a name of a file or a line is no content
        self._each("constants", code.co_consts, depth)

    def _class(self, cls: type, depth: int) -> None:
        if _is_installed(cls.__module__) and "<locals>" not in cls.__qualname__:
            self._named(cls)
            return
        self._each("class", list(cls.__bases__), depth)
        for name, found in sorted(vars(cls).items()):
            if name not in _NO_CONTENT:
                self._say("member", name)
                if not isinstance(found, (types.MemberDescriptorType, types.GetSetDescriptorType)):
                    self.visit(found, depth)

    def _object(self, value: Any, depth: int) -> None:
        if isinstance(value, enum.Enum):
            self._say("enum", (type(value).__qualname__, value.name))
            return
        if isinstance(value, functools.partial):
            self._each("partial", [value.func, value.args, value.keywords], depth)
            return
        if type(value).__module__ == "numpy" and hasattr(value, "tobytes") and not value.dtype.hasobject:
            self._say("array", (value.dtype.str, tuple(value.shape), value.tobytes()))
            return
        cls = type(value)
        is_ours = (cls.__module__ or "").partition(".")[0] == "relaybuild"
        if _is_installed(cls.__module__) and not is_ours and not isinstance(value, os.PathLike):
            raise NoFingerprint(f"it reaches a value of type '{cls.__module__}.{cls.__qualname__}'")
        if isinstance(value, os.PathLike):
            self._say("path", os.fspath(value))
            return
        self.visit(cls, depth)
        for name, found in sorted(_fields(value).items()):
            self._say("field", name)
            self.visit(found, depth)

    def _module(self, module: types.ModuleType) -> None:
        if not _is_installed(module.__name__):
            raise NoFingerprint(f"it reaches the whole of the module '{module.__name__}'")
        self._say("module", (module.__name__, _version(module.__name__)))

    def _named(self, value: Any) -> None:
        """What is identified by where it is defined; a method of a builtin object has that object to be told, too."""
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            raise NoFingerprint(f"it reaches '{value!r}'")
        module = value.__module__ or "builtins"
        self._say("named", (module, value.__qualname__, _version(module)))

    def _each(self, kind: str, values: Iterable[Any], depth: int) -> None:
        items = list(values)
        self._say(kind, len(items))
        for item in items:
            self.visit(item, depth)

    def _say(self, tag: str, value: Any) -> None:
        self._hasher.field(tag, value)


def _cache_id(value: Any) -> str | None:
    """What a value says of itself; raises NoFingerprint if that is no text."""
    method = getattr(value, "cache_id", None) if not isinstance(value, type) else None
    if method is None:
        return None
    found = method()
    if not isinstance(found, str) or not found:
        raise NoFingerprint(f"its cache_id() returned {found!r}, expected a text")
    return found


def _cell(cell: types.CellType, function: types.FunctionType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        raise NoFingerprint(f"'{function.__qualname__}' closes over a name that has no value yet") from None


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """A code object and those of the functions inside it."""
    found = [code]
    for each in found:
        found += [constant for constant in each.co_consts if isinstance(constant, types.CodeType)]
    return found


def _sorted_plain(values: Iterable[Any]) -> tuple[bytes, ...]:
    try:
        return tuple(sorted(encode_value(value) for value in values))
    except TypeError:
        raise NoFingerprint("it reaches a set of objects") from None


def _fields(value: Any) -> dict[str, Any]:
    """The fields of an object, from its `__dict__` and the slots of its classes."""
    names = [name for cls in type(value).__mro__ for name in _slots(cls)]
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    found = {**getattr(value, "__dict__", {}), **slots}
    if not found and not hasattr(value, "__dict__") and not names and type(value).__mro__[1:2] != (object,):
        raise NoFingerprint(f"it reaches a value of type '{type(value).__qualname__}'")
    return found


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return tuple(
        name for name in ((slots,) if isinstance(slots, str) else slots) if name not in ("__dict__", "__weakref__")
    )


def _is_installed(module: str | None) -> bool:
    """Whether a module is Python's, relaybuild's or of another installed package: whether its name identifies it."""
    head = (module or "builtins").partition(".")[0]
    if head in ("builtins", "relaybuild") or head in sys.stdlib_module_names:
        return True
    origin = getattr(sys.modules.get(head), "__file__", None)
    if origin is None:
        return False
    return any(os.path.abspath(origin).startswith(f"{folder}{os.sep}") for folder in _sites())


def _sites() -> set[str]:
    return {path for name in ("purelib", "platlib") if (path := sysconfig.get_path(name))}


def _version(module: str) -> str:
    """The version of the package that a module belongs to; empty for what the key holds anyway."""
    head = module.partition(".")[0]
    if head in ("builtins", "relaybuild") or head in sys.stdlib_module_names:
        return ""
    version = getattr(sys.modules.get(head), "__version__", None)
    if not isinstance(version, str):
        raise NoFingerprint(f"it reaches the package '{head}', which does not tell its version")
    return version
