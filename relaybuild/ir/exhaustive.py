"""Whether the clauses of a match cover every value, by the matrix method; knows nothing of types inferred.

After Maranget, "Warnings for pattern matching" (2007): the rows are the patterns of the clauses; a column is taken
apart by the constructors that stand in it, and a value that no row fits is built on the way back. Only constructors
that are written are looked into, so that recursive types need no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from relaybuild.ir.adt import Constructor, Pattern, PatternConstructor, PatternTuple, PatternWildcard, TypeData

_ANY = PatternWildcard()
_Row: TypeAlias = "tuple[Pattern, ...]"


def uncovered_example(patterns: Sequence[Pattern], definitions: Mapping[str, TypeData]) -> str | None:
    """A value, written as a pattern, that none of the patterns fits; None where there is no such value.

    `definitions` are the algebraic data types by name. Patterns must agree in type.
    """
    found = _missing([(pattern,) for pattern in patterns], 1, definitions)
    return None if found is None else found[0]


def _missing(rows: Sequence[_Row], width: int, definitions: Mapping[str, TypeData]) -> list[str] | None:
    """Values, one for each of `width` columns, that no row fits."""
    if not width:
        return None if rows else []
    heads = [row[0] for row in rows]
    arity = next((len(head.patterns) for head in heads if isinstance(head, PatternTuple)), None)
    if arity is not None:
        return _missing_tuple(rows, arity, width, definitions)
    written = {head.constructor: None for head in heads if isinstance(head, PatternConstructor)}
    if not written:
        return _before("_", _missing([row[1:] for row in rows], width - 1, definitions))
    return _missing_constructor(rows, list(written), width, definitions)


def _missing_tuple(
    rows: Sequence[_Row], arity: int, width: int, definitions: Mapping[str, TypeData]
) -> list[str] | None:
    inner = [(*_tuple_fields(row[0], arity), *row[1:]) for row in rows]
    found = _missing(inner, width - 1 + arity, definitions)
    if found is None:
        return None
    comma = "," if arity == 1 else ""
    return [f"({', '.join(found[:arity])}{comma})", *found[arity:]]


def _missing_constructor(
    rows: Sequence[_Row], written: Sequence[Constructor], width: int, definitions: Mapping[str, TypeData]
) -> list[str] | None:
    data = definitions.get(written[0].belongs_to.name)
    every = data.constructors if data is not None else tuple(written)
    for constructor in every:
        if constructor not in written:
            others = [row[1:] for row in rows if not isinstance(row[0], PatternConstructor)]
            found = _before(
                _applied(constructor, ["_"] * len(constructor.inputs)), _missing(others, width - 1, definitions)
            )
        else:
            found = _missing_of(constructor, rows, width, definitions)
        if found is not None:
            return found
    return None


def _missing_of(
    constructor: Constructor, rows: Sequence[_Row], width: int, definitions: Mapping[str, TypeData]
) -> list[str] | None:
    count = len(constructor.inputs)
    inner = [
        (*fields, *row[1:]) for row in rows if (fields := _constructor_fields(row[0], constructor, count)) is not None
    ]
    found = _missing(inner, width - 1 + count, definitions)
    return None if found is None else [_applied(constructor, found[:count]), *found[count:]]


def _tuple_fields(pattern: Pattern, arity: int) -> _Row:
    return pattern.patterns if isinstance(pattern, PatternTuple) else (_ANY,) * arity


def _constructor_fields(pattern: Pattern, constructor: Constructor, count: int) -> _Row | None:
    if isinstance(pattern, PatternConstructor):
        return pattern.patterns if pattern.constructor == constructor else None
    return (_ANY,) * count


def _applied(constructor: Constructor, fields: Sequence[str]) -> str:
    return f"{constructor.name}({', '.join(fields)})" if fields else constructor.name


def _before(first: str, rest: list[str] | None) -> list[str] | None:
    return None if rest is None else [first, *rest]
