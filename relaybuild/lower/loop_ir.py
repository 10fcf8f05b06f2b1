"""The loop IR that kernel templates yield: structured statements over indices; knows nothing of tensors or operators.

Integer parts (bounds, addresses) are `Index`; the value parts are C expressions of the types and functions of
`relaybuild/vector.h`. `relaybuild.lower.c_writer` prints it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Axis, Index, IndexLike


@dataclass
class Loop:
    """`for (axis = begin; axis < end; axis += step) body`; an unrolled loop has constant bounds."""

    axis: Axis
    begin: Index
    end: Index
    step: int
    unroll: bool
    body: list[Statement] = field(default_factory=list)


@dataclass
class Branch:
    """`if (condition) body else otherwise`."""

    condition: str
    body: list[Statement] = field(default_factory=list)
    otherwise: list[Statement] = field(default_factory=list)


@dataclass(frozen=True)
class Let:
    """`const ctype name = value;`"""

    ctype: str
    name: str
    value: str


@dataclass(frozen=True)
class Declare:
    """`ctype name[dims...];`, or a scalar where there are no dims; uninitialised."""

    ctype: str
    name: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True)
class Assign:
    """`target op value;` with op `=` or `+=`."""

    target: str
    value: str
    op: str = "="


@dataclass(frozen=True)
class Evaluate:
    """An expression for its effect: a vector store."""

    text: str


Statement: TypeAlias = Loop | Branch | Let | Declare | Assign | Evaluate


@dataclass(frozen=True)
class Parameter:
    """A pointer parameter of a kernel, `const` where it is only read."""

    name: str
    ctype: str
    const: bool


@dataclass(frozen=True)
class Kernel:
    """One C function: `title` says which operators it computes; `includes` are headers beyond `relaybuild/vector.h`."""

    title: str
    parameters: tuple[Parameter, ...]
    body: list[Statement]
    lanes: int
    scratch_bytes: int = 0
    includes: tuple[str, ...] = ()


class Builder:
    """Appends statements to the innermost open block."""

    def __init__(self) -> None:
        self.body: list[Statement] = []
        self._open: list[list[Statement]] = [self.body]
        self._names: dict[str, int] = {}

    def name(self, stem: str) -> str:
        """A local name that was not given before."""
        count = self._names.get(stem, 0)
        self._names[stem] = count + 1
        return f"{stem}{count}" if count else stem

    def axis(self, stem: str, extent: int | None = None) -> Axis:
        """A fresh loop variable running below `extent`."""
        return Axis(self.name(stem), None if extent is None else extent - 1)

    def append(self, statement: Statement) -> None:
        self._open[-1].append(statement)

    def let(self, ctype: str, stem: str, value: str) -> str:
        """Name a value; returns the name."""
        name = self.name(stem)
        self.append(Let(ctype, name, value))
        return name

    def let_index(self, stem: str, value: IndexLike) -> Index:
        """Name an index, whose range is kept; a number stays a number."""
        index = Index.of(value)
        if index.constant is not None:
            return index
        axis = self.axis(stem, None if index.upper is None else index.upper + 1)
        self.append(Let("ptrdiff_t", axis.name, str(index)))
        return Index.of(axis)

    def declare(self, ctype: str, stem: str, dims: tuple[int, ...] = ()) -> str:
        """An uninitialised local; returns its name."""
        name = self.name(stem)
        self.append(Declare(ctype, name, dims))
        return name

    def assign(self, target: str, value: str, op: str = "=") -> None:
        self.append(Assign(target, value, op))

    def evaluate(self, text: str) -> None:
        self.append(Evaluate(text))

    @contextmanager
    def block(self, statements: list[Statement]) -> Iterator[None]:
        """Append to `statements` meanwhile."""
        self._open.append(statements)
        try:
            yield
        finally:
            self._open.pop()

    @contextmanager
    def loop(
        self,
        stem: str,
        end: IndexLike,
        begin: IndexLike = 0,
        step: int = 1,
        *,
        unroll: bool = False,
        last: int | None = None,
    ) -> Iterator[Index]:
        """A loop; one of a single trip is only its body.

        The variable knows its range where the bounds are numbers; `last` gives the largest value otherwise.
        """
        first, bound = Index.of(begin), Index.of(end)
        length = (bound - first).constant
        if length is not None and 0 < length <= step:
            yield first
            return
        extent = bound.upper if last is None else last + 1
        axis = self.axis(stem, extent)
        statement = Loop(axis, first, bound, step, unroll)
        self.append(statement)
        with self.block(statement.body):
            yield Index.of(axis)

    @contextmanager
    def share(self, total: IndexLike) -> Iterator[Index]:
        """The loop over this thread's share of `total` equal units."""
        count = Index.of(total)
        first = self.let("ptrdiff_t", "first", f"{count.as_factor()} * thread / threads")
        last = self.let("ptrdiff_t", "last", f"{count.as_factor()} * (thread + 1) / threads")
        axis = self.axis("unit", count.upper)
        statement = Loop(axis, Index.opaque(first), Index.opaque(last), 1, False)
        self.append(statement)
        with self.block(statement.body):
            yield Index.of(axis)

    @contextmanager
    def branch(self, condition: str) -> Iterator[Branch]:
        """`if`; open `.otherwise` with `block` for the else side."""
        statement = Branch(condition)
        self.append(statement)
        with self.block(statement.body):
            yield statement
