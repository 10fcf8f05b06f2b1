"""Softmax and its logarithm along one dimension: three passes over a row, or over a group of columns, and two where
columns lie far; knows nothing of the model.

The first pass finds the maximum, the second the exponentials and their sum, the third the result. The exponentials are
kept in the output in between, or in scratch memory where the output's vectors are not contiguous.

What is subtracted from the values need not be the maximum: it cancels, as long as no exponential overflows and the
greatest are not lost. A sample of a column is read faster than all of it, and mostly tells enough.

A NaN makes the sum one, and so all results: the maximum need not be one too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from relaybuild.dataclass import dataclass
from relaybuild.lower.emit import Emitter, is_vectorizable
from relaybuild.lower.index import Axis, Index, IndexLike, delinearize
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, walk
from relaybuild.lower.templates.body import Body, store
from relaybuild.lower.templates.vectors import ColumnRun, column_groups, column_runs, each_vector, tail_mask

GROUP = 8
"""Vectors of columns that are walked together: the runs that are read are longer than a cache line."""


ROWS = 2
"""Rows the sums of whose exponentials are found in registers before they join what is kept of the rows before."""

AHEAD = 8
"""Rows by which what is read and written is fetched ahead."""

RUN_BYTES = 4096
"""Of the sums of a run of columns, and as much of what is subtracted: a part of the nearest cache."""

SAMPLED = 32
"""Of so many rows one is looked at to find what to subtract from a column."""

EXCESS = 16
"""How much greater a value may be than what is subtracted: the difference is rounded, which its exponential shows, by
less than 2^-20."""

LOWEST = "rb_splat(-3.402823466e+38f)"
"""The least finite number: unlike -infinity, it can be subtracted from -infinity."""


@dataclass(frozen=True)
class Softmax:
    """exp(x - max) / sum, or its logarithm, along dimension `axis`; `element` gives x at an index of the output."""

    axis: int
    element: Callable[[ScalarBuilder, Sequence[IndexLike]], ScalarExpr]
    log: bool = False


def softmax_kernel(softmax: Softmax, body: Body, machine: Machine) -> Kernel:
    """The kernel over a float32 output.

    Vectors run along the reduced dimension where it is innermost, else along the innermost one.
    """
    builder = Builder()
    shape = body.output.layout.shape
    writer = _Writer(builder, softmax, body, machine.lanes, 4 * prod(shape) > machine.l2_bytes)
    by_row = softmax.axis == len(shape) - 1
    if not writer.has_vectors:
        _scalar_units(writer, shape)
    elif by_row:
        with builder.share(prod(shape[:-1])) as unit:
            before = [builder.let_index("o", part) for part in delinearize(unit, shape[:-1])]
            (_short_row if shape[-1] < machine.lanes else _row)(writer, before, shape[-1])
    elif writer.reads_far(machine):
        _column_runs(writer, shape)
        return body.kernel(builder.body, machine.lanes)
    else:
        _column_units(writer, shape)
    return body.kernel(builder.body, machine.lanes, writer.scratch_bytes)


@dataclass(frozen=True)
class _Writer:
    """What all passes share: where statements go, the values reduced, and where exponentials are kept; `is_far` tells
    that the values lie beyond the second-level cache."""

    builder: Builder
    softmax: Softmax
    body: Body
    lanes: int
    is_far: bool

    @property
    def has_vectors(self) -> bool:
        """Whether rows, or columns side by side, are computed by vectors."""
        width = self.body.output.layout.shape[-1]
        if self.lanes == 1 or width < self.lanes:
            return self.lanes > 1
        lane, index = self._probe()
        scalars = ScalarBuilder()
        return is_vectorizable(self.softmax.element(scalars, index), lane, scalars)

    def _probe(self) -> tuple[Axis, list[Index]]:
        shape = self.body.output.layout.shape
        lane = Axis("lane", self.lanes - 1)
        index = [Index.of(Axis(f"p{number}", extent - 1)) for number, extent in enumerate(shape)]
        index[-1] = Index.of(Axis("q", max(0, shape[-1] - self.lanes))) + Index.of(lane)
        return lane, index

    @property
    def _in_output(self) -> bool:
        lane, index = self._probe()
        return self.body.output.dtype == "float32" and self.body.output.layout.address(index).coefficient(lane) == 1

    def reads_far(self, machine: Machine) -> bool:
        """Whether columns are many and long, so that a run of them, with its exponentials, does not lie near: the order
        in which rows are read counts."""
        shape = self.body.output.layout.shape
        width = min(shape[-1], RUN_BYTES // 4)
        several = shape[-1] >= 2 * GROUP * self.lanes
        return several and self._in_output and 8 * width * shape[self.softmax.axis] > machine.l2_bytes

    @property
    def scratch_bytes(self) -> int:
        """A thread's room for the exponentials of a row, or of a group of columns."""
        if self._in_output or self.softmax.log:
            return 0
        shape = self.body.output.layout.shape
        columns = 1 if self.softmax.axis == len(shape) - 1 else min(shape[-1], (2 * GROUP - 1) * self.lanes)
        return 4 * shape[self.softmax.axis] * columns

    def kept(self, index: Sequence[IndexLike], place: Index) -> str:
        """Where the exponential at `index` is kept; `place` is its position among those of the row or the group."""
        if self._in_output:
            return f"(out + {self.body.output.layout.address(index)})"
        return f"((float *)scratch + {place})"

    def vector(self, index: Sequence[IndexLike]) -> str:
        """The vector of values from `index` along its last dimension."""
        lane = self.builder.axis("lane", self.lanes)
        scalars = ScalarBuilder(self.builder.name)
        root = self.softmax.element(scalars, [*index[:-1], Index.of(index[-1]) + Index.of(lane)])
        text = Emitter(self.builder, self.body.pointers, scalars, self.lanes, lane).emit(root)
        return text if scalars.depends_on(root, lane) else f"rb_splat({text})"

    def fetch(self, index: Sequence[IndexLike], axis: Axis | None, distance: int) -> None:
        """Bring near what the vector of values `distance` further along `axis` is computed from (None: along the last
        dimension), where it is far."""
        lane = Axis("lane", self.lanes - 1)
        scalars = ScalarBuilder()
        root = self.softmax.element(scalars, [*index[:-1], Index.of(index[-1]) + Index.of(lane)])
        loads = [node for node in walk(root) if node.op == "load" and node.data[1].coefficient(lane) == 1]
        for operand, address in (node.data for node in loads if self.is_far and not scalars.run_time_indices):
            step = address.coefficient(axis or lane)
            if step:
                place = address.substitute({lane: 0}) + step * distance
                self.builder.evaluate(f"RB_PREFETCH({self.body.pointers[operand]} + {place})")

    def fetch_kept(self, index: Sequence[IndexLike], axis: Axis | None, distance: int) -> None:
        """The same for the place where the exponential is kept."""
        step = self.body.output.layout.address(index).coefficient(axis) if axis is not None else 0
        if self.is_far and self._in_output and step:
            self.builder.evaluate(f"RB_PREFETCH({self.kept(index, Index.of(0))} + {step * distance})")

    def scalar(self, index: Sequence[IndexLike]) -> str:
        """The value at `index`."""
        scalars = ScalarBuilder(self.builder.name)
        return Emitter(self.builder, self.body.pointers, scalars).emit(self.softmax.element(scalars, index))

    def store_vector(self, index: Sequence[IndexLike], result: str) -> None:
        """Store the vector of results from `index`."""
        lane = self.builder.axis("lane", self.lanes)
        store(
            self.builder,
            self.body,
            [*index[:-1], Index.of(index[-1]) + Index.of(lane)],
            self.builder.let("rb_v", "y", result),
            self.lanes,
            lane,
        )

    def store_scalar(self, index: Sequence[IndexLike], result: str) -> None:
        """Store the result at `index`."""
        store(self.builder, self.body, index, f"({result})", 1, None)

    def start(self, ctype: str, stem: str, value: str) -> str:
        """A variable with its first value."""
        name = self.builder.declare(ctype, stem)
        self.builder.assign(name, value)
        return name


