"""Algebraic data types: their definitions, constructors, and the matches that take their values apart.

Patterns and clauses belong to their `Match`, whose children are the value taken apart and the bodies of the clauses.
Knows nothing of inference or of how a match is run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr, Span, Var, typed_alike
from relaybuild.ir.types import FuncType, GlobalTypeVar, Type, TypeCall, TypeVar, unbound_type_vars

_set = object.__setattr__
_TAG_BITS = 16
UNTAGGED = -1
"""The tag of a constructor that no definition has taken in."""


class Constructor(Expr):
    """A constructor of an algebraic data type, a function of its fields; compared by the names of type and constructor.

    `tag` tells it from every other constructor; it and the type are filled in by the `TypeData` that takes it in.
    """

    __slots__ = ("belongs_to", "inputs", "name", "tag")
    name: str
    inputs: tuple[Type, ...]
    belongs_to: GlobalTypeVar
    tag: int

    def __init__(
        self,
        name: str,
        inputs: Sequence[Type],
        belongs_to: GlobalTypeVar,
        tag: int = UNTAGGED,
        span: Span | None = None,
    ) -> None:
        _set(self, "name", name)
        _set(self, "inputs", tuple(inputs))
        _set(self, "belongs_to", belongs_to)
        _set(self, "tag", tag)
        _set(self, "_type", None)
        _set(self, "span", span)

    def __eq__(self, other: object) -> bool:
        same_name = isinstance(other, Constructor) and other.name == self.name
        return same_name and isinstance(other, Constructor) and other.belongs_to == self.belongs_to

    def __hash__(self) -> int:
        return hash(("Constructor", self.belongs_to.name, self.name))


@dataclass(frozen=True, slots=True, eq=False)
class TypeData:
    """The definition of an algebraic data type: its name, its parameters and its constructors.

    Constructors get consecutive tags that begin with a number made of the type's name. Without constructors the type
    is external: values of it come from elsewhere. Raises UserError where two constructors have one name, or where one
    belongs to another type or speaks of a type parameter that the type does not have.
    """

    header: GlobalTypeVar
    type_vars: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]
    span: Span | None
    _by_name: Mapping[str, Constructor] = field(repr=False)

    def __init__(
        self,
        header: GlobalTypeVar,
        type_vars: Sequence[TypeVar] = (),
        constructors: Sequence[Constructor] = (),
        span: Span | None = None,
    ) -> None:
        _set(self, "header", header)
        _set(self, "type_vars", tuple(type_vars))
        _set(self, "constructors", tuple(constructors))
        _set(self, "span", span)
        _set(self, "_by_name", {each.name: each for each in self.constructors})
        _check_constructors(self)
        base = _tag_base(header.name)
        result = TypeCall(header, self.type_vars)
        for index, constructor in enumerate(self.constructors):
            if constructor.tag == UNTAGGED:
                _set(constructor, "tag", base + index)
            constructor.set_checked_type(FuncType(constructor.inputs, result, self.type_vars))

    @property
    def name(self) -> str:
        return self.header.name

    def find_constructor(self, name: str) -> Constructor | None:
        """The constructor of that name, or None."""
        return self._by_name.get(name)


@dataclass(frozen=True, slots=True, eq=False)
class PatternWildcard:
    """`_`: fits every value and binds nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class PatternVar:
    """`%x`: fits every value and binds it."""

    var: Var


@dataclass(frozen=True, slots=True, eq=False)
class PatternConstructor:
    """`Cons(p, q)`: fits values made by the constructor whose fields fit the patterns."""

    constructor: Constructor
    patterns: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PatternTuple:
    """`(p, q)`: fits tuples whose fields fit the patterns."""

    patterns: tuple[Pattern, ...]


Pattern: TypeAlias = "PatternWildcard | PatternVar | PatternConstructor | PatternTuple"


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """`pattern => body` of a match."""

    pattern: Pattern
    body: Expr


