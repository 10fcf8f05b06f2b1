"""First-order programs: procedures over tensors, with calls and conditionals; knows neither kernels nor C.

A value is an expression of operators over the variables of its procedure: the parameters, and the results of calls and
conditionals. Tuples are gone, except as arguments of operators that take one; so are functions as values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Span, Tuple, Var


@dataclass(eq=False)
class Region:
    """Code without a name: a procedure's body, or a branch.

    `entries` are the operators' calls, in topological order, and between them the calls of procedures and the
    conditionals; each entry uses what stands before it, here or in the regions around. Nothing orders two entries but
    that. A result of a branch is None where nothing asks for it behind this branch.
    """

    entries: list[Entry] = field(default_factory=list)
    results: tuple[Expr | None, ...] = ()


@dataclass(eq=False)
class Procedure:
    """A function with a name of its own, over tensors of known shape."""

    name: str
    params: tuple[Var, ...]
    body: Region = field(default_factory=Region)


@dataclass(frozen=True)
class Foreign:
    """A function that another backend computes: its symbol, and that backend's tag."""

    symbol: str
    compiler: str


@dataclass(eq=False)
class Invoke:
    """A call of a procedure or of another backend's function, which defines `results`."""

    procedure: Procedure | Foreign
    args: tuple[Expr, ...]
    results: tuple[Var, ...]
    span: Span | None = None


@dataclass(eq=False)
class Branch:
    """A conditional: the results of one of its branches become `results`."""

    cond: Expr
    branches: tuple[Region, Region]
    results: tuple[Var, ...]
    span: Span | None = None


Entry: TypeAlias = "Expr | Invoke | Branch"


@dataclass(frozen=True)
class ControlProgram:
    """Procedures, the one that runs first at the front, and the ids of expressions over constants alone.

    Such an expression stands among no region's entries: whoever uses it finds it in the table of weights. `alive` keeps
    the objects that the ids stand for.
    """

    procedures: tuple[Procedure, ...]
    weights: frozenset[int]
    alive: tuple[Expr, ...]

    @property
    def results(self) -> tuple[Expr, ...]:
        """What the first procedure returns."""
        return tuple(result for result in self.procedures[0].body.results if result is not None)


def defined(region: Region) -> Iterator[int]:
    """The ids of what a region computes, outside of the branches in it."""
    for entry in region.entries:
        yield from (id(value) for value in (entry.results if isinstance(entry, (Invoke, Branch)) else (entry,)))


def leaves(expr: Expr) -> Iterator[Expr]:
    """The fields of a tuple, of tuples in it too, in order; anything else is its own leaf."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Tuple):
            stack.extend(reversed(node.fields))
        else:
            yield node
