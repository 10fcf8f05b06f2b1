"""What a process has registered beyond relaybuild's own, as part of a key; knows the registries, and no name in them.

A registry whose module was never imported is empty, and is not imported to be asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from relaybuild.digest import Digest
from relaybuild.registry import get_global_func, list_global_func_names

_CODEGENS = "relay.ext."
"""What the names of functions begin with that generate code."""


class Unidentified(Exception):
    """Something registered cannot be told from another version of it; the message says what, and why."""


def extensions(required_passes: Iterable[str]) -> Mapping[str, Digest]:
    """Digests of what was registered and may decide what is compiled, by kind and name.

    Raises Unidentified for what is known neither by its content nor by a `cache_id()`.
    """
    return {name: _digest(name, value) for name, value in _registered(frozenset(required_passes))}


def has_backends() -> bool:
    """Whether backends or code generators were registered in this process."""
    return bool(list_global_func_names(_CODEGENS) or _of("partition.backend", "_registered"))


def registered_folders() -> Mapping[str, Path]:
    """The folders with the sources of registered backends, by tag."""
    backends = _of("partition.backend", "_registered").items()
    return {tag: backend.folder for tag, backend in backends if backend.folder is not None}


def _digest(name: str, value: object) -> Digest:
    from relaybuild.artifact.fingerprint import NoFingerprint, fingerprint

    try:
        return fingerprint(value)
    except NoFingerprint as error:
        raise Unidentified(f"plugin-without-id: {name}: {error}; give it a method 'cache_id()'") from None


def _registered(required_passes: frozenset[str]) -> Iterator[tuple[str, object]]:
    for name in list_global_func_names(_CODEGENS):
        yield f"function/{name}", get_global_func(name)
    for tag, backend in _of("partition.backend", "_registered").items():
        yield f"backend/{tag}", backend
    for (tag, op_name), predicate in _of("partition.backend", "_predicates").items():
        yield f"supports/{tag}/{op_name}", predicate
    for tag, table in _of("partition.pattern_table", "_tables").items():
        yield f"patterns/{tag}", table
    for (kind, op_name), rules in _of("passes.op_rewrites", "_registered").items():
        yield f"{kind}/{op_name}", rules
    scoped: Callable[[], object] = getattr(_value("passes.op_rewrites", "_scoped"), "get", tuple)
    if rules := scoped():
        yield "scoped-rewrites", rules
    for name, factory in _of("passes._base", "_user_passes").items():
        if name in required_passes:
            yield f"pass/{name}", factory


def _of(module: str, name: str) -> Mapping[Any, Any]:
    found: Mapping[Any, Any] = _value(module, name) or {}
    return found


def _value(module: str, name: str) -> Any:
    """A registry, None where its module was not imported."""
    return getattr(sys.modules.get(f"relaybuild.{module}"), name, None)