def _axis_of(position: Index) -> Axis | None:
    """The variable that a position is."""
    return next((axis for axis in position.axes() if Index.of(axis) == position), None)


def _row(writer: _Writer, before: Sequence[Index], width: int) -> None:
    """A row of a vector or more; its last, ragged vector overlaps the one before.

    The next row is fetched while the exponentials are computed.
    """
    builder, lanes, log = writer.builder, writer.lanes, writer.softmax.log
    count, rest = divmod(width, lanes)
    last = [*before, Index.of(width - lanes)]
    top = _row_maximum(writer, before, count, rest)

    def exponential(index: Sequence[IndexLike]) -> str:
        return builder.let("rb_v", "e", f"rb_exp_falling({writer.vector(index)} - rb_splat({top}))")

    def sum_up(v: Index, _: Index) -> None:
        e = exponential([*before, v])
        writer.fetch([*before, v], _axis_of(before[-1]) if before else None, 1 if before else width)
        builder.assign(total, f"{total} + {e}")
        if not log:
            builder.evaluate(f"rb_store({writer.kept([*before, v], v)}, {e})")

    total = writer.start("rb_v", "total", "rb_splat(0.0f)")
    each_vector(builder, count, lanes, 1, sum_up)
    tail = exponential(last) if rest else ""
    if rest:
        builder.assign(total, f"{total} + rb_and({tail}, {tail_mask(lanes, rest)})")
    scale = _scale(writer, f"rb_sum_lanes({total})", vector=False)

    def finish(v: Index, _: Index) -> None:
        index = [*before, v]
        value = f"{writer.vector(index)} - rb_splat({top})" if log else f"rb_load({writer.kept(index, v)})"
        writer.store_vector(index, _result(writer, value, f"rb_splat({scale})"))

    each_vector(builder, count, lanes, 1, finish)
    if rest:
        value = f"{writer.vector(last)} - rb_splat({top})" if log else tail
        writer.store_vector(last, _result(writer, value, f"rb_splat({scale})"))


