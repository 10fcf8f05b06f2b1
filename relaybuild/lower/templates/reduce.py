"""Reductions: sums, extrema and their positions over any dimensions; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from relaybuild.lower.emit import Emitter, c_type, is_vectorizable
from relaybuild.lower.index import Axis, Index, IndexLike, delinearize
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, indices_of, walk
from relaybuild.lower.templates.body import Body, store

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
    """The kernel; each output is one unit, or each vector of outputs where the innermost dimension is kept."""
    builder = Builder()
    shape = body.output.layout.shape
    if _vector_along_outputs(reduction, body, machine):
        _reduce_outputs(builder, reduction, body, machine, shape)
    else:
        _reduce_rows(builder, reduction, body, machine, shape)
    return body.kernel(builder.body, machine.lanes)


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


def _reduce_outputs(builder: Builder, reduction: Reduction, body: Body, machine: Machine, shape: Sequence[int]) -> None:
    lanes = machine.lanes
    vectors = -(-shape[-1] // lanes)
    outer = shape[:-1]
    with builder.share(_product(outer) * vectors) as unit:
        vector = builder.let_index("v", unit % vectors)
        counters = [builder.let_index("o", part) for part in delinearize(unit // vectors, outer)]
        if shape[-1] % lanes == 0:
            _vector_output(builder, reduction, body, lanes, counters, vector)
            return
        with builder.branch(f"{vector} < {vectors - 1}") as branch:
            _vector_output(builder, reduction, body, lanes, counters, vector)
        with (
            builder.block(branch.otherwise),
            builder.loop("x", shape[-1], shape[-1] // lanes * lanes) as x,
        ):
            _scalar_output(builder, reduction, body, [*counters, x])


def _vector_output(
    builder: Builder, reduction: Reduction, body: Body, lanes: int, counters: Sequence[Index], vector: Index
) -> None:
    lane = builder.axis("lane", lanes)
    index = [*counters, vector * lanes + Index.of(lane)]
    acc = builder.declare("rb_v", "acc")
    builder.assign(acc, f"rb_splat({_initial(reduction)})")
    with _reduce_loops(builder, reduction.extents) as position:
        scalars = ScalarBuilder(builder.name)
        root = reduction.element(scalars, index, position)
        value = Emitter(builder, body.pointers, scalars, lanes, lane).emit(root)
        builder.assign(acc, _combine(reduction.combine, acc, value, vector=True))
    store(builder, body, index, acc, lanes, lane)


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
    with builder.share(_product(shape)) as unit:
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
    lanes = machine.lanes
    extents = reduction.extents
    acc = builder.declare("rb_v", "acc")
    builder.assign(acc, f"rb_splat({_initial(reduction)})")
    total = builder.declare("float", "total")
    whole = extents[-1] // lanes * lanes
    with (
        _reduce_loops(builder, extents[:-1]) as position,
        builder.loop("k", whole, step=lanes, last=whole - lanes) as k,
    ):
        lane = builder.axis("lane", lanes)
        scalars = ScalarBuilder(builder.name)
        root = reduction.element(scalars, index, [*position, k + Index.of(lane)])
        value = Emitter(builder, body.pointers, scalars, lanes, lane).emit(root)
        builder.assign(acc, _combine(reduction.combine, acc, value, vector=True))
    builder.assign(total, f"rb_{reduction.combine}_lanes({acc})")
    if whole < extents[-1]:
        with _reduce_loops(builder, extents[:-1]) as position, builder.loop("k", extents[-1], whole) as k:
            _accumulate_scalar(builder, reduction, body, index, [*position, k], total)
    store(builder, body, index, total, 1, None)


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
    with builder.share(_product(shape)) as unit:
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


def _product(extents: Sequence[int]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product
