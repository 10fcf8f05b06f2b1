"""Loads and weights that follow from the position along one axis alone, by tables; knows nothing of what they mean.

A resized image reads, in each row, the same columns with the same weights. Both are worked out when the kernel is made:
a vector loads a window of columns from the first that it needs, and a permutation brings them into order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, groupby, takewhile
from operator import add, mul
from typing import TypeVar

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError
from relaybuild.ir.types import dtype_itemsize
from relaybuild.lower.emit import c_literal, c_type, is_vectorizable
from relaybuild.lower.index import Atom, Axis, Index, IndexLike, Opaque, Quotient, Remainder
from relaybuild.lower.layout import Layout
from relaybuild.lower.loop_ir import Builder, Evaluate, Let
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, indices_of, walk
from relaybuild.lower.templates.body import Body, Rule, store

MOST_ELEMENTS = 8192
"""Of an axis that has tables: they are text in a kernel."""

HALVED = 8
"""Lanes of vectors that are put in order faster half by half, each half of a window of its own."""

PERIODS = (1, 2, 3)
"""Vectors after which tables are looked at for repeating themselves."""

T = TypeVar("T")

Place = Callable[[Index], Sequence[IndexLike]]
"""The logical index of a position along the axis."""

_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
    "min": min,
}
_UNARY: dict[str, Callable[[float], float]] = {"abs": abs, "neg": lambda a: -a}


class Tables:
    """The values of one kernel that follow from the position along an axis of `extent` positions alone.

    The vectors along the axis begin at multiples of `lanes`, but the last one ends where the axis ends. Of all that the
    tables have for a vector, `_fixed` has what is the same in a later one that is computed likewise, `_moving` the
    places in memory, which are as many elements further all.
    """

    def __init__(self, builder: Builder, body: Body, machine: Machine, extent: int) -> None:
        self._builder = builder
        self._body = body
        self._lanes = machine.lanes
        self._extent = extent
        self._axis = Axis("column", extent - 1)
        self._names: dict[tuple[str, tuple[str, ...]], str] = {}
        self._fixed: dict[Hashable, list[Hashable]] = {}
        self._moving: dict[Hashable, list[tuple[int, ...]]] = {}
        starts = range(0, extent, machine.lanes) if extent <= MOST_ELEMENTS else ()
        self._starts = [min(start, extent - machine.lanes) for start in starts]

    def serve(self, place: Place) -> bool:
        """Whether something is not a load of neighbours or of one element, and all has vector form by tables.

        A load whose place depends on the position and on others in one term has none.
        """
        if self._lanes == 1 or not self._lanes <= self._extent <= MOST_ELEMENTS:
            return False
        index = place(Index.of(self._axis))
        if self._body.output.dtype != "float32" or self._body.output.layout.address(index).coefficient(self._axis) != 1:
            return False
        scalars = ScalarBuilder()
        root = self._body.rule(scalars, index, None)
        if not self._is_irregular(scalars, root):
            return False
        zero = Index.of(0)
        served = self._by_tables(scalars, root, zero, zero, zero)
        is_left = any(node.op == "load" and scalars.depends_on(node, self._axis) for node in walk(served))
        return not is_left and is_vectorizable(served, self._axis, scalars)

    def _is_irregular(self, scalars: ScalarBuilder, root: ScalarExpr) -> bool:
        nodes = [node for node in walk(root) if any(scalars.index_depends_on(i, self._axis) for i in indices_of(node))]
        return any(node.op != "load" or node.data[1].coefficient(self._axis) in (None, 0) for node in nodes)

    def define(self) -> None:
        """Emit the tables that `serve` found."""
        for (ctype, values), name in self._names.items():
            self._builder.evaluate(f"static const {ctype} {name}[{len(values)}] = {{{', '.join(values)}}}")

    def loop(self, place: Place) -> None:
        """Emit the loop over the axis, by the tables defined."""
        count = len(self._starts)
        steady = self._steady()
        if steady is None:
            self._vectors(place, 0, count)
            return
        self._vectors(place, 0, steady.begin)
        with self._builder.loop("t", steady.repeats) as turn:
            for k in range(steady.period):
                like = steady.begin + k
                start = (like + turn * steady.period) * self._lanes
                self._vector(place, start, Index.of(like), turn * steady.step)
        self._vectors(place, steady.end, count)

    def _vectors(self, place: Place, begin: int, end: int) -> None:
        """The vectors from number `begin` to `end`, each by its part of the tables."""
        builder, lanes, extent = self._builder, self._lanes, self._extent
        if begin == end:
            return
        with builder.loop("v", end, begin) as v:
            start = v * lanes
            if v.constant is not None:
                start = Index.of(self._starts[v.constant])
            elif extent % lanes and end == len(self._starts):
                at = builder.axis("at", extent - lanes + 1)
                text = f"{v} < {extent // lanes} ? {start} : {extent - lanes}"
                builder.append(Let("ptrdiff_t", at.name, text))
                start = Index.of(at)
            self._vector(place, start, v, Index.of(0))

    def _vector(self, place: Place, start: Index, like: Index, shift: Index) -> None:
        """The vector that begins at `start`, by the tables of vector `like`, from places `shift` elements further."""
        lane = self._builder.axis("lane", self._lanes)
        body = replace(self._body, rule=self._rule(place, start, like, shift))
        store(self._builder, body, place(start + Index.of(lane)), None, self._lanes, lane)

    def _steady(self) -> _Steady | None:
        """The longest stretch of vectors that are computed alike, if they are most."""
        count = len(self._starts)
        for period in PERIODS:
            steps = [self._step(v, period) for v in range(period, count)]
            runs = [_Steady.of(period, first, last, step) for first, last, step in _runs(steps)]
            longest = max(runs, key=lambda run: run.end - run.begin, default=None)
            if longest is not None and longest.repeats > 2 and 2 * (longest.end - longest.begin) > count:
                return longest
        return None

    def _step(self, v: int, period: int) -> int | None:
        """How many elements further vector `v` reads what it reads like the one `period` before; None where it does
        not."""
        if any(values[v] != values[v - period] for values in self._fixed.values()):
            return None
        steps = {
            here - before for places in self._moving.values() for here, before in zip(places[v], places[v - period])
        }
        return steps.pop() if len(steps) == 1 else None

    def _rule(self, place: Place, start: Index, like: Index, shift: Index) -> Rule:
        """The body's rule for the vector that begins at `start`, by tables."""

        def rule(scalars: ScalarBuilder, index: Sequence[IndexLike], anchor: ScalarExpr | None) -> ScalarExpr:
            root = self._body.rule(scalars, place(Index.of(self._axis)), anchor)
            return self._by_tables(scalars, root, start, like, shift)

        return rule

    def _by_tables(
        self, scalars: ScalarBuilder, root: ScalarExpr, start: Index, like: Index, shift: Index
    ) -> ScalarExpr:
        """`root` for the vector that begins at `start`, with all that varies taken from memory or tables."""
        loads: list[ScalarExpr] = []
        values: dict[int, ScalarExpr] = {}
        pending = [root]
        while pending:
            node = pending.pop()
            if id(node) in values or not scalars.depends_on(node, self._axis):
                continue
            if node.op == "load":
                loads.append(node)
            elif node.dtype == "float32" and _is_known(scalars, node, self._axis):
                values[id(node)] = self._weight(scalars, node, like)
            else:
                pending.extend(node.args)
        for together in self._by_row(scalars, loads):
            values.update(self._picked(scalars, together, start, like, shift))
        return scalars.replaced(root, values)

    def _weight(self, scalars: ScalarBuilder, node: ScalarExpr, v: Index) -> ScalarExpr:
        numbers = _values(scalars, node, self._extent)
        ordered = [numbers[start + lane] for start in self._starts for lane in range(self._lanes)]
        table = self._table("float", [c_literal(number, "float32") for number in ordered])
        self._fixed[table] = [_single(part) for part in _parts(ordered, self._lanes)]
        return scalars.vector(f"rb_load({table} + {v * self._lanes})", "float32")

    def _by_row(self, scalars: ScalarBuilder, loads: Sequence[ScalarExpr]) -> list[list[ScalarExpr]]:
        """Loads at known columns, those of one row together."""
        rows: dict[tuple[int, Index], list[ScalarExpr]] = {}
        for node in loads:
            operand, address = node.data
            column = _varying(scalars, address, self._axis)
            if _is_known_index(scalars, column, self._axis):
                rows.setdefault((operand, address - column), []).append(node)
        return list(rows.values())

    def _picked(
        self, scalars: ScalarBuilder, loads: Sequence[ScalarExpr], start: Index, like: Index, shift: Index
    ) -> dict[int, ScalarExpr]:
        """Loads of one row, by their id: in windows that have the elements of all, where there are such."""
        columns = {id(node): self._columns(scalars, node) for node in loads}
        found: dict[int, ScalarExpr] = {}
        for node in loads:
            operand, address = node.data
            own = columns[id(node)]
            row = address - _varying(scalars, address, self._axis)
            if own == list(range(self._extent)):
                found[id(node)] = scalars.picked("rb_load", operand, row + start, "", node.dtype)
            else:
                function, places = self._pick(own, list(columns.values()), like)
                found[id(node)] = scalars.picked(function, operand, row + shift, places, node.dtype)
        return found

    def _pick(self, own: Sequence[int], together: Sequence[Sequence[int]], v: Index) -> tuple[str, str]:
        """The C function that loads the elements at the columns `own`, and its arguments behind the row's pointer."""
        lanes, half = self._lanes, self._lanes // 2
        widths = (half, lanes) if lanes == HALVED else (lanes,)
        for width in widths:
            firsts = self._firsts(together, width) or self._firsts([own], width)
            if firsts:
                parts = list(zip(self._begins(width), firsts))
                order = [own[at + lane] - first for at, first in parts for lane in range(width)]
                named = self._table("int32_t", [str(first) for first in firsts])
                ordered = self._table("int32_t", [str(place) for place in order])
                self._moving[named] = _parts(firsts, lanes // width)
                self._fixed[ordered] = [*_parts(order, lanes)]
                places = f"{ordered} + {v * lanes}"
                if width == half:
                    return "rb_pick_halves", f", {named} + {v * 2}, {places}"
                return "rb_pick", f" + {named}[{v}], {places}"
        order = [own[at + lane] for at in self._starts for lane in range(lanes)]
        ordered = self._table("int32_t", [str(place) for place in order])
        self._moving[ordered] = _parts(order, lanes)
        return "rb_gather", f", {ordered} + {v * lanes}"

    def _columns(self, scalars: ScalarBuilder, load: ScalarExpr) -> list[int]:
        column = _varying(scalars, load.data[1], self._axis)
        return _numbers(scalars, column, self._extent)

    def _begins(self, width: int) -> list[int]:
        """Where parts of `width` lanes of the vectors begin."""
        return [start + part for start in self._starts for part in range(0, self._lanes, width)]

    def _firsts(self, columns: Sequence[Sequence[int]], width: int) -> list[int]:
        """The first element of a window of `width` that has all columns of all loads, for each part of so many lanes;
        empty where some are too far apart."""
        most = max(map(max, columns)) + 1 - width
        near = [[x for own in columns for x in own[at : at + width]] for at in self._begins(width)]
        firsts = [min(most, *each) for each in near]
        inside = all(max(each) - first < width for each, first in zip(near, firsts))
        return firsts if inside and most >= min(map(min, columns)) else []

    def _table(self, ctype: str, values: Sequence[str]) -> str:
        key = ctype, tuple(values)
        if key not in self._names:
            self._names[key] = self._builder.name("table")
        return self._names[key]


@dataclass(frozen=True)
class _Steady:
    """Vectors `begin` to `end`, each like the one `period` before, `step` elements further."""

    begin: int
    end: int
    period: int
    step: int

    @staticmethod
    def of(period: int, first: int, last: int, step: int) -> _Steady:
        """Those that vectors `first + period` to `last + period` make with the ones that they are like."""
        repeats = (last + 1 - first) // period + 1
        return _Steady(first, first + repeats * period, period, step)

    @property
    def repeats(self) -> int:
        return (self.end - self.begin) // self.period


def _runs(steps: Sequence[int | None]) -> list[tuple[int, int, int]]:
    """(first, last, value) of each stretch of equal values that are there."""
    grouped = groupby(range(len(steps)), key=lambda at: steps[at])
    places = [(step, list(group)) for step, group in grouped]
    return [(group[0], group[-1], step) for step, group in places if step is not None]


def _parts(values: Sequence[T], size: int) -> list[tuple[T, ...]]:
    return [tuple(values[at : at + size]) for at in range(0, len(values), size)]


def _single(numbers: Sequence[float]) -> bytes:
    """The numbers as a table of single precision has them."""
    return struct.pack(f"{len(numbers)}f", *numbers)


def with_position_tables(builder: Builder, body: Body) -> Body:
    """`body` with what follows from the position along one of its last two dimensions alone read from tables, where
    that position is the variable of a loop, or a named number of that range."""
    return _PositionTables(body).define(builder)


@dataclass(frozen=True)
class Window:
    """The rows of a staged value that are kept, each in place of the one `rows` before it: `firsts` and `lasts` are the
    rows that are to be there for each row of the output, `name` is the C name of the memory, in which rows are `pitch`
    elements apart.

    `joins` tells which rows of the output read what the one before reads. `follow(axis, leader)` is the body's rule for
    such a row, at position `axis`, behind the one at `leader`: equal loads are equal text.
    """

    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    joins: tuple[bool, ...]
    follow: Callable[[Axis, Axis], Rule]
    name: str
    rows: int
    pitch: int

    def bytes_of(self, stage: Body) -> int:
        """The size of the memory."""
        return self.rows * self.pitch * dtype_itemsize(stage.output.dtype)

    def pairs(self) -> list[int]:
        """Where the rows of the output begin that are one or, where they may be, two."""
        begins: list[int] = []
        for row, joins in enumerate(self.joins):
            if not (joins and begins[-1] == row - 1):
                begins.append(row)
        return begins


def staged(builder: Builder, body: Body, stage: Body, *, columns: bool) -> tuple[Body, Body, Window]:
    """`body` over as few rows of `stage` as it reads at a time, by tables, `stage` for one row of these, and which.

    The output's rows are computed in order, and its last dimension but one counts them. `columns` says that there are
    to be tables for the last one too.
    """
    tables = _PositionTables(body, stage.output.layout, columns=columns)
    read = tables.rows_read()
    lasts = list(accumulate(map(max, read), max))
    firsts = list(accumulate(map(min, reversed(read)), min))[::-1]
    joins = (False, *(here == before for here, before in zip(read[1:], read)))
    layout = stage.output.layout
    tables.kept = 1 + max(last - first for first, last in zip(firsts, lasts))
    pitch = layout.strides[-2] if layout.block == 1 else layout.strides[2]
    ctype = c_type(stage.output.dtype)
    builder.evaluate(f"{ctype} *const {stage.target} = ({ctype} *)scratch")
    window = Window(tuple(firsts), tuple(lasts), joins, tables.following, stage.target, tables.kept, pitch)
    row = replace(layout, strides=(*(0 for _ in layout.shape[1:]), layout.block))
    line = replace(stage, output=replace(stage.output, layout=row), target=builder.name("line"))
    return tables.define(builder), _PositionTables(line, columns=columns).define(builder), window


def define_table(builder: Builder, ctype: str, values: Sequence[str]) -> str:
    """A table at the kernel's beginning; returns its name."""
    name = builder.name("table")
    table = Evaluate(f"static const {ctype} {name}[{len(values)}] = {{{', '.join(values)}}}")
    before = takewhile(lambda each: isinstance(each, Evaluate) and each.text.startswith("static"), builder.body)
    builder.body.insert(len(list(before)), table)
    return name


class _PositionTables:
    """The tables of a body: `numbers` has the operand of each, by the type and text of its elements.

    `kept` is how many rows of the body's stage are kept, in memory that is laid out as `stage`.
    """

    def __init__(self, body: Body, stage: Layout | None = None, *, columns: bool = True) -> None:
        rank = len(body.output.layout.shape)
        self._body = body
        self._stage = stage
        self._dimensions = [each for each in range(rank - 2, rank - 1 + columns) if each >= 0]
        self._first = len(body.pointers)
        self.numbers: dict[tuple[str, tuple[str, ...]], int] = {}
        self.kept = 1

    def _axes(self) -> list[Axis]:
        return [Axis(f"i{at}", extent - 1) for at, extent in enumerate(self._body.output.layout.shape)]

    def define(self, builder: Builder) -> Body:
        """The body by tables, which are emitted."""
        self.rule(ScalarBuilder(), [Index.of(axis) for axis in self._axes()], None)
        names = [define_table(builder, ctype, values) for ctype, values in self.numbers]
        return replace(self._body, rule=self.rule, tables=tuple(names))

    def rows_read(self) -> list[list[int]]:
        """The rows of the stage that each row of the body reads."""
        scalars = ScalarBuilder()
        axes = self._axes()
        root = self._body.rule(scalars, [Index.of(axis) for axis in axes], None)
        rows = [self._rows(scalars, load, axes[-2]) for load in self._staged_loads(root)]
        return [list(each) for each in zip(*rows)]

    def _staged_loads(self, root: ScalarExpr) -> list[ScalarExpr]:
        number = len(self._body.inputs)
        return [node for node in walk(root) if self._stage is not None and node.op == "load" and node.data[0] == number]

    def _row(self, scalars: ScalarBuilder, address: Index, axis: Axis) -> Index:
        """What of the address of an element of the stage its row adds."""
        assert self._stage is not None
        pitch = self._stage.strides[-2]
        varying = _varying(scalars, address, axis)
        if not _is_known_index(scalars, varying, axis):
            raise InternalError("a row of a staged value depends on more than the output's row")
        fixed = sum(coefficient for monomial, coefficient in address.terms if not monomial)
        return varying + fixed // pitch * pitch

    def _rows(self, scalars: ScalarBuilder, load: ScalarExpr, axis: Axis) -> list[int]:
        """The row of the stage that a load reads, by that of the body."""
        assert self._stage is not None
        assert axis.last is not None
        row = self._row(scalars, load.data[1], axis)
        return [number // self._stage.strides[-2] for number in _numbers(scalars, row, axis.last + 1)]

    def rule(self, scalars: ScalarBuilder, index: Sequence[IndexLike], anchor: ScalarExpr | None) -> ScalarExpr:
        """The body's rule, by tables."""
        return self._by_tables(scalars, index, anchor, {})

    def following(self, axis: Axis, leader: Axis) -> Rule:
        """The body's rule at row `axis`, which reads the rows of the stage that row `leader` reads."""
        return lambda scalars, index, anchor: self._by_tables(scalars, index, anchor, {axis: leader})

    def _by_tables(
        self,
        scalars: ScalarBuilder,
        index: Sequence[IndexLike],
        anchor: ScalarExpr | None,
        leaders: Mapping[Axis, Axis],
    ) -> ScalarExpr:
        root = self._body.rule(scalars, index, anchor)
        shape = self._body.output.layout.shape
        for dimension in self._dimensions:
            position = Index.of(index[dimension])
            for axis in position.axes():
                if axis.last == shape[dimension] - 1 and Index.of(axis) == position:
                    if dimension == len(shape) - 2:
                        root = self._kept_rows(scalars, root, axis, leaders.get(axis, axis))
                    root = self._along(scalars, root, axis)
        return root

    def _along(self, scalars: ScalarBuilder, root: ScalarExpr, axis: Axis) -> ScalarExpr:
        if axis.last is None or not 0 < axis.last < MOST_ELEMENTS:
            return root
        return scalars.replaced(root, self._known(scalars, root, axis))

    def _kept_rows(self, scalars: ScalarBuilder, root: ScalarExpr, axis: Axis, leader: Axis) -> ScalarExpr:
        """`root` at row `axis`, with loads from where the rows are kept that are there for row `leader`."""
        loads = self._staged_loads(root)
        return scalars.replaced(root, {id(load): self._kept(scalars, load, axis, leader) for load in loads})

    def _kept(self, scalars: ScalarBuilder, load: ScalarExpr, axis: Axis, leader: Axis) -> ScalarExpr:
        assert self._stage is not None
        operand, address = load.data
        pitch = self._stage.strides[-2]
        places = [row % self.kept * pitch for row in self._rows(scalars, load, axis)]
        at = scalars.to_index(self._table(scalars, "int32", places, leader))
        return scalars.load(operand, address - self._row(scalars, address, axis) + at, load.dtype)

    def _known(self, scalars: ScalarBuilder, root: ScalarExpr, axis: Axis) -> dict[int, ScalarExpr]:
        """What follows from the position along `axis` alone, by the id of what it takes the place of."""
        assert axis.last is not None
        values: dict[int, ScalarExpr] = {}
        for name in _run_time_names(scalars, root):
            scalar = scalars.run_time_indices[name]
            if scalar.op != "load" and scalars.depends_on(scalar, axis) and _is_known(scalars, scalar, axis):
                points = [int(value) for value in _values(scalars, scalar, axis.last + 1)]
                scalars.run_time_indices[name] = self._table(scalars, "int32", points, axis)
        pending = [root]
        while pending:
            node = pending.pop()
            if id(node) in values or not scalars.depends_on(node, axis):
                continue
            if node.dtype == "float32" and _is_known(scalars, node, axis):
                numbers = _values(scalars, node, axis.last + 1)
                values[id(node)] = self._table(scalars, "float32", numbers, axis)
            else:
                pending.extend(node.args)
        return values

    def _table(self, scalars: ScalarBuilder, dtype: str, values: Sequence[float], axis: Axis) -> ScalarExpr:
        key = c_type(dtype), tuple(c_literal(value, dtype) for value in values)
        return scalars.load(self.numbers.setdefault(key, self._first + len(self.numbers)), Index.of(axis), dtype)


def _run_time_names(scalars: ScalarBuilder, root: ScalarExpr) -> list[str]:
    """The indices read at run time that a value is computed from, in order of their making."""
    found: set[str] = set()
    pending = [root]
    while pending:
        names = {name for node in walk(pending.pop()) for index in indices_of(node) for name in index.run_time_names()}
        pending.extend(scalars.run_time_indices[name] for name in names - found)
        found |= names
    return [name for name in scalars.run_time_indices if name in found]


def _varying(scalars: ScalarBuilder, address: Index, axis: Axis) -> Index:
    """What of an address varies along the axis."""
    return Index(tuple(term for term in address.terms if scalars.index_depends_on(Index((term,)), axis)))


def _is_known(scalars: ScalarBuilder, root: ScalarExpr, axis: Axis) -> bool:
    """Whether a value follows from the position along the axis alone."""
    return all(
        _has_value(node) and all(_is_known_index(scalars, index, axis) for index in indices_of(node))
        for node in walk(root)
    )


def _is_known_index(scalars: ScalarBuilder, index: Index, axis: Axis) -> bool:
    named = [scalars.run_time_indices[name] for name in index.run_time_names()]
    return index.axes() <= {axis} and all(_is_known(scalars, scalar, axis) for scalar in named)


def _has_value(node: ScalarExpr) -> bool:
    if node.op in ("unary", "binary"):
        return node.data in (_UNARY if node.op == "unary" else _BINARY) and node.dtype != "bool"
    return node.op in ("const", "index", "range", "select")


def _values(scalars: ScalarBuilder, root: ScalarExpr, count: int) -> list[float]:
    """The values at the first positions, in double precision."""
    values: dict[int, list[float]] = {}
    for node in walk(root):
        args = [values[id(arg)] for arg in node.args]
        values[id(node)] = _applied(scalars, node, args, count)
    return values[id(root)]


def _applied(scalars: ScalarBuilder, node: ScalarExpr, args: Sequence[Sequence[float]], count: int) -> list[float]:
    if node.op == "const":
        return [float(node.data) if node.dtype.startswith("float") else int(node.data)] * count
    if node.op == "index":
        return [*_numbers(scalars, node.data, count)]
    if node.op == "range":
        places = zip(*(_numbers(scalars, each, count) for each in node.data))
        return [begin <= index < end for index, begin, end in places]
    if node.op == "select":
        return [yes if chosen else no for chosen, yes, no in zip(*args)]
    return [*map(_UNARY[node.data] if node.op == "unary" else _BINARY[node.data], *args)]


def _numbers(scalars: ScalarBuilder, index: Index, count: int) -> list[int]:
    """The values of an index at the first positions."""
    totals = [0] * count
    for monomial, coefficient in index.terms:
        products = [coefficient] * count
        for atom in monomial:
            products = [*map(mul, products, _atom_numbers(scalars, atom, count))]
        totals = [*map(add, totals, products)]
    return totals


def _atom_numbers(scalars: ScalarBuilder, atom: Atom, count: int) -> Sequence[int]:
    if isinstance(atom, Quotient):
        return [number // atom.divisor for number in _numbers(scalars, atom.value, count)]
    if isinstance(atom, Remainder):
        return [number % atom.divisor for number in _numbers(scalars, atom.value, count)]
    if isinstance(atom, Opaque):
        return [int(value) for value in _values(scalars, scalars.run_time_indices[atom.text], count)]
    return range(count)