def _row_maximum(writer: _Writer, before: Sequence[Index], count: int, rest: int) -> str:
    """The name of the greatest value of a row."""
    builder, lanes = writer.builder, writer.lanes
    parts = min(4, count)
    best = builder.declare("rb_v", "best", (parts,))
    with builder.loop("i", parts, unroll=True) as i:
        builder.assign(f"{best}[{i}]", "rb_splat(-INFINITY)")

    def widen(v: Index, part: Index) -> None:
        builder.assign(f"{best}[{part}]", f"rb_larger({best}[{part}], {writer.vector([*before, v])})")

    each_vector(builder, count, lanes, parts, widen)
    if rest:
        widen(Index.of(count * lanes + rest - lanes), Index.of(0))
    with builder.loop("i", parts, 1, unroll=True) as i:
        builder.assign(f"{best}[0]", f"rb_larger({best}[0], {best}[{i}])")
    return builder.let("float", "top", f"rb_max_lanes({best}[0])")


def _short_row(writer: _Writer, before: Sequence[Index], width: int) -> None:
    """A row shorter than a vector, copied to one whose pad lanes repeat its first value."""
    builder, lanes = writer.builder, writer.lanes
    row = builder.declare("float", "row", (lanes,))
    with builder.loop("x", width, unroll=True) as x:
        builder.assign(f"{row}[{x}]", writer.scalar([*before, x]))
    with builder.loop("x", lanes, width, unroll=True) as x:
        builder.assign(f"{row}[{x}]", f"{row}[0]")
    values = builder.let("rb_v", "values", f"rb_load({row})")
    shifted = builder.let("rb_v", "shifted", f"{values} - rb_splat(rb_max_lanes({values}))")
    e = builder.let("rb_v", "e", f"rb_exp_falling({shifted})")
    scale = _scale(writer, f"rb_sum_lanes(rb_and({e}, ~{tail_mask(lanes, lanes - width)}))", vector=False)
    value = shifted if writer.softmax.log else e
    builder.evaluate(f"rb_store({row}, {_result(writer, value, f'rb_splat({scale})')})")
    with builder.loop("x", width, unroll=True) as x:
        writer.store_scalar([*before, x], f"{row}[{x}]")


