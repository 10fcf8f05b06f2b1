"""Matrix product of a few rows with columns that each lie in one piece, as dot products; knows nothing of the model.

Both sides are read along the depth, so that nothing is packed: packing costs a square of the right side more than its
product with a few rows. The lanes of the sums are added at the end, for a vector of columns at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.lower.index import Axis, Index
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import PREFETCH, Body
from relaybuild.lower.templates.matmul import MatMul, Offsets, Panel, Site, cover, finish_tile
from relaybuild.lower.templates.vectors import tail_mask

FOLD_CYCLES = 5.5
"""To store, load and fold a vector of sums, for each lane."""

PACK_CYCLES = 0.3
"""To bring an element of the right side into the order of a packed panel, by squares of 8 in registers; it grows with
the square of the lanes, since wide vectors are mostly split between lines of the cache."""

PACK_ELEMENT_CYCLES = 2.0
"""The same where no whole square is left."""

NEAR_BYTES = 16384
"""Of rows of the left side that are read anew for each vector of columns: half of the nearest cache."""


def suits(matmul: MatMul, body: Body, machine: Machine) -> bool:
    """Whether both sides lie in order along the depth, and the right side is not worth packing."""
    lanes, depth = machine.lanes, matmul.depth
    if lanes == 1 or matmul.packed or matmul.right is None or depth < lanes:
        return False
    k = Axis("k", depth - 1)
    batch, row, column = (Index.of(Axis(name)) for name in ("batch", "row", "column"))
    addresses = (
        body.inputs[0].layout.address(matmul.left(batch, row, Index.of(k))),
        body.inputs[1].layout.address(matmul.right(batch, Index.of(k), column)),
    )
    if any(address.coefficient(k) != 1 for address in addresses):
        return False
    if matmul.rows > lanes // 4 and 4 * matmul.rows * depth > NEAR_BYTES:
        return False
    squares = depth // lanes * lanes * lanes * PACK_CYCLES * (lanes / 8) ** 2
    packing = squares + depth % lanes * lanes * PACK_ELEMENT_CYCLES
    product = matmul.rows * depth * 0.55
    return _cycles(matmul, _choose_tile(matmul, machine), machine) < packing + product


def _choose_tile(matmul: MatMul, machine: Machine) -> Panel:
    """The register tile, of rows x columns, of least estimated time."""
    tiles = [
        Panel(rows, columns)
        for columns in (1, 2, 4, 8, 16)
        for rows in range(1, min(matmul.rows, 12) + 1)
        if columns <= machine.lanes and machine.fits(rows, columns)
    ]
    return min(tiles, key=lambda tile: _cycles(matmul, tile, machine))


def _cycles(matmul: MatMul, tile: Panel, machine: Machine) -> float:
    """The estimated time of all rows times a vector of columns."""
    steps = -(-matmul.depth // machine.lanes)
    each = sum(machine.step_cycles(height, tile.vectors) * times for height, times in cover(matmul.rows, tile.rows))
    folds = matmul.rows * FOLD_CYCLES * machine.lanes
    return steps * each * (machine.lanes // tile.vectors) + folds


def dot_matmul_kernel(matmul: MatMul, body: Body, machine: Machine) -> Kernel:
    """The kernel; a unit is all rows times a vector of columns."""
    builder = Builder()
    site = Site(builder, matmul, body, machine)
    tile = _choose_tile(matmul, machine)
    whole, rest = divmod(matmul.columns, machine.lanes)
    groups = whole + (rest > 0)
    with builder.share(matmul.batch * groups) as unit:
        group = builder.let_index("group", unit % groups)
        batch = builder.let_index("batch", unit // groups)
        if rest == 0 or whole == 0:
            _group(site, (batch, group), tile, rest or machine.lanes)
            return body.kernel(builder.body, machine.lanes)
        with builder.branch(f"{group} < {whole}") as branch:
            _group(site, (batch, group), tile, machine.lanes)
        with builder.block(branch.otherwise):
            _group(site, (batch, Index.of(whole)), tile, rest)
    return body.kernel(builder.body, machine.lanes)


def _group(site: Site, at: tuple[Index, Index], tile: Panel, columns: int) -> None:
    """All rows times the first `columns` columns of a group."""
    whole, rest = divmod(site.matmul.rows, tile.rows)
    if whole:
        with site.builder.loop("row", whole * tile.rows, step=tile.rows, last=(whole - 1) * tile.rows) as row:
            _rows(site, (*at, row), Panel(tile.rows, tile.vectors), columns)
    if rest:
        _rows(site, (*at, Index.of(whole * tile.rows)), Panel(rest, tile.vectors), columns)


def _rows(site: Site, at: tuple[Index, Index, Index], tile: Panel, columns: int) -> None:
    builder, lanes = site.builder, site.machine.lanes
    batch, group, row = at
    sums = builder.declare("rb_v", "sums", (tile.rows, lanes))
    if columns < lanes:
        with builder.loop("i", tile.rows) as i, builder.loop("j", lanes, columns) as j:
            builder.assign(f"{sums}[{i}][{j}]", "rb_splat(0.0f)")
    whole, rest = divmod(columns, tile.vectors)
    if whole:
        with builder.loop("c", whole * tile.vectors, step=tile.vectors, last=(whole - 1) * tile.vectors) as c:
            _dots(site, (batch, group, row), c, tile, sums)
    if rest:
        _dots(site, (batch, group, row), Index.of(whole * tile.vectors), Panel(tile.rows, rest), sums)
    acc = builder.declare("rb_v", "acc", (tile.rows, 1))
    with builder.loop("i", tile.rows, unroll=True) as i:
        builder.assign(f"{acc}[{i}][0]", f"rb_sum_each({sums}[{i}])")
    finish_tile(site, (batch, row, group), tile.rows, 1, acc)


def _dots(site: Site, at: tuple[Index, Index, Index], first: Index, tile: Panel, sums: str) -> None:
    """The products of a tile's rows and columns, whose lanes are still to be added, into `sums`."""
    builder, matmul, machine = site.builder, site.matmul, site.machine
    lanes, depth = machine.lanes, matmul.depth
    acc = builder.declare("rb_v", "dot", (tile.rows, tile.vectors))
    with builder.loop("i", tile.rows, unroll=True) as i, builder.loop("j", tile.vectors, unroll=True) as j:
        builder.assign(f"{acc}[{i}][{j}]", "rb_splat(0.0f)")
    whole, rest = divmod(depth, lanes)
    with builder.loop("k", whole * lanes, step=lanes, last=(whole - 1) * lanes) as k:
        _step(site, at, first, k, tile, acc, None)
    if rest:
        _step(site, at, first, Index.of(depth - lanes), tile, acc, tail_mask(lanes, rest))
    with builder.loop("i", tile.rows, unroll=True) as i, builder.loop("j", tile.vectors, unroll=True) as j:
        builder.assign(f"{sums}[{i}][{first + j}]", f"{acc}[{i}][{j}]")


