"""Tables of patterns: what a backend can take as a whole, first come first served; knows no backend by name.

A backend's folder has its table in a file of its own. `register_pattern_table` is for users' scripts, and what they
register takes the place of a backend's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, overload

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.pattern import Check, DFPattern
from relaybuild.partition.backend import all_backends


@dataclass(frozen=True, eq=False)
class Entry:
    """A pattern of a table, under the name that its composite functions have.

    `check(root)` may refuse a match: it is true, or false, or a sentence that says why not.
    """

    name: str
    pattern: DFPattern
    check: Check | None = None


PatternTable: TypeAlias = tuple[Entry, ...]
TableMaker: TypeAlias = Callable[[], Iterable[Any]]

_tables: dict[str, PatternTable] = {}


def pattern_table(entries: Iterable[Any]) -> PatternTable:
    """A table from entries, or tuples `(name, pattern)` and `(name, pattern, check)`; anything else is an error."""
    return tuple(_entry(each, index) for index, each in enumerate(entries))


def _entry(given: Any, index: int) -> Entry:
    if isinstance(given, Entry):
        return given
    fits = isinstance(given, (tuple, list)) and len(given) in (2, 3)
    if not fits or not isinstance(given[0], str) or not isinstance(given[1], DFPattern):
        raise UserError(
            f"entry {index} of the pattern table is {given!r}, expected (name, pattern) or (name, pattern, check)"
        )
    if len(given) == 3 and given[2] is not None and not callable(given[2]):
        raise UserError(f"the check of '{given[0]}' in the pattern table is {given[2]!r}, expected a function")
    return Entry(*given)


@overload
def register_pattern_table(tag: str, table: TableMaker) -> TableMaker: ...


@overload
def register_pattern_table(tag: str, table: None = None) -> Callable[[TableMaker], TableMaker]: ...


def register_pattern_table(
    tag: str, table: TableMaker | None = None
) -> TableMaker | Callable[[TableMaker], TableMaker]:
    """Register what `table()` returns, called once and now, under a compiler's tag; the latest of a tag holds.

    Without `table`, a decorator that does so with a function.
    """

    def register(maker: TableMaker) -> TableMaker:
        _tables[tag] = pattern_table(maker())
        return maker

    return register if table is None else register(table)


def get_pattern_table(tag: str) -> PatternTable | None:
    """The table registered under a tag; None where there is none."""
    return _tables.get(tag)


def table_of(tag: str) -> PatternTable:
    """The table registered under a tag, else the patterns of the backend that has it; empty where there are none."""
    if tag in _tables:
        return _tables[tag]
    backend = all_backends().get(tag)
    patterns = backend.patterns if backend else ()
    return pattern_table(patterns() if callable(patterns) else patterns)


def known_tags() -> list[str]:
    """The tags that have tables, sorted."""
    return sorted({*_tables, *(tag for tag, backend in all_backends().items() if backend.patterns)})
