"""Reductions: sums, extrema and their positions over any dimensions; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.lower.emit import Emitter, c_type, is_vectorizable
from relaybuild.lower.index import Axis, Index, IndexLike, delinearize
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, indices_of, walk
from relaybuild.lower.templates.body import Body, store
from relaybuild.lower.templates.vectors import column_groups, column_runs, each_vector, tail_mask

GROUP = 4
"""Vectors of outputs that are reduced together: the runs that are read are longer than a cache line."""

ROWS = 8
"""Rows that are combined in registers before their result is added to what is kept of the rows before."""

RUN_BYTES = 8192
"""Of what is kept of the rows before: a small part of the nearest cache."""

Element: TypeAlias = Callable[[ScalarBuilder, Sequence[IndexLike], Sequence[IndexLike]], ScalarExpr]
"""The value reduced at (index of the output, index within the reduced dimensions)."""

_INITIAL = {"sum": "0", "prod": "1", "max": "-INFINITY", "min": "INFINITY", "any": "0", "all": "1"}
_LEAST = {f"int{bits}": f"INT{bits}_MIN" for bits in (8, 16, 32, 64)}
_LARGEST = {f"{kind}{bits}": f"{kind.upper()}{bits}_MAX" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True)
class Reduction:
    """`combine` is sum, prod, max, min, any or all over `extents`; `dtype` is that of the elements."""

    combine: str
    extents: tuple[int, ...]
    element: Element
    dtype: str = "float32"


def reduce_kernel(reduction: Reduction, body: Body, machine: Machine) -> Kernel:
    """The kernel. A unit is one output, or where the innermost dimension is kept, a group of neighbouring outputs; of
    wide rows of them, it is a vector."""
    builder = Builder()
    shape = body.output.layout.shape
    if _vector_along_outputs(reduction, body, machine):
        (_reduce_columns if _reads_far(reduction, machine, shape) else _reduce_outputs)(
            builder, reduction, body, machine, shape
        )
    elif _narrow_outputs(reduction, body, machine):
        _reduce_narrow(builder, reduction, body, shape)
    else:
        _reduce_rows(builder, reduction, body, machine, shape)
    return body.kernel(builder.body, machine.lanes)


def _reads_far(reduction: Reduction, machine: Machine, shape: Sequence[int]) -> bool:
    """Whether rows are wide, and so many that they do not lie near: the order in which they are read counts."""
    rows = prod(reduction.extents)
    return shape[-1] >= 2 * GROUP * machine.lanes and rows > 1 and 16 * rows * prod(shape) > machine.l2_bytes


def _vector_along_outputs(reduction: Reduction, body: Body, machine: Machine) -> bool:
    shape = body.output.layout.shape
    if machine.lanes == 1 or not shape or shape[-1] < machine.lanes or reduction.dtype != "float32":
        return False
    lane = Axis("lane", machine.lanes - 1)
    index = [Index.of(Axis(f"o{n}", extent - 1)) for n, extent in enumerate(shape[:-1])]
    index.append(Index.of(Axis("o", shape[-1] - machine.lanes)) + Index.of(lane))
    scalars = ScalarBuilder()
    root = reduction.element(scalars, index, _reduce_axes(reduction))
    unit = _unit_stride(root, lane)
    finish = ScalarBuilder()
    end = body.rule(finish, index, finish.anchor("float32"))
    return unit and is_vectorizable(root, lane, scalars) and is_vectorizable(end, lane, finish)


def _reduce_axes(reduction: Reduction) -> list[Index]:
    return [Index.of(Axis(f"r{n}", extent - 1)) for n, extent in enumerate(reduction.extents)]


def _unit_stride(root: ScalarExpr, axis: Axis) -> bool:
    """Whether some load moves by one element along `axis` and none by more."""
    found = [i.coefficient(axis) for node in walk(root) if node.op == "load" for i in indices_of(node)]
    return 1 in found and all(coefficient in (0, 1) for coefficient in found)


def _narrow_outputs(reduction: Reduction, body: Body, machine: Machine) -> bool:
    """Whether the innermost dimension is kept and is shorter than a vector, so that its elements are neighbours."""
    shape = body.output.layout.shape
    if not shape or not 1 < shape[-1] < max(machine.lanes, 2) or not reduction.extents:
        return False
    column = Axis("o", shape[-1] - 1)
    index = [*(Index.of(Axis(f"o{n}", extent - 1)) for n, extent in enumerate(shape[:-1])), Index.of(column)]
    return _unit_stride(reduction.element(ScalarBuilder(), index, _reduce_axes(reduction)), column)


def _reduce_narrow(builder: Builder, reduction: Reduction, body: Body, shape: Sequence[int]) -> None:
    """All columns at once, in an array the compiler makes vectors of."""
    with builder.share(prod(shape[:-1])) as unit:
        counters = [builder.let_index("o", part) for part in delinearize(unit, shape[:-1])]
        total = builder.declare(c_type(reduction.dtype), "total", (shape[-1],))
        with builder.loop("x", shape[-1]) as x:
            builder.assign(f"{total}[{x}]", _initial(reduction))
        with _reduce_loops(builder, reduction.extents) as position, builder.loop("x", shape[-1]) as x:
            _accumulate_scalar(builder, reduction, body, [*counters, x], position, f"{total}[{x}]")
        with builder.loop("x", shape[-1]) as x:
            store(builder, body, [*counters, x], f"{total}[{x}]", 1, None)


def _reduce_outputs(builder: Builder, reduction: Reduction, body: Body, machine: Machine, shape: Sequence[int]) -> None:
    groups = column_groups(shape[-1], machine.lanes, GROUP)
    outer = shape[:-1]
    with builder.share(prod(outer) * groups.count) as unit:
        number = unit % groups.count
        counters = [builder.let_index("o", part) for part in delinearize(unit // groups.count, outer)]
        for group in groups.split(builder, number):
            with group as (start, offsets):
                _vector_outputs(builder, reduction, body, machine.lanes, counters, start, offsets)


def _reduce_columns(builder: Builder, reduction: Reduction, body: Body, machine: Machine, shape: Sequence[int]) -> None:
    """Runs of neighbouring outputs, as long as a thread's share and the cache allow, so that rows are read in order.

    Each `ROWS` rows are combined in a tree; the results of runs are kept in memory.
    """
    lanes, outer, extents = machine.lanes, shape[:-1], reduction.extents
    with column_runs(builder, prod(outer), shape[-1], lanes, RUN_BYTES // (4 * lanes)) as run:
        counters = [builder.let_index("o", part) for part in delinearize(run.row, outer)]

        def combined(column: Index, position: Sequence[Index], rows: int) -> str:
            index = [*counters, column]
            values = [
                _vector_value(
                    builder, reduction, body, lanes, index, [*position[:-1], position[-1] + row], along_output=True
                )
                for row in range(rows)
            ]
            return _tree(builder, reduction.combine, values)

        def finish(column: Index, value: str) -> None:
            lane = builder.axis("lane", lanes)
            store(builder, body, [*counters, column + Index.of(lane)], value, lanes, lane)

        if prod(extents) == extents[-1] <= ROWS:
            with run.each(builder) as (_, column):
                finish(column, combined(column, [*(Index.of(0) for _ in extents)], extents[-1]))
            return
        kept = builder.declare("rb_v", "kept", (run.most,))
        with run.each(builder) as (number, _):
            builder.assign(f"{kept}[{number}]", f"rb_splat({_initial(reduction)})")

        def accumulate(position: Sequence[Index], rows: int) -> None:
            with run.each(builder) as (number, column):
                target = f"{kept}[{number}]"
                value = combined(column, position, rows)
                builder.assign(target, _combine(reduction.combine, target, value, vector=True))

        whole, rest = divmod(extents[-1], ROWS)
        with _reduce_loops(builder, extents[:-1]) as position:
            if whole:
                with builder.loop("k", whole * ROWS, step=ROWS, last=(whole - 1) * ROWS) as k:
                    accumulate([*position, k], ROWS)
            if rest:
                accumulate([*position, Index.of(whole * ROWS)], rest)
        with run.each(builder) as (number, column):
            finish(column, f"{kept}[{number}]")


def _tree(builder: Builder, combine: str, values: Sequence[str]) -> str:
    """The name of all values combined, neighbours first."""
    names = [builder.let("rb_v", "x", value) for value in values]
    while len(names) > 1:
        pairs = [names[start : start + 2] for start in range(0, len(names), 2)]
        names = [
            builder.let("rb_v", "x", _combine(combine, *pair, vector=True)) if len(pair) == 2 else pair[0]
            for pair in pairs
        ]
    return names[0]


def _vector_outputs(
    builder: Builder,
    reduction: Reduction,
    body: Body,
    lanes: int,
    counters: Sequence[Index],
    start: Index,
    offsets: Sequence[int],
) -> None:
    """Outputs in vectors at `offsets` from `start`; few of them have several accumulators each."""
    parts = max(1, min(GROUP // len(offsets), reduction.extents[-1] if reduction.extents else 1))
    acc = builder.declare("rb_v", "acc", (parts, len(offsets)))
    with builder.loop("i", parts, unroll=True) as i, builder.loop("j", len(offsets), unroll=True) as j:
        builder.assign(f"{acc}[{i}][{j}]", f"rb_splat({_initial(reduction)})")

    def accumulate(position: Sequence[IndexLike], part: Index) -> None:
        for number, offset in enumerate(offsets):
            index = [*counters, start + offset]
            value = _vector_value(builder, reduction, body, lanes, index, position, along_output=True)
            target = f"{acc}[{part}][{number}]"
            builder.assign(target, _combine(reduction.combine, target, value, vector=True))

    with _reduce_loops(builder, reduction.extents[:-1]) as position:
        if reduction.extents:
            each_vector(builder, reduction.extents[-1], 1, parts, lambda k, i: accumulate([*position, k], i))
        else:
            accumulate([], Index.of(0))
    for number, offset in enumerate(offsets):
        total = f"{acc}[0][{number}]"
        with builder.loop("i", parts, 1, unroll=True) as i:
            builder.assign(total, _combine(reduction.combine, total, f"{acc}[{i}][{number}]", vector=True))
        lane = builder.axis("lane", lanes)
        store(builder, body, [*counters, start + offset + Index.of(lane)], total, lanes, lane)


def _vector_value(
    builder: Builder,
    reduction: Reduction,
    body: Body,
    lanes: int,
    index: Sequence[IndexLike],
    position: Sequence[IndexLike],
    *,
    along_output: bool,
) -> str:
    """The vector of elements from (`index`, `position`) along the innermost dimension of the one or the other."""
    lane = builder.axis("lane", lanes)
    if along_output:
        index = [*index[:-1], Index.of(index[-1]) + Index.of(lane)]
    else:
        position = [*position[:-1], Index.of(position[-1]) + Index.of(lane)]
    scalars = ScalarBuilder(builder.name)
    root = reduction.element(scalars, index, position)
    return Emitter(builder, body.pointers, scalars, lanes, lane).emit(root)


class _reduce_loops:
    """The loops over the reduced dimensions, as a context that gives their variables."""

    def __init__(self, builder: Builder, extents: Sequence[int]) -> None:
        self._builder = builder
        self._extents = extents
        self._stack = ExitStack()

    def __enter__(self) -> list[Index]:
        return [self._stack.enter_context(self._builder.loop("k", extent)) for extent in self._extents]

    def __exit__(self, *details: object) -> None:
        self._stack.close()


def _reduce_rows(builder: Builder, reduction: Reduction, body: Body, machine: Machine, shape: Sequence[int]) -> None:
    """One output at a time; vectors along the innermost reduced dimension where its elements are neighbours."""
    with builder.share(prod(shape)) as unit:
        index = [builder.let_index("o", part) for part in delinearize(unit, shape)]
        if _vector_along_row(reduction, machine, index):
            _vector_row(builder, reduction, body, machine, index)
        else:
            _scalar_output(builder, reduction, body, index)


def _vector_along_row(reduction: Reduction, machine: Machine, index: Sequence[Index]) -> bool:
    extents = reduction.extents
    if machine.lanes == 1 or not extents or extents[-1] < machine.lanes or reduction.dtype != "float32":
        return False
    lane = Axis("lane", machine.lanes - 1)
    position = _reduce_axes(reduction)
    position[-1] = Index.of(Axis("k", extents[-1] - machine.lanes)) + Index.of(lane)
    scalars = ScalarBuilder()
    root = reduction.element(scalars, index, position)
    return _unit_stride(root, lane) and is_vectorizable(root, lane, scalars)


def _vector_row(builder: Builder, reduction: Reduction, body: Body, machine: Machine, index: Sequence[Index]) -> None:
    """Vectors along the row in several accumulators; the last, ragged vector overlaps the one before, masked."""
    lanes = machine.lanes
    extents = reduction.extents
    count, rest = divmod(extents[-1], lanes)
    parts = min(4, count)
    acc = builder.declare("rb_v", "acc", (parts,))
    with builder.loop("i", parts, unroll=True) as i:
        builder.assign(f"{acc}[{i}]", f"rb_splat({_initial(reduction)})")

    def accumulate(position: Sequence[IndexLike], part: Index, mask: str | None) -> None:
        value = _vector_value(builder, reduction, body, lanes, index, position, along_output=False)
        if mask is not None:
            value = f"rb_select({mask}, {value}, rb_splat({_initial(reduction)}))"
        target = f"{acc}[{part}]"
        builder.assign(target, _combine(reduction.combine, target, value, vector=True))

    with _reduce_loops(builder, extents[:-1]) as position:
        each_vector(builder, count, lanes, parts, lambda k, i: accumulate([*position, k], i, None))
        if rest:
            accumulate([*position, Index.of(extents[-1] - lanes)], Index.of(0), tail_mask(lanes, rest))
    total = f"{acc}[0]"
    with builder.loop("i", parts, 1, unroll=True) as i:
        builder.assign(total, _combine(reduction.combine, total, f"{acc}[{i}]", vector=True))
    store(builder, body, index, f"rb_{reduction.combine}_lanes({total})", 1, None)


def _scalar_output(builder: Builder, reduction: Reduction, body: Body, index: Sequence[Index]) -> None:
    total = builder.declare(c_type(reduction.dtype), "total")
    builder.assign(total, _initial(reduction))
    with _reduce_loops(builder, reduction.extents) as position:
        _accumulate_scalar(builder, reduction, body, index, position, total)
    store(builder, body, index, total, 1, None)


def _accumulate_scalar(
    builder: Builder,
    reduction: Reduction,
    body: Body,
    index: Sequence[Index],
    position: Sequence[Index],
    total: str,
) -> None:
    scalars = ScalarBuilder(builder.name)
    root = reduction.element(scalars, index, position)
    value = Emitter(builder, body.pointers, scalars).emit(root)
    builder.assign(total, _combine(reduction.combine, total, value, vector=False, dtype=reduction.dtype))


def _initial(reduction: Reduction) -> str:
    if reduction.combine in ("max", "min") and not reduction.dtype.startswith("float"):
        table = _LEAST if reduction.combine == "max" else _LARGEST
        return table.get(reduction.dtype, "0")
    return _INITIAL[reduction.combine]


def combined(combine: str, total: str, value: str, dtype: str) -> str:
    """The C text of a scalar combined with another by a reduction's name."""
    return _combine(combine, total, value, vector=False, dtype=dtype)


