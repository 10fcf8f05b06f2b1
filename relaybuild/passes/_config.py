"""The typed keys a pass context's `config` may have; knows no key but the one every pass may read."""

from __future__ import annotations

from collections.abc import Mapping

from relaybuild.dataclass import dataclass
from relaybuild.diagnostics import nearest
from relaybuild.errors import UserError


@dataclass(frozen=True)
class ConfigKey:
    """An entry a context's `config` may have: its type and its value where it is not given."""

    name: str
    kind: type
    default: object
    doc: str


_keys: dict[str, ConfigKey] = {}


def register_config_key(name: str, kind: type, default: object, doc: str) -> ConfigKey:
    """Make a key known to every context; the module that reads the key registers it.

    A default other than None must be of the kind. The same key may be registered again with the same kind and default.
    """
    key = ConfigKey(name, kind, default, doc)
    if default is not None and not _is_of(kind, default):
        raise TypeError(f"config key '{name}' has a default of type '{_name(type(default))}', expected '{_name(kind)}'")
    known = _keys.setdefault(name, key)
    if (known.kind, known.default) != (kind, default):
        raise UserError(f"config key '{name}' is registered already, with type '{_name(known.kind)}': choose another")
    _keys[name] = key
    return key


def config_keys() -> dict[str, ConfigKey]:
    """Every registered key, by name, those of relaybuild's own passes among them."""
    _load_passes()
    return dict(sorted(_keys.items()))


def get_config_key(name: str) -> ConfigKey:
    """The key of that name; an unknown name is an error that lists the nearest."""
    if name not in _keys:
        _load_passes()
    if name not in _keys:
        near = nearest(name, _keys, 3)
        hint = f"the nearest are {', '.join(near)}" if near else f"the keys are {', '.join(sorted(_keys)) or 'none'}"
        raise UserError(f"unknown config key '{name}'; {hint}")
    return _keys[name]


def _load_passes() -> None:
    """Import the passes' modules, which register their keys."""
    from relaybuild.passes._base import builtin_passes

    builtin_passes()


def checked_config(given: Mapping[str, object]) -> dict[str, object]:
    """The entries given, each of a registered key and of its kind; raises UserError otherwise."""
    for name, value in given.items():
        kind = get_config_key(name).kind
        if not _is_of(kind, value):
            raise UserError(f"config key '{name}' got a value of type '{_name(type(value))}', expected '{_name(kind)}'")
    return dict(given)


def _name(kind: type) -> str:
    return kind.__name__


def _is_of(kind: type, value: object) -> bool:
    # a bool is an int to Python, and an int no float
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, kind)


PRECISE = register_config_key(
    "relaybuild.precise", bool, False, "keep the order of floating-point operations: no scale or sum is moved"
)