def _scale(writer: _Writer, total: str, *, vector: bool) -> str:
    """What the third pass applies: the reciprocal of the sum, or its logarithm."""
    ctype, log = ("rb_v", "rb_log") if vector else ("float", "logf")
    return writer.builder.let(ctype, "scale", f"{log}({total})" if writer.softmax.log else f"1.0f / {total}")


def _result(writer: _Writer, value: str, scale: str) -> str:
    return f"{value} {'-' if writer.softmax.log else '*'} {scale}"


def _column_units(writer: _Writer, shape: Sequence[int]) -> None:
    """Units are groups of neighbouring columns."""
    axis, width = writer.softmax.axis, shape[-1]
    groups = column_groups(width, writer.lanes, GROUP) if width >= writer.lanes else None
    outer_shape = [*shape[:axis], *shape[axis + 1 : -1]]
    builder = writer.builder
    with builder.share(prod(outer_shape) * (groups.count if groups else 1)) as unit:
        number = unit % groups.count if groups else Index.of(0)
        outer_unit = unit // groups.count if groups else unit
        outer = [builder.let_index("o", part) for part in delinearize(outer_unit, outer_shape)]
        place = outer[:axis], outer[axis:]
        if groups is None:
            _narrow_columns(writer, *place, width)
            return
        for group in groups.split(builder, number):
            with group as (start, offsets):
                _column_group(writer, *place, start, offsets)


def _column_group(
    writer: _Writer, before: Sequence[Index], after: Sequence[Index], start: Index, offsets: Sequence[int]
) -> None:
    """Columns in vectors at `offsets` from `start`; the last may overlap the one before.

    The third pass reads all exponentials of a group before it writes any: the overlap would be scaled twice. The next
    group is fetched while exponentials are computed, and the rows in which they are to be kept.
    """
    builder, log = writer.builder, writer.softmax.log
    extent = writer.body.output.layout.shape[writer.softmax.axis]
    room = len(offsets) * writer.lanes

    def at(k: Index, offset: int) -> list[IndexLike]:
        return [*before, k, *after, start + offset]

    best = [writer.start("rb_v", "best", "rb_splat(-INFINITY)") for _ in offsets]
    with builder.loop("k", extent) as k:
        for name, offset in zip(best, offsets):
            builder.assign(name, f"rb_larger({name}, {writer.vector(at(k, offset))})")
    total = [writer.start("rb_v", "total", "rb_splat(0.0f)") for _ in offsets]
    with builder.loop("k", extent) as k:
        for number, offset in enumerate(offsets):
            e = builder.let("rb_v", "e", f"rb_exp_falling({writer.vector(at(k, offset))} - {best[number]})")
            builder.assign(total[number], f"{total[number]} + {e}")
            writer.fetch(at(k, offset), None, GROUP * writer.lanes)
            if not log:
                writer.fetch_kept(at(k, offset), _axis_of(k), AHEAD)
                builder.evaluate(f"rb_store({writer.kept(at(k, offset), k * room + offset)}, {e})")
    scale = [_scale(writer, name, vector=True) for name in total]
    with builder.loop("k", extent) as k:
        values = [
            builder.let("rb_v", "e", f"{writer.vector(at(k, offset))} - {name}")
            if log
            else builder.let("rb_v", "e", f"rb_load({writer.kept(at(k, offset), k * room + offset)})")
            for name, offset in zip(best, offsets)
        ]
        for number, offset in enumerate(offsets):
            writer.store_vector(at(k, offset), _result(writer, values[number], scale[number]))


