"""A typed module in memory, as bytes that are the same for any weights, or both; knows no pass and no cache.

    stored ::= table newline text
    table  ::= JSON list of the origin of each slot: a number, or the digest of a constant, with "#1", "#2"... behind it
               for further arrays of the same content
    text   ::= the module in the text format, with spans, its weights as slots

What is only stored is read when somebody asks for the module; what is only in memory is written when somebody asks for
the bytes or their digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from relaybuild.compilation.slots import Origin, Weights, pack
from relaybuild.digest import Digest, digest_bytes
from relaybuild.ir.module import IRModule
from relaybuild.ir.printer import print_module
from relaybuild.ir.structural import weight_slots

_FURTHER = "#"


class StoredError(ValueError):
    """Bytes that are no stored module."""


class Program:
    """A module and its stored form."""

    def __init__(
        self,
        weights: Weights,
        *,
        module: IRModule | None = None,
        load: Callable[[], bytes] | None = None,
        digest: Digest | None = None,
    ) -> None:
        """Of a module, typed, or of what reads its stored form, of this digest, or of both, which then say the same."""
        assert module is not None or load is not None
        self.weights = weights
        self._module = module
        self._load = load
        self._digest = digest

    @cached_property
    def module(self) -> IRModule:
        """The module. Raises StoredError for bytes that are none, and what loading weights raises."""
        return self._module if self._module is not None else read_stored(self.stored, self.weights)

    @property
    def in_memory(self) -> IRModule | None:
        """The module, if somebody has asked for it."""
        return self.__dict__.get("module", self._module)

    @cached_property
    def stored(self) -> bytes:
        """The stored form. Raises UserError for a module that has no text."""
        return self._load() if self._load is not None else stored_form(self.module, self.weights)

    @property
    def digest(self) -> Digest:
        """What identifies the module in keys, whatever its weights hold."""
        if self._digest is None:
            self._digest = digest_bytes(self.stored)
        return self._digest

    @property
    def constants(self) -> Mapping[str, bytes]:
        """Those weights that are constants, packed, by origin."""
        return {origin: pack(self.weights.array(origin)) for origin in origins(self.stored) if isinstance(origin, str)}


def read_stored(stored: bytes, weights: Weights) -> IRModule:
    """The module of a stored form; raises StoredError, and what loading weights raises."""
    from relaybuild.ir.parser import parse

    arrays = _arrays(_table(stored), weights)
    return parse(stored.partition(b"\n")[2].decode(), weights=arrays or None, positions=False)


def stored_form(module: IRModule, weights: Weights) -> bytes:
    """A module as bytes; raises UserError for one that has no text."""
    text = print_module(module, weights="slot", show_spans=True)
    table = _numbered([(weights.origin(constant), id(constant.array)) for constant in weight_slots(module)])
    return f"{json.dumps(table)}\n{text}".encode()


def origins(stored: bytes) -> tuple[Origin, ...]:
    """Where the weights of a stored module come from, by slot; raises StoredError."""
    return tuple(each if isinstance(each, int) else each.partition(_FURTHER)[0] for each in _table(stored))


def _numbered(slots: Sequence[tuple[Origin, int]]) -> list[Origin]:
    """The table for origins and identities of arrays: arrays that are not one are told apart, which have equal content.

    Whether two weights are one decides how often a library holds them.
    """
    seen: dict[Origin, list[int]] = {}
    table: list[Origin] = []
    for origin, identity in slots:
        known = seen.setdefault(origin, [])
        if identity not in known:
            known.append(identity)
        number = known.index(identity)
        table.append(f"{origin}{_FURTHER}{number}" if number and isinstance(origin, str) else origin)
    return table


def _arrays(table: Sequence[Origin], weights: Weights) -> list[NDArray[Any]]:
    """The arrays of a table: equal entries are one."""
    found: dict[Origin, NDArray[Any]] = {}
    for entry in table:
        if entry in found:
            continue
        if isinstance(entry, int) or _FURTHER not in entry:
            found[entry] = weights.array(entry)
            continue
        origin = entry.partition(_FURTHER)[0]
        found[entry] = weights.array(origin).view()
        weights.adopt(origin, found[entry])
    return [found[entry] for entry in table]


def _table(stored: bytes) -> tuple[Origin, ...]:
    try:
        table = json.loads(stored.partition(b"\n")[0])
    except ValueError as error:
        raise StoredError(f"a module without a table of weights: {error}") from None
    if not isinstance(table, list) or not all(isinstance(each, (int, str)) for each in table):
        raise StoredError("a module whose table of weights is none")
    return tuple(table)