class Match(Expr):
    """The body of the first clause whose pattern fits `data`.

    A complete match (`match`) must have a clause for every value; of a partial one (`match?`) a value that fits no
    clause is an error when it is run.
    """

    __slots__ = ("clauses", "complete", "data")
    data: Expr
    clauses: tuple[Clause, ...]
    complete: bool

    def __init__(self, data: Expr, clauses: Sequence[Clause], complete: bool = True, span: Span | None = None) -> None:
        _set(self, "data", data)
        _set(self, "clauses", tuple(clauses))
        _set(self, "complete", complete)
        _set(self, "span", span)
        kinds = {clause.body._type for clause in self.clauses}
        _set(self, "_type", kinds.pop() if len(kinds) == 1 else None)

    def children(self) -> tuple[Expr, ...]:
        return (self.data, *(clause.body for clause in self.clauses))

    def with_children(self, children: Sequence[Expr]) -> Match:
        if all(new is old for new, old in zip(children, self.children())):
            return self
        clauses = [Clause(clause.pattern, body) for clause, body in zip(self.clauses, children[1:])]
        return typed_alike(self, Match(children[0], clauses, self.complete, self.span))

    def binders(self) -> tuple[Var, ...]:
        return tuple(var for clause in self.clauses for var in pattern_vars(clause.pattern))

    def with_binders(self, binders: Sequence[Var]) -> Match:
        old = self.binders()
        if all(new is var for new, var in zip(binders, old)):
            return self
        renamed = {id(var): new for var, new in zip(old, binders)}
        clauses = [Clause(_with_vars(clause.pattern, renamed), clause.body) for clause in self.clauses]
        return Match(self.data, clauses, self.complete, self.span)


def pattern_vars(pattern: Pattern) -> Iterator[Var]:
    """The variables a pattern binds, from left to right."""
    return (inner.var for inner in subpatterns(pattern) if isinstance(inner, PatternVar))


def subpatterns(pattern: Pattern) -> Iterator[Pattern]:
    """A pattern and all within it, outer before inner, from left to right."""
    stack: list[Pattern] = [pattern]
    while stack:
        top = stack.pop()
        yield top
        if isinstance(top, (PatternConstructor, PatternTuple)):
            stack.extend(reversed(top.patterns))


def _with_vars(pattern: Pattern, renamed: Mapping[int, Var]) -> Pattern:
    done: dict[int, Pattern] = {}
    for inner in reversed(list(subpatterns(pattern))):
        if isinstance(inner, PatternVar):
            done[id(inner)] = PatternVar(renamed[id(inner.var)])
        elif isinstance(inner, PatternConstructor):
            done[id(inner)] = PatternConstructor(inner.constructor, tuple(done[id(each)] for each in inner.patterns))
        elif isinstance(inner, PatternTuple):
            done[id(inner)] = PatternTuple(tuple(done[id(each)] for each in inner.patterns))
        else:
            done[id(inner)] = inner
    return done[id(pattern)]


def _check_constructors(data: TypeData) -> None:
    names: set[str] = set()
    for constructor in data.constructors:
        if constructor.name in names:
            raise UserError(f"type '{data.name}' has two constructors '{constructor.name}'")
        if constructor.belongs_to != data.header:
            raise UserError(
                f"constructor '{constructor.name}' belongs to type '{constructor.belongs_to}', not to '{data.name}'"
            )
        names.add(constructor.name)
        _check_scope(data, constructor)
    if len(names) >= 1 << _TAG_BITS:
        raise UserError(
            f"type '{data.name}' has {len(names)} constructors, at most {(1 << _TAG_BITS) - 1} are possible"
        )


def _check_scope(data: TypeData, constructor: Constructor) -> None:
    for kind in constructor.inputs:
        for name in unbound_type_vars(kind, data.type_vars):
            raise UserError(f"constructor '{constructor.name}' speaks of '{name}', which type '{data.name}' has not")


def _tag_base(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:5], "big") << _TAG_BITS