def _column_runs(writer: _Writer, shape: Sequence[int]) -> None:
    """Runs of columns, row by row, in a pass for exponentials and sums and one for results.

    What is subtracted is the greatest value of a sample of rows. A run that turns out to have values much greater is
    summed up again, less its maxima.
    """
    builder, axis, lanes = writer.builder, writer.softmax.axis, writer.lanes
    outer_shape = [*shape[:axis], *shape[axis + 1 : -1]]
    with column_runs(builder, prod(outer_shape), shape[-1], lanes, RUN_BYTES // (4 * lanes)) as run:
        outer = [builder.let_index("o", part) for part in delinearize(run.row, outer_shape)]

        def at(k: IndexLike, column: Index) -> list[IndexLike]:
            return [*outer[:axis], k, *outer[axis:], column]

        base, total = (builder.declare("rb_v", stem, (run.most,)) for stem in ("base", "total"))
        _run_maximum(writer, run, at, shape[axis], base, step=SAMPLED)
        excess = _sum_run(writer, run, at, shape[axis], base, total)
        with builder.branch(f"rb_max_lanes({excess}) > {EXCESS}.0f"):
            _run_maximum(writer, run, at, shape[axis], base, step=1)
            _sum_run(writer, run, at, shape[axis], base, total)
        with run.each(builder) as (number, _):
            builder.assign(f"{total}[{number}]", _scale(writer, f"{total}[{number}]", vector=True))
        with builder.loop("k", shape[axis]) as k:
            _finish_run(writer, run, lambda column: at(k, column), base, total)


Place = Callable[[IndexLike, Index], list[IndexLike]]
"""The index of the value in a row, at a column."""


def _run_maximum(writer: _Writer, run: ColumnRun, at: Place, extent: int, best: str, *, step: int) -> None:
    """The greatest values of each column in every row, or in one of `step`."""
    builder = writer.builder
    with run.each(builder) as (number, _):
        builder.assign(f"{best}[{number}]", LOWEST)
    last = (extent - 1) // step * step
    with builder.loop("k", extent, step=step, last=last) as k, run.each(builder) as (number, column):
        builder.assign(f"{best}[{number}]", f"rb_larger({best}[{number}], {writer.vector(at(k, column))})")


def _sum_run(writer: _Writer, run: ColumnRun, at: Place, extent: int, base: str, total: str) -> str:
    """Keep the exponentials of values less `base`, and add them up in `total`; returns a vector whose greatest lane is
    what values exceed `base` by."""
    builder = writer.builder
    excess = writer.start("rb_v", "excess", "rb_splat(0.0f)")
    with run.each(builder) as (number, _):
        builder.assign(f"{total}[{number}]", "rb_splat(0.0f)")

    def sum_up(k: Index, rows: int) -> None:
        with run.each(builder) as (number, column):
            less = builder.let("rb_v", "less", f"{base}[{number}]")
            added = writer.start("rb_v", "added", f"{total}[{number}]")
            for row in range(rows):
                place = at(k + row, column)
                x = builder.let("rb_v", "x", f"{writer.vector(place)} - {less}")
                builder.assign(excess, f"rb_larger({x}, {excess})")
                e = builder.let("rb_v", "e", f"rb_exp_falling({x})")
                builder.assign(added, f"{added} + {e}")
                writer.fetch(place, _axis_of(k), AHEAD)
                if not writer.softmax.log:
                    writer.fetch_kept(place, _axis_of(k), AHEAD)
                    builder.evaluate(f"rb_store({writer.kept(place, k)}, {e})")
            builder.assign(f"{total}[{number}]", added)

    _by_rows(builder, extent, sum_up)
    return excess


def _by_rows(builder: Builder, extent: int, step: Callable[[Index, int], None]) -> None:
    """`step(first, number)` for `ROWS` rows at a time, and for those that are left."""
    whole, rest = divmod(extent, ROWS)
    if whole:
        with builder.loop("k", whole * ROWS, step=ROWS, last=(whole - 1) * ROWS) as k:
            step(k, ROWS)
    if rest:
        step(Index.of(whole * ROWS), rest)


def _finish_run(writer: _Writer, run: ColumnRun, at: Callable[[Index], list[IndexLike]], base: str, scale: str) -> None:
    """One row of results. A ragged vector computes its exponentials anew: of those kept, some are overwritten."""
    builder, log = writer.builder, writer.softmax.log

    def put(number: Index, column: Index, *, anew: bool) -> None:
        place = at(column)
        value = f"{writer.vector(place)} - {base}[{number}]" if anew else f"rb_load({writer.kept(place, column)})"
        if anew and not log:
            value = f"rb_exp_falling({value})"
        writer.store_vector(place, _result(writer, value, f"{scale}[{number}]"))

    with run.each_whole(builder) as (number, column):
        put(number, column, anew=log)
    if run.is_ragged:
        with builder.branch(run.has_end):
            put(run.count - 1, Index.of(run.width - run.lanes), anew=True)


def _narrow_columns(writer: _Writer, before: Sequence[Index], after: Sequence[Index], width: int) -> None:
    """Columns fewer than lanes, each row of them copied to a vector whose pad lanes are zero."""
    builder, log = writer.builder, writer.softmax.log
    extent = writer.body.output.layout.shape[writer.softmax.axis]
    row = builder.declare("float", "row", (writer.lanes,))
    with builder.loop("x", writer.lanes, unroll=True) as x:
        builder.assign(f"{row}[{x}]", "0.0f")

    def load(k: Index) -> str:
        with builder.loop("x", width, unroll=True) as x:
            builder.assign(f"{row}[{x}]", writer.scalar([*before, k, *after, x]))
        return builder.let("rb_v", "values", f"rb_load({row})")

    best = writer.start("rb_v", "best", "rb_splat(-INFINITY)")
    with builder.loop("k", extent) as k:
        builder.assign(best, f"rb_larger({best}, {load(k)})")
    total = writer.start("rb_v", "total", "rb_splat(0.0f)")
    with builder.loop("k", extent) as k:
        builder.assign(total, f"{total} + rb_exp_falling({load(k)} - {best})")
    scale = _scale(writer, total, vector=True)
    result = builder.declare("float", "result", (writer.lanes,))
    with builder.loop("k", extent) as k:
        shifted = f"{load(k)} - {best}"
        builder.evaluate(
            f"rb_store({result}, {_result(writer, shifted if log else f'rb_exp_falling({shifted})', scale)})"
        )
        with builder.loop("x", width, unroll=True) as x:
            writer.store_scalar([*before, k, *after, x], f"{result}[{x}]")


def _scalar_units(writer: _Writer, shape: Sequence[int]) -> None:
    """One row or column at a time, element by element."""
    axis = writer.softmax.axis
    builder, log = writer.builder, writer.softmax.log
    outer_shape = [*shape[:axis], *shape[axis + 1 :]]
    with builder.share(prod(outer_shape)) as unit:
        outer = [builder.let_index("o", part) for part in delinearize(unit, outer_shape)]
        before, after = outer[:axis], outer[axis:]

        def at(k: Index) -> list[IndexLike]:
            return [*before, k, *after]

        best = writer.start("float", "best", "-INFINITY")
        with builder.loop("k", shape[axis]) as k:
            builder.assign(best, f"rb_max_f32({best}, {writer.scalar(at(k))})")
        total = writer.start("float", "total", "0.0f")
        with builder.loop("k", shape[axis]) as k:
            e = builder.let("float", "e", f"expf({writer.scalar(at(k))} - {best})")
            builder.assign(total, f"{total} + {e}")
            if not log:
                builder.assign(f"*{writer.kept(at(k), k)}", e)
        scale = _scale(writer, total, vector=False)
        with builder.loop("k", shape[axis]) as k:
            value = f"{writer.scalar(at(k))} - {best}" if log else f"*{writer.kept(at(k), k)}"
            writer.store_scalar(at(k), _result(writer, value, scale))
