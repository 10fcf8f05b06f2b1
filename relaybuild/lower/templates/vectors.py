"""Vectors along rows and groups of columns: counts, ragged ends and masks; knows nothing of what is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from relaybuild.lower.index import Index
from relaybuild.lower.loop_ir import Branch, Builder, Statement


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