def _combine(combine: str, total: str, value: str, *, vector: bool, dtype: str = "float32") -> str:
    if combine in ("sum", "prod"):
        operator = "+" if combine == "sum" else "*"
        if dtype in ("int32", "int64"):
            return f"({c_type(dtype)})((u{c_type(dtype)}){total} {operator} (u{c_type(dtype)}){value})"
        return f"{total} {operator} {value}"
    if combine in ("any", "all"):
        return f"{total} {'||' if combine == 'any' else '&&'} {value}"
    if vector:
        return f"rb_{combine}({total}, {value})"
    if dtype.startswith("float"):
        return f"rb_{combine}_{'f64' if dtype == 'float64' else 'f32'}({total}, {value})"
    return f"{value} {'>' if combine == 'max' else '<'} {total} ? {value} : {total}"


def arg_reduce_kernel(reduction: Reduction, body: Body, machine: Machine, *, last_index: bool) -> Kernel:
    """The position of the extremum along one dimension, the first or the last of equal ones; a NaN is the extremum."""
    builder = Builder()
    shape = body.output.layout.shape
    with builder.share(prod(shape)) as unit:
        index = [builder.let_index("o", part) for part in delinearize(unit, shape)]
        best = builder.declare(c_type(reduction.dtype), "best")
        at = builder.declare(c_type(body.output.dtype), "at_best")
        with builder.loop("k", reduction.extents[0]) as k:
            scalars = ScalarBuilder(builder.name)
            root = reduction.element(scalars, index, [k])
            value = builder.let(c_type(reduction.dtype), "value", Emitter(builder, body.pointers, scalars).emit(root))
            compare = {"max": ">", "min": "<"}[reduction.combine] + ("=" if last_index else "")
            nan = f" || ({value} != {value} && {best} == {best})" if reduction.dtype.startswith("float") else ""
            condition = "1" if k.constant == 0 else f"{k} == 0 || {value} {compare} {best}{nan}"
            with builder.branch(condition):
                builder.assign(best, value)
                builder.assign(at, f"({c_type(body.output.dtype)}){k.as_factor()}")
        builder.assign(f"out[{body.output.layout.address(index)}]", at)
    return body.kernel(builder.body, machine.lanes)
