"""Matrix product with packed or strided right-hand side, batched, with an epilogue; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import PREFETCH, Body, is_heavy, spill, store, vector_body

IndexRule: TypeAlias = Callable[[IndexLike, IndexLike, IndexLike], Sequence[IndexLike]]


@dataclass(frozen=True)
class MatMul:
    """out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n].

    Input 0 of the body is the left side, input 1 the right. `left(b, m, k)` and `out(b, m, n)` give logical indices.
    The right side is packed as [n block][k][16] where `packed`, else `right(b, k, n)` gives its logical indices; it is
    packed panel by panel into a thread's scratch memory, unless few rows read it.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    left: IndexRule
    out: IndexRule
    packed: bool
    right: IndexRule | None = None


@dataclass(frozen=True)
class Panel:
    """A register tile of `rows` x `vectors` vectors of columns."""

    rows: int
    vectors: int


def choose_panel(matmul: MatMul, machine: Machine) -> Panel:
    """The register tile of least estimated time, remainders included."""
    total = -(-matmul.columns // machine.lanes)
    best: tuple[float, Panel] | None = None
    for vectors in range(1, min(total, 8) + 1):
        for rows in range(1, min(matmul.rows, 28) + 1):
            if not machine.fits(rows, vectors):
                break
            cost = 0.0
            for width, width_times in cover(total, vectors):
                for height, height_times in cover(matmul.rows, rows):
                    arithmetic = machine.step_cycles(height, width)
                    step = max(arithmetic, machine.weight_cycles(width * machine.lanes, matmul.depth))
                    cost += (matmul.depth * step + 4.0 * height * width + 20) * width_times * height_times
            if best is None or cost < best[0] * 0.999:
                best = (cost, Panel(rows, vectors))
    return best[1] if best else Panel(1, 1)


def cover(extent: int, step: int) -> list[tuple[int, int]]:
    """(size, how many times) of the steps that cover an extent: whole ones, and the rest."""
    whole, rest = divmod(extent, step)
    return [(size, times) for size, times in ((step, whole), (rest, 1)) if size and times]


class Site(NamedTuple):
    """What is emitted, and into what; `in_place` tells whether an unpacked right side is read where it lies."""

    builder: Builder
    matmul: MatMul
    body: Body
    machine: Machine
    in_place: bool = False


MOST_READS = 2
"""Tiles of rows that read the right side where it lies: for more, it pays to pack it."""

ROWS_AHEAD = 8
"""Rows of a right side that is read where it lies by which it is fetched ahead: the processor does not follow parts of
rows."""


def _is_read_in_place(matmul: MatMul, body: Body, panel: Panel, machine: Machine) -> bool:
    """Whether rows of the right side lie in one piece and too few rows of the left one read them for a copy to pay."""
    if matmul.right is None or matmul.packed or machine.lanes == 1 or matmul.rows > MOST_READS * panel.rows:
        return False
    column, right = Axis("n", matmul.columns - 1), body.inputs[1]
    address = right.layout.address(matmul.right(Index.of(0), Index.of(0), Index.of(column)))
    return address.coefficient(column) == 1 and (matmul.columns % machine.lanes == 0 or right.slack)


def matmul_kernel(matmul: MatMul, body: Body, machine: Machine) -> Kernel:
    """The kernel; the threads share batches and column panels, and rows too where there are few panels."""
    builder = Builder()
    panel = choose_panel(matmul, machine)
    site = Site(builder, matmul, body, machine, _is_read_in_place(matmul, body, panel, machine))
    total = -(-matmul.columns // machine.lanes)
    if _stays_in_cache(matmul, panel, machine):
        _row_bands(site, panel, total)
        return body.kernel(builder.body, machine.lanes)
    panels = -(-total // panel.vectors)
    row_parts = _row_parts(matmul, panel, panels)
    bands = -(-matmul.rows // panel.rows)
    rows_per_part = -(-bands // row_parts) * panel.rows
    row_parts = -(-matmul.rows // rows_per_part)
    with builder.share(matmul.batch * panels * row_parts) as unit:
        part = builder.let_index("part", unit % row_parts)
        column = builder.let_index("panel", unit // row_parts % panels)
        batch = builder.let_index("batch", unit // (row_parts * panels))
        whole, rest = divmod(total, panel.vectors)
        first = column * panel.vectors

        def columns(vectors: int) -> None:
            _panel(site, (batch, part * rows_per_part, first), panel.rows, vectors, rows_per_part)

        if rest == 0 or whole == 0:
            columns(panel.vectors if whole else rest)
        else:
            with builder.branch(f"{column} < {whole}") as branch:
                columns(panel.vectors)
            with builder.block(branch.otherwise):
                columns(rest)
    scratch = 0 if matmul.packed or site.in_place else 4 * matmul.depth * panel.vectors * machine.lanes
    return body.kernel(builder.body, machine.lanes, scratch)


def _stays_in_cache(matmul: MatMul, panel: Panel, machine: Machine) -> bool:
    """Whether all packed columns fit into the second-level cache, and there are rows enough to share.

    Then rows are the outer loop, so that the output is written row by row.
    """
    packed_bytes = 4 * matmul.depth * matmul.columns
    return matmul.packed and matmul.rows >= 8 * panel.rows and packed_bytes <= machine.l2_bytes * 0.7


def _row_bands(site: Site, panel: Panel, total: int) -> None:
    """Units are bands of rows, each over all column panels."""
    builder, matmul = site.builder, site.matmul
    bands = -(-matmul.rows // panel.rows)
    whole_bands, rest_rows = divmod(matmul.rows, panel.rows)
    whole, rest = divmod(total, panel.vectors)

    def all_columns(batch: Index, row: Index, height: int) -> None:
        if whole:
            with builder.loop("panel", whole) as column:
                _tile(site, (batch, row, column * panel.vectors), height, panel.vectors)
        if rest:
            _tile(site, (batch, row, Index.of(whole * panel.vectors)), height, rest)

    with builder.share(matmul.batch * bands) as unit:
        band = builder.let_index("band", unit % bands)
        batch = builder.let_index("batch", unit // bands)
        row = builder.let_index("row", band * panel.rows)
        if rest_rows == 0:
            all_columns(batch, row, panel.rows)
            return
        with builder.branch(f"{band} < {whole_bands}") as branch:
            all_columns(batch, row, panel.rows)
        with builder.block(branch.otherwise):
            all_columns(batch, row, rest_rows)


def _row_parts(matmul: MatMul, panel: Panel, panels: int) -> int:
    """Into how many parts the rows are cut: enough units for threads to share where panels are few."""
    bands = -(-matmul.rows // panel.rows)
    wanted = -(-16 // max(1, panels * matmul.batch))
    return max(1, min(bands, wanted))


def _panel(
    site: Site,
    corner: tuple[Index, Index, Index],
    height: int,
    vectors: int,
    rows_per_part: int,
) -> None:
    builder, matmul = site.builder, site.matmul
    batch, first_row, first_vector = corner
    if not matmul.packed and not site.in_place:
        _pack_panel(site, corner, vectors)
    if rows_per_part >= matmul.rows:
        whole, rest = divmod(matmul.rows, height)
        if whole:
            with builder.loop("row", whole * height, step=height) as row:
                _tile(site, (batch, row, first_vector), height, vectors)
        if rest:
            _tile(site, (batch, Index.of(whole * height), first_vector), rest, vectors)
        return
    whole_end = matmul.rows // height * height
    limit = builder.let(
        "ptrdiff_t", "limit", f"{first_row + rows_per_part} < {whole_end} ? {first_row + rows_per_part} : {whole_end}"
    )
    with builder.loop("row", Index.opaque(limit), first_row, step=height) as row:
        _tile(site, (batch, row, first_vector), height, vectors)
    if whole_end < matmul.rows:
        with builder.branch(f"{first_row + rows_per_part} > {whole_end}"):
            rest = matmul.rows - whole_end
            _tile(site, (batch, Index.of(whole_end), first_vector), rest, vectors)


def _pack_panel(site: Site, corner: tuple[Index, Index, Index], vectors: int) -> None:
    """Copy the panel's columns of the right side into scratch memory as [k][vectors][lanes], zero past the last.

    Where a column lies in one piece, squares of lanes x lanes elements are transposed in registers.
    """
    builder, matmul, body, machine, _ = site
    batch, _, first_vector = corner
    assert matmul.right is not None
    lanes, width, depth = machine.lanes, vectors * machine.lanes, matmul.depth
    builder.evaluate("float *const packed = scratch")
    step = Axis("k", depth - 1)
    address = body.inputs[1].layout.address(matmul.right(batch, Index.of(step), first_vector * lanes))
    start = 0
    if lanes > 1 and depth >= lanes and address.coefficient(step) == 1:
        start = depth // lanes * lanes
        with builder.loop("j", vectors) as j, builder.loop("k", start, step=lanes) as k:
            _pack_square(site, (batch, k, (first_vector + j) * lanes), k * width + j * lanes, width)
    with builder.loop("k", depth, start) as k, builder.loop("n", width) as n:
        column = first_vector * lanes + n
        builder.assign(f"packed[{k * width + n}]", _right_element(matmul, body, batch, k, column, width))


def _right_element(matmul: MatMul, body: Body, batch: Index, k: Index, column: Index, width: int) -> str:
    assert matmul.right is not None
    source = f"p1[{body.inputs[1].layout.address(matmul.right(batch, k, column))}]"
    return f"{column} < {matmul.columns} ? {source} : 0.0f" if matmul.columns % width else source


def _pack_square(
    site: Site,
    at: tuple[Index, Index, Index],
    target: Index,
    width: int,
) -> None:
    builder, matmul, body, machine, _ = site
    batch, k, column = at
    assert matmul.right is not None
    square = builder.declare("rb_v", "square", (machine.lanes,))
    lane, right = builder.axis("lane", machine.lanes), body.inputs[1].layout
    across = right.address(matmul.right(batch, k, column + Index.of(lane)))
    step = across.coefficient(lane)
    whole = f"rb_load_transposed({square}, p1 + {across.substitute({lane: 0})}, {step})"
    if step is None:
        _load_ragged_square(site, at, square)
    elif matmul.columns % width == 0:
        builder.evaluate(whole)
    else:
        with builder.branch(f"{column + (machine.lanes - 1)} < {matmul.columns}") as branch:
            builder.evaluate(whole)
        with builder.block(branch.otherwise):
            _load_ragged_square(site, at, square)
    with builder.loop("r", machine.lanes, unroll=True) as r:
        builder.evaluate(f"rb_store(packed + {target + r * width}, {square}[{r}])")


def _load_ragged_square(site: Site, at: tuple[Index, Index, Index], square: str) -> None:
    """Load columns that may lie past the last, which are zero, and transpose them."""
    builder, matmul, body, machine, _ = site
    batch, k, column = at
    assert matmul.right is not None
    with builder.loop("r", machine.lanes, unroll=True) as r:
        source = f"rb_load(p1 + {body.inputs[1].layout.address(matmul.right(batch, k, column + r))})"
        builder.assign(f"{square}[{r}]", f"{column + r} < {matmul.columns} ? {source} : rb_splat(0.0f)")
    builder.evaluate(f"rb_transpose({square})")


def _tile(
    site: Site,
    corner: tuple[Index, Index, Index],
    height: int,
    vectors: int,
) -> None:
    builder, matmul, body, machine, in_place = site
    batch, row, first_vector = corner
    acc = builder.declare("rb_v", "acc", (height, vectors))
    with builder.loop("i", height, unroll=True) as i, builder.loop("j", vectors, unroll=True) as j:
        builder.assign(f"{acc}[{i}][{j}]", "rb_splat(0.0f)")
    from_memory = matmul.packed and 4 * matmul.depth * matmul.columns > machine.l2_bytes // 8
    fetched = _fetched_ahead(site, batch) if in_place else 0
    with builder.loop("k", matmul.depth) as k:
        weights = builder.declare("rb_v", "w", (vectors,))
        right = Offsets(
            builder,
            "right",
            "p1" if matmul.packed or in_place else "packed",
            lambda j: _right_address(site, batch, first_vector, vectors, k, j),
        )
        with builder.loop("j", vectors, unroll=True) as j:
            builder.assign(f"{weights}[{j}]", f"rb_load({right.at(j)})")
            if from_memory:
                builder.evaluate(f"RB_PREFETCH({right.at(j)} + {PREFETCH})")
            if fetched:
                with builder.branch(f"{j * machine.lanes} % {BLOCK} == 0"):
                    builder.evaluate(f"RB_PREFETCH({right.at(j)} + {fetched})")
        left = Offsets(builder, "left", "p0", lambda i: body.inputs[0].layout.address(matmul.left(batch, row + i, k)))
        with builder.loop("i", height, unroll=True) as i:
            value = builder.let("float", "a", f"*({left.at(i)})")
            with builder.loop("j", vectors, unroll=True) as j:
                builder.assign(f"{acc}[{i}][{j}]", f"{value} * {weights}[{j}]", "+=")
    finish_tile(site, corner, height, vectors, acc)


class Offsets:
    """Addresses along an unrolled loop as constant offsets from one pointer, where they are that."""

    def __init__(self, builder: Builder, stem: str, pointer: str, address: Callable[[IndexLike], Index]) -> None:
        self._address = address
        self._pointer = pointer
        self._first = address(0)
        self._name = builder.let("float *", stem, f"{pointer} + {self._first}")

    def at(self, position: Index) -> str:
        """The pointer for one trip of the loop."""
        offset = self._address(position) - self._first
        if offset.axes() <= position.axes():
            return f"{self._name} + {offset}"
        return f"{self._pointer} + {self._address(position)}"


def _fetched_ahead(site: Site, batch: Index) -> int:
    """How far ahead a right side that is read where it lies is fetched, in elements."""
    assert site.matmul.right is not None
    step = Axis("k", site.matmul.depth - 1)
    address = site.body.inputs[1].layout.address(site.matmul.right(batch, Index.of(step), Index.of(0)))
    return ROWS_AHEAD * (address.coefficient(step) or 0)


def _right_address(site: Site, batch: Index, first_vector: Index, vectors: int, k: Index, j: IndexLike) -> Index:
    matmul, machine = site.matmul, site.machine
    if site.in_place:
        assert matmul.right is not None
        return site.body.inputs[1].layout.address(matmul.right(batch, k, (first_vector + j) * machine.lanes))
    if not matmul.packed:
        return k * (vectors * machine.lanes) + Index.of(j) * machine.lanes
    column = (first_vector + j) * machine.lanes
    return (column // BLOCK) * (matmul.depth * BLOCK) + k * BLOCK + column % BLOCK


def finish_tile(
    site: Site,
    corner: tuple[Index, Index, Index],
    height: int,
    vectors: int,
    acc: str,
) -> None:
    """Store the tile through the epilogue; the last vector of a ragged row lane by lane."""
    builder, matmul, body, machine, _ = site
    batch, row, first_vector = corner
    lanes = machine.lanes
    unroll = not is_heavy(body)
    if not unroll:
        acc = spill(builder, acc, (height, vectors))
    with builder.loop("j", vectors, unroll=unroll) as j, builder.loop("i", height, unroll=unroll) as i:
        lane = builder.axis("lane", lanes)
        column = (first_vector + j) * lanes + Index.of(lane)
        index = matmul.out(batch, row + i, column)
        value = f"{acc}[{i}][{j}]"
        vector = body.output.layout.address(index).coefficient(lane) == 1 and vector_body(
            body, index, lane, anchored=True
        )
        if vector and matmul.columns % lanes == 0:
            store(builder, body, index, value, lanes, lane)
        elif vector:
            start = (first_vector + j) * lanes
            with builder.branch(f"{start + (lanes - 1)} < {matmul.columns}") as branch:
                store(builder, body, index, value, lanes, lane)
            with builder.block(branch.otherwise):
                _finish_lanes(site, (batch, row + i, start), value)
        else:
            _finish_lanes(site, (batch, row + i, (first_vector + j) * lanes), value)


def _finish_lanes(site: Site, at: tuple[Index, Index, Index], value: str) -> None:
    builder, matmul, body, machine, _ = site
    batch, row, start = at
    spilled = builder.declare("float", "tail", (machine.lanes,))
    builder.evaluate(f"rb_store({spilled}, {value})")
    with builder.loop("t", machine.lanes) as t, builder.branch(f"{start + t} < {matmul.columns}"):
        index = matmul.out(batch, row, start + t)
        store(builder, body, index, f"{spilled}[{t}]", 1, None)
