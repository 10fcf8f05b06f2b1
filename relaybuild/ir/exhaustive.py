"""Whether the clauses of a match cover every value, by the matrix method; knows nothing of types inferred.

After Maranget, "Warnings for pattern matching" (2007): the rows are the patterns of the clauses; a column is taken
apart by the constructors that stand in it, and a value that no row fits is built on the way back. Only constructors
that are written are looked into, so that recursive types need no bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.adt import (
    Constructor,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from relaybuild.ir.trampoline import Step, run

_ANY = PatternWildcard()
_Cells: TypeAlias = "tuple[Pattern, Any] | None"
_Example: TypeAlias = "list[Pattern] | None"
"""A value for each column, the last column's first."""


@dataclass(frozen=True, slots=True)
class _Row:
    """Patterns, the first with the rest, and how many of them do not fit every value."""

    cells: _Cells
    refutable: int

    @property
    def head(self) -> Pattern:
        assert self.cells is not None
        return self.cells[0]

    def opened(self, fields: Sequence[Pattern]) -> _Row:
        """The row with the fields of its first pattern in place of that."""
        assert self.cells is not None
        cells: _Cells = self.cells[1]
        for field in reversed(fields):
            cells = (field, cells)
        return _Row(cells, self.refutable - _is_refutable(self.head) + sum(map(_is_refutable, fields)))


def uncovered_example(patterns: Sequence[Pattern], definitions: Mapping[str, TypeData]) -> str | None:
    """A value, written as a pattern, that none of the patterns fits; None where there is no such value.

    `definitions` are the algebraic data types by name. Patterns must agree in type.
    """
    rows = [_Row((pattern, None), _is_refutable(pattern)) for pattern in patterns]
    found = run(_missing(rows, 1, definitions))
    return None if found is None else _text(found[0])


def _missing(rows: Sequence[_Row], width: int, definitions: Mapping[str, TypeData]) -> Step[_Example]:
    """Values, one for each of `width` columns, that no row fits."""
    if not rows:
        return [_ANY] * width
    if not all(row.refutable for row in rows):
        return None
    heads = [row.head for row in rows]
    arity = next((len(head.patterns) for head in heads if isinstance(head, PatternTuple)), None)
    if arity is not None:
        return (yield _missing_tuple(rows, arity, width, definitions))  # type: ignore[no-any-return]
    if any(isinstance(head, PatternConstructor) for head in heads):
        return (yield _missing_constructor(rows, width, definitions))  # type: ignore[no-any-return]
    rest = yield _missing([row.opened(()) for row in rows], width - 1, definitions)
    return _with(_ANY, rest)


def _missing_tuple(rows: Sequence[_Row], arity: int, width: int, definitions: Mapping[str, TypeData]) -> Step[_Example]:
    opened = [row.opened(_fields(row.head, arity)) for row in rows]
    found: _Example = yield _missing(opened, width - 1 + arity, definitions)
    return None if found is None else _with(PatternTuple(_taken(found, arity)), found)


def _missing_constructor(rows: Sequence[_Row], width: int, definitions: Mapping[str, TypeData]) -> Step[_Example]:
    """The constructors that no row has written are alike: one of them stands for all."""
    written: dict[Constructor, list[_Row]] = {}
    others = []
    for row in rows:
        if isinstance(row.head, PatternConstructor):
            written.setdefault(row.head.constructor, []).append(row)
        else:
            others.append(row)
    data = definitions.get(next(iter(written)).belongs_to.name)
    every = data.constructors if data is not None else tuple(written)
    absent = next((each for each in every if each not in written), None)
    for constructor in (each for each in every if each in written or each is absent):
        count = len(constructor.inputs)
        fitting = [*written.get(constructor, ()), *others]
        opened = [row.opened(_fields(row.head, count)) for row in fitting]
        found: _Example = yield _missing(opened, width - 1 + count, definitions)
        if found is not None:
            return _with(PatternConstructor(constructor, _taken(found, count)), found)
    return None


def _is_refutable(pattern: Pattern) -> bool:
    """Whether a pattern is taken apart."""
    return isinstance(pattern, (PatternConstructor, PatternTuple))


def _fields(pattern: Pattern, count: int) -> Sequence[Pattern]:
    return pattern.patterns if isinstance(pattern, (PatternConstructor, PatternTuple)) else (_ANY,) * count


def _with(first: Pattern, rest: _Example) -> _Example:
    if rest is not None:
        rest.append(first)
    return rest


def _taken(found: list[Pattern], count: int) -> tuple[Pattern, ...]:
    """The values of the first `count` columns, taken off."""
    start = len(found) - count
    fields = tuple(reversed(found[start:]))
    del found[start:]
    return fields


def _text(value: Pattern) -> str:
    out: list[str] = []
    stack: list[Pattern | str] = [value]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            out.append(top)
        elif isinstance(top, (PatternWildcard, PatternVar)):
            out.append("_")
        else:
            stack.extend(reversed(_pieces(top)))
    return "".join(out)


def _pieces(value: PatternConstructor | PatternTuple) -> list[Pattern | str]:
    name = value.constructor.name if isinstance(value, PatternConstructor) else ""
    if name and not value.patterns:
        return [name]
    inner = [piece for field in value.patterns for piece in (", ", field)][1:]
    return [f"{name}(", *inner, ",)" if not name and len(inner) == 1 else ")"]
