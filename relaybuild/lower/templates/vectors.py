"""Vectors along rows and groups of columns: counts, ragged ends and masks; knows nothing of what is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Index
from relaybuild.lower.loop_ir import Branch, Builder, Let, Statement


def each_vector(builder: Builder, count: int, lanes: int, parts: int, use: Callable[[Index, Index], None]) -> None:
    """Loops over `count` whole vectors: `use(first element, part)`, where neighbours belong to different of `parts`."""
    main = count // parts * parts
    if main:
        last = (main - parts) * lanes
        with (
            builder.loop("v", main * lanes, step=parts * lanes, last=last) as v,
            builder.loop("i", parts, unroll=True) as i,
        ):
            use(v + i * lanes, i)
    if main < count:
        with builder.loop("v", count * lanes, main * lanes, step=lanes, last=(count - 1) * lanes) as v:
            use(v, Index.of(0))


def tail_mask(lanes: int, rest: int) -> str:
    """The C text of a mask of the last `rest` lanes."""
    return "(rb_m){" + ", ".join("-1" if lane >= lanes - rest else "0" for lane in range(lanes)) + "}"


@dataclass(frozen=True)
class ColumnGroups:
    """`count` groups of `size` vectors; the last group has those at `last_offsets` from its first column."""

    lanes: int
    size: int
    count: int
    last_offsets: tuple[int, ...]

    def split(self, builder: Builder, number: Index) -> Iterator[AbstractContextManager[tuple[Index, tuple[int, ...]]]]:
        """Contexts for a whole group and for the last, each with the first column and the offsets of its vectors."""
        whole = tuple(range(0, self.size * self.lanes, self.lanes))
        if self.count == 1 or self.last_offsets == whole:
            yield _group(builder, None, number * (self.size * self.lanes), self.last_offsets)
            return
        branch = Branch(f"{number.as_factor()} < {self.count - 1}")
        builder.append(branch)
        start = number * (self.size * self.lanes)
        yield _group(builder, branch.body, start, whole)
        last = Index.of((self.count - 1) * self.size * self.lanes)
        yield _group(builder, branch.otherwise, last, self.last_offsets)


@contextmanager
def _group(
    builder: Builder, block: list[Statement] | None, start: Index, offsets: tuple[int, ...]
) -> Iterator[tuple[Index, tuple[int, ...]]]:
    if block is None:
        yield builder.let_index("start", start), offsets
        return
    with builder.block(block):
        yield builder.let_index("start", start), offsets


def column_groups(width: int, lanes: int, size: int) -> ColumnGroups:
    """Groups of `size` vectors, 2 or more, over `width` columns, which are a vector or more.

    The last group takes what is left, so that it has up to `2 * size - 1` vectors; its last vector ends at `width` and
    may overlap the one before, never one of another group.
    """
    vectors = -(-width // lanes)
    size = min(size, vectors)
    count = vectors // size
    first = (count - 1) * size
    offsets = [min(number * lanes, width - lanes) - first * lanes for number in range(first, vectors)]
    return ColumnGroups(lanes, size, count, tuple(offsets))


@dataclass(frozen=True)
class ColumnRun:
    """Neighbouring vectors of columns of one row of outputs: `count` of them, at most `most`, from vector `first`.

    `whole` of them lie at multiples of `lanes`; `has_end` is the C text of whether the run has the ragged last one.
    """

    row: Index
    first: Index
    whole: Index
    count: Index
    has_end: str
    most: int
    lanes: int
    width: int

    @property
    def is_ragged(self) -> bool:
        """Whether rows are no whole number of vectors."""
        return self.width % self.lanes > 0

    @contextmanager
    def each_whole(self, builder: Builder) -> Iterator[tuple[Index, Index]]:
        """The loop over the vectors at multiples of lanes: (number in the run, first column)."""
        with builder.loop("s", self.whole, last=self.most - 1 - self.is_ragged) as number:
            yield number, (self.first + number) * self.lanes

    @contextmanager
    def each(self, builder: Builder) -> Iterator[tuple[Index, Index]]:
        """The loop over the vectors: (number in the run, first column)."""
        with builder.loop("s", self.count, last=self.most - 1) as number:
            column = (self.first + number) * self.lanes
            if self.is_ragged:
                last = self.width - self.lanes
                axis = builder.axis("column", last + 1)
                builder.append(Let("ptrdiff_t", axis.name, f"{column} < {last} ? {column} : {last}"))
                column = Index.of(axis)
            yield number, column


@contextmanager
def column_runs(builder: Builder, rows: int, width: int, lanes: int, most: int) -> Iterator[ColumnRun]:
    """The loop over runs of columns: a thread's share of `rows` rows of `width` columns, a vector or more, is in one
    piece, and is cut at the ends of rows and into runs of at most `most` vectors.

    The last vector of a row ends at `width`; it may overlap the one before, which is of the same run.
    """
    vectors = width // lanes
    parts = -(-vectors // most)
    size = -(-vectors // parts)
    parts = -(-vectors // size)
    first = builder.let("ptrdiff_t", "first", f"(ptrdiff_t){rows * vectors} * thread / threads")
    last = builder.let("ptrdiff_t", "last", f"(ptrdiff_t){rows * vectors} * (thread + 1) / threads")

    def run_of(vector: str) -> str:
        return f"{vector} / {vectors} * {parts} + {vector} % {vectors} / {size}"

    begin = builder.let("ptrdiff_t", "begin", run_of(first))
    end = builder.let("ptrdiff_t", "end", f"{first} < {last} ? {run_of(f'({last} - 1)')} + 1 : {begin}")
    with builder.loop("run", Index.opaque(end), Index.opaque(begin), last=rows * parts - 1) as run:
        row = builder.let_index("row", run // parts)
        start = builder.let_index("start", run % parts * size)
        share = builder.let("ptrdiff_t", "share", f"{first} - {row * vectors}")
        rest = builder.let("ptrdiff_t", "rest", f"{last} - {row * vectors}")
        near = builder.axis("from", vectors)
        builder.append(Let("ptrdiff_t", near.name, f"{start} < {share} ? {share} : {start}"))
        past = builder.let("ptrdiff_t", "past", _least(builder, (start + size, Index.of(vectors), Index.opaque(rest))))
        whole = builder.let("ptrdiff_t", "whole", f"{past} - {near.name}")
        has_end = f"{past} == {vectors}" if width % lanes else "0"
        count = builder.let("ptrdiff_t", "count", f"{whole} + ({has_end})")
        most = size + bool(width % lanes)
        yield ColumnRun(
            Index.of(row), Index.of(near), Index.opaque(whole), Index.opaque(count), has_end, most, lanes, width
        )


def _least(builder: Builder, values: Sequence[Index]) -> str:
    """The C text of the least of several indices."""
    least = builder.let("ptrdiff_t", "least", str(values[0]))
    for value in values[1:-1]:
        least = builder.let("ptrdiff_t", "least", f"{least} < {value} ? {least} : {value}")
    return f"{least} < {values[-1]} ? {least} : {values[-1]}"
