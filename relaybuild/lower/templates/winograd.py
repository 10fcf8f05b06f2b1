"""Convolution 3x3 of stride 1 by Winograd's F(4x4, 3x3): 36 products a tile instead of 144 multiplications.

A unit transforms a block of tiles of all input channels into a thread's scratch memory, then, for each register tile of
output channels, multiplies in the transformed domain and transforms back. Knows nothing of the model.
"""

from __future__ import annotations

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Index
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import PREFETCH, Body, is_heavy, pad_mask, store, zero_halo

TILE = 4
POINTS = 36


@dataclass(frozen=True)
class Winograd:
    """Input channels, output rows and columns, padding (top, left), and rows and columns of the image read.

    Weights are packed as [out block][36][in block][16][16].
    """

    channels: int
    rows: int
    columns: int
    padding: tuple[int, int]
    image: tuple[int, int]

    @property
    def tile_rows(self) -> int:
        return -(-self.rows // TILE)

    @property
    def tile_columns(self) -> int:
        return -(-self.columns // TILE)

    @property
    def tiles(self) -> int:
        return self.tile_rows * self.tile_columns

    def halo(self) -> tuple[int, int, int, int]:
        """Around the input: the padding, and what tiles that stick out past the last row and column read."""
        top, left = self.padding
        below = self.tile_rows * TILE + 2 - top - self.image[0]
        right = self.tile_columns * TILE + 2 - left - self.image[1]
        return top, left, max(0, below), max(0, right)


@dataclass(frozen=True)
class Schedule:
    """`block` tiles are transformed together, `rows` of them times `vectors` output vectors make a register tile; the
    output channels of a block of tiles are divided into `parts` units."""

    block: int
    rows: int
    vectors: int
    parts: int


def choose_schedule(winograd: Winograd, out_blocks: int, machine: Machine) -> Schedule:
    """A register tile that divides the tiles well, and as many tiles as leave the transforms in half of the cache."""
    halves = BLOCK // machine.lanes
    in_bytes = POINTS * 4 * (-(-winograd.channels // BLOCK) * BLOCK)
    most = max(4, machine.l2_bytes // 2 // in_bytes)
    best: tuple[float, Schedule] | None = None
    for blocks in range(1, min(out_blocks, 4) + 1):
        vectors = blocks * halves
        for rows in range(2, 29):
            if not machine.fits(rows, vectors):
                break
            block = min(-(-winograd.tiles // rows), max(1, most // rows)) * rows
            groups = -(-winograd.tiles // block)
            computed = groups * block * -(-out_blocks // blocks) * blocks
            cost = computed * machine.step_cycles(rows, vectors) / (rows * vectors)
            units = groups
            parts = max(1, min(-(-out_blocks // blocks), -(-8 // units)))
            if best is None or cost < best[0] * 0.999:
                best = (cost, Schedule(block, rows, vectors, parts))
    return best[1] if best else Schedule(4, 4, halves, 1)


def estimate_cycles(winograd: Winograd, out_blocks: int, machine: Machine) -> float:
    """Cycles of an image: products, transforms, and the weights, which come from memory once, and from beyond the
    second-level cache once a block of tiles."""
    schedule = choose_schedule(winograd, out_blocks, machine)
    blocks = -(-winograd.tiles // schedule.block)
    halves = BLOCK // machine.lanes
    step = machine.step_cycles(schedule.rows, schedule.vectors) / (schedule.rows * schedule.vectors)
    tiles = blocks * schedule.block
    products = POINTS * tiles * winograd.channels * out_blocks * halves * step
    in_vectors = -(-winograd.channels // machine.lanes)
    transforms = winograd.tiles * (250.0 * in_vectors + 200.0 * out_blocks * halves)
    weight_bytes = 4.0 * POINTS * winograd.channels * out_blocks * BLOCK
    passes = blocks if weight_bytes > machine.l2_bytes / 2 else 1
    memory = weight_bytes * (1 + 0.25 * (passes - 1)) / machine.memory_bytes_per_cycle
    return products + memory + transforms


def winograd_kernel(winograd: Winograd, body: Body, machine: Machine) -> Kernel:
    """The kernel; input 0 of the body is the data, input 1 the transformed weights."""
    builder = Builder()
    out = body.output.layout
    schedule = choose_schedule(winograd, out.num_blocks, machine)
    halves = BLOCK // machine.lanes
    blocks = schedule.vectors // halves
    in_blocks = -(-winograd.channels // BLOCK)
    groups = -(-out.num_blocks // blocks)
    per_part = -(-groups // schedule.parts)
    parts = -(-groups // per_part)
    tile_blocks = -(-winograd.tiles // schedule.block)
    v_size = POINTS * in_blocks * schedule.block * BLOCK
    m_size = POINTS * schedule.vectors * schedule.block * machine.lanes
    loops = _Loops(builder, winograd, body, machine, schedule)
    builder.evaluate("float *const transformed = scratch")
    builder.evaluate(f"float *const products = transformed + {v_size}")
    with builder.share(out.shape[0] * tile_blocks * parts) as unit:
        part = builder.let_index("part", unit % parts)
        tile_block = builder.let_index("tiles", unit // parts % tile_blocks)
        image = builder.let_index("image", unit // (parts * tile_blocks))
        first_tile = tile_block * schedule.block
        condition = "1" if parts == 1 else f"{part} == 0 || {unit} == first"
        with builder.branch(condition):
            loops.transform_inputs(image, first_tile)
        with builder.loop("g", per_part) as g:
            group = builder.let_index("group", part * per_part + g)
            whole, rest = divmod(out.num_blocks, blocks)
            at = (image, first_tile, group * blocks)
            if whole:
                with builder.branch(f"{group} < {whole}"):
                    loops.output_group(at, blocks)
            if rest:
                with builder.branch(f"{group} == {whole}"):
                    loops.output_group(at, rest)
    return body.kernel(builder.body, machine.lanes, 4 * (v_size + m_size), ("relaybuild/winograd.h",))


@dataclass(frozen=True)
class _Loops:
    """Emits the loops of one kernel into `builder`."""

    builder: Builder
    winograd: Winograd
    body: Body
    machine: Machine
    schedule: Schedule

    @property
    def halves(self) -> int:
        """Vectors in a channel block."""
        return BLOCK // self.machine.lanes

    def transform_inputs(self, image: Index, first_tile: Index) -> None:
        """Scratch [36][in block][tile][16] from 6x6 patches; tiles past the last repeat it."""
        builder, winograd, schedule, lanes = self.builder, self.winograd, self.schedule, self.machine.lanes
        in_blocks = -(-winograd.channels // BLOCK)
        layout = self.body.inputs[0].layout
        with builder.loop("ib", in_blocks) as ib, builder.loop("t", schedule.block) as t:
            tile = _clamped(builder, first_tile + t, winograd.tiles)
            row = builder.let_index("row", tile // winograd.tile_columns * TILE)
            column = builder.let_index("column", tile % winograd.tile_columns * TILE)
            with builder.loop("h", BLOCK // lanes) as h:
                e = builder.declare("rb_v", "e", (POINTS,))
                lane = builder.axis("lane", lanes)
                # Loops that stay loops: all points at once are more than there are registers, and slow to compile.
                with builder.loop("c", 6) as c:
                    d = builder.declare("rb_v", "d", (6,))
                    with builder.loop("r", 6, unroll=True) as r:
                        index = [
                            image,
                            ib * BLOCK + h * lanes + Index.of(lane),
                            row + r - winograd.padding[0],
                            column + c - winograd.padding[1],
                        ]
                        address = layout.address(index).substitute({lane: 0})
                        builder.assign(f"{d}[{r}]", f"rb_load(p0 + {address})")
                    builder.evaluate(f"rb_winograd_input({d}, 1, {e} + {c}, 6)")
                with builder.loop("r", 6) as r:
                    f = builder.declare("rb_v", "f", (6,))
                    builder.evaluate(f"rb_winograd_input({e} + {r * 6}, 1, {f}, 1)")
                    with builder.loop("c", 6, unroll=True) as c:
                        address = (((r * 6 + c) * in_blocks + ib) * schedule.block + t) * BLOCK + h * lanes
                        builder.evaluate(f"rb_store(transformed + {address}, {f}[{c}])")

    def output_group(self, at: tuple[Index, Index, Index], blocks: int) -> None:
        builder, schedule = self.builder, self.schedule
        with (
            builder.loop("k", POINTS) as k,
            builder.loop("t", schedule.block, step=schedule.rows, last=schedule.block - schedule.rows) as t,
        ):
            self._products(at[2], k, t, blocks * self.halves)
        self._transform_outputs(at, blocks)

    def _products(self, first_block: Index, k: Index, t: Index, vectors: int) -> None:
        """One register tile of one of the 36 products, over all input channels."""
        builder, schedule, lanes, halves = self.builder, self.schedule, self.machine.lanes, self.halves
        in_blocks = -(-self.winograd.channels // BLOCK)
        acc = builder.declare("rb_v", "acc", (schedule.rows, vectors))
        with builder.loop("i", schedule.rows, unroll=True) as i, builder.loop("j", vectors, unroll=True) as j:
            builder.assign(f"{acc}[{i}][{j}]", "rb_splat(0.0f)")

        def channels(ib: Index, count: int) -> None:
            with builder.loop("ic", count) as ic:
                weights = builder.declare("rb_v", "w", (vectors,))
                stride = POINTS * in_blocks * BLOCK * BLOCK
                first_weight = (
                    (first_block * POINTS + k) * (in_blocks * BLOCK * BLOCK) + ib * (BLOCK * BLOCK) + ic * BLOCK
                )
                source = builder.let("float *", "weights", f"p1 + {first_weight}")
                with (
                    builder.loop("b", vectors // halves, unroll=True) as b,
                    builder.loop("h", halves, unroll=True) as h,
                ):
                    offset = b * stride + h * lanes
                    builder.assign(f"{weights}[{b * halves + h}]", f"rb_load({source} + {offset})")
                    builder.evaluate(f"RB_PREFETCH({source} + {offset + PREFETCH})")
                first_pixel = ((k * in_blocks + ib) * schedule.block + t) * BLOCK + ic
                pixels = builder.let("float *", "pixels", f"transformed + {first_pixel}")
                with builder.loop("i", schedule.rows, unroll=True) as i:
                    value = builder.let("float", "a", f"{pixels}[{i * BLOCK}]")
                    with builder.loop("j", vectors, unroll=True) as j:
                        builder.assign(f"{acc}[{i}][{j}]", f"{value} * {weights}[{j}]", "+=")

        whole, rest = divmod(self.winograd.channels, BLOCK)
        if whole:
            with builder.loop("ib", whole) as ib:
                channels(ib, BLOCK)
        if rest:
            channels(Index.of(whole), rest)
        with builder.loop("i", schedule.rows, unroll=True) as i, builder.loop("j", vectors, unroll=True) as j:
            address = ((k * vectors + j) * schedule.block + t + i) * lanes
            builder.evaluate(f"rb_store(products + {address}, {acc}[{i}][{j}])")

    def _transform_outputs(self, at: tuple[Index, Index, Index], blocks: int) -> None:
        """4x4 outputs of each tile through the epilogue; rows and columns past the image are not stored."""
        builder, winograd, schedule, lanes = self.builder, self.winograd, self.schedule, self.machine.lanes
        image, first_tile, first_block = at
        halves = self.halves
        vectors = blocks * halves
        out = self.body.output.layout
        unroll = not is_heavy(self.body)
        with builder.loop("b", blocks) as b, builder.loop("h", halves) as h:
            block = builder.let_index("block", first_block + b)
            mask = pad_mask(builder, out, block, h * lanes if lanes == 1 else h, lanes)
            with builder.loop("t", schedule.block) as t:
                tile = builder.let_index("tile", first_tile + t)
                certain = tile.upper is not None and tile.upper < winograd.tiles
                with builder.branch("1" if certain else f"{tile} < {winograd.tiles}"):
                    row = builder.let_index("row", tile // winograd.tile_columns * TILE)
                    column = builder.let_index("column", tile % winograd.tile_columns * TILE)
                    e = builder.declare("rb_v", "e", (24,))
                    with builder.loop("c", 6) as c:
                        m = builder.declare("rb_v", "m", (6,))
                        with builder.loop("r", 6, unroll=True) as r:
                            address = (((r * 6 + c) * vectors + b * halves + h) * schedule.block + t) * lanes
                            builder.assign(f"{m}[{r}]", f"rb_load(products + {address})")
                        builder.evaluate(f"rb_winograd_output({m}, 1, {e} + {c}, 6)")
                    self._store_tile((image, block, h, row, column), e, mask, unroll=unroll)
        with builder.loop("b", blocks) as b:
            self._zero_rows(image, first_tile, first_block + b)

    def _store_tile(
        self, at: tuple[Index, Index, Index, Index, Index], e: str, mask: str | None, *, unroll: bool
    ) -> None:
        """The second half of the transform, row by row, and the epilogue; `e` is [4][6]."""
        builder, winograd, lanes = self.builder, self.winograd, self.machine.lanes
        image, block, h, row, column = at
        ragged = winograd.rows % TILE or winograd.columns % TILE

        def emit(rows: Index | int, columns: Index | int, *, whole: bool) -> None:
            with builder.loop("r", rows, last=3) as r:
                y = builder.declare("rb_v", "y", (TILE,))
                builder.evaluate(f"rb_winograd_output({e} + {r * 6}, 1, {y}, 1)")
                with builder.loop("c", columns, unroll=unroll and whole, last=3) as c:
                    lane = builder.axis("lane", lanes)
                    index = [image, block * BLOCK + h * lanes + Index.of(lane), row + r, column + c]
                    store(builder, self.body, index, f"{y}[{c}]", lanes, lane, mask)

        if not ragged:
            emit(TILE, TILE, whole=True)
            return
        inside = f"{row} <= {winograd.rows - TILE} && {column} <= {winograd.columns - TILE}"
        with builder.branch(inside) as branch:
            emit(TILE, TILE, whole=True)
        with builder.block(branch.otherwise):
            height = builder.let("ptrdiff_t", "rows", _least(row, winograd.rows))
            width = builder.let("ptrdiff_t", "columns", _least(column, winograd.columns))
            emit(Index.opaque(height), Index.opaque(width), whole=False)

    def _zero_rows(self, image: Index, first_tile: Index, block: Index) -> None:
        """The halo beside the rows of tiles that begin in this block of tiles."""
        builder, winograd, output = self.builder, self.winograd, self.body.output
        if not any(output.layout.halo):
            return
        columns = winograd.tile_columns
        first = builder.let("ptrdiff_t", "first_row", f"({first_tile} + {columns - 1}) / {columns}")
        past = (first_tile + self.schedule.block).as_factor()
        last = builder.let("ptrdiff_t", "past_row", f"({past} + {columns - 1}) / {columns}")
        end = builder.let("ptrdiff_t", "end_row", f"{last} < {winograd.tile_rows} ? {last} : {winograd.tile_rows}")
        with builder.loop("tr", Index.opaque(end), Index.opaque(first), last=winograd.tile_rows - 1) as tile_row:
            start = builder.let_index("start", tile_row * TILE)
            if winograd.rows % TILE == 0:
                zero_halo(builder, output, image, block, start, TILE)
                return
            rows = builder.let("ptrdiff_t", "rows", _least(start, winograd.rows))
            zero_halo(builder, output, image, block, start, Index.opaque(rows))


def _clamped(builder: Builder, tile: Index, tiles: int) -> Index:
    """A tile number that does not exceed the last tile."""
    if tile.upper is not None and tile.upper < tiles:
        return builder.let_index("tile", tile)
    name = builder.let("ptrdiff_t", "tile", f"{tile} < {tiles} ? {tile} : {tiles - 1}")
    return Index.opaque(name)


def _least(position: Index, extent: int) -> str:
    return f"{extent} - {position.as_factor()} < {TILE} ? {extent} - {position.as_factor()} : {TILE}"