def _step(
    site: Site,
    at: Sequence[Index],
    first: Index,
    k: Index,
    tile: Panel,
    acc: str,
    mask: str | None,
) -> None:
    """One vector along the depth; with a mask, of both sides: what has been read before may be infinite."""
    builder, matmul, body, machine, _ = site
    batch, group, row = at
    assert matmul.right is not None
    take = matmul.right
    layouts = [operand.layout for operand in body.inputs]
    column = group * machine.lanes + first
    from_memory = 4 * matmul.batch * matmul.columns * matmul.depth > machine.l2_bytes
    right = Offsets(builder, "right", "p1", lambda j: layouts[1].address(take(batch, k, column + j)))
    values = builder.declare("rb_v", "w", (tile.vectors,))
    with builder.loop("j", tile.vectors, unroll=True) as j:
        builder.assign(f"{values}[{j}]", _masked(f"rb_load({right.at(j)})", mask))
        if from_memory:
            builder.evaluate(f"RB_PREFETCH({right.at(j)} + {PREFETCH})")
    left = Offsets(builder, "left", "p0", lambda i: layouts[0].address(matmul.left(batch, row + i, k)))
    with builder.loop("i", tile.rows, unroll=True) as i:
        value = builder.let("rb_v", "a", _masked(f"rb_load({left.at(i)})", mask))
        with builder.loop("j", tile.vectors, unroll=True) as j:
            builder.assign(f"{acc}[{i}][{j}]", f"{value} * {values}[{j}]", "+=")


def _masked(value: str, mask: str | None) -> str:
    return value if mask is None else f"rb_and({value}, {mask})"
