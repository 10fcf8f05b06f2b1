"""Direct two-dimensional convolution into channel blocks, strided, padded, dilated, grouped or transposed.

One register tile is `rows x columns` output pixels times `vectors` vectors of channels; a step broadcasts one input
element per pixel and multiplies it with a row of packed weights. Borders are the input's halo. Knows nothing of the
model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.layout import BLOCK, NO_HALO
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder
from relaybuild.lower.templates.body import PREFETCH, Body, is_heavy, pad_mask, spill, store, zero_halo

LEAST_GROUPS = 8
"""Groups of channels that threads share, at least, where nothing else is shared."""


@dataclass(frozen=True)
class Taps:
    """The kernel positions along one dimension that reach an output position.

    Output position `q` (of those the phase computes) reads input `q * stride + shift + step * i` with the weight
    `first + weight_step * i`, for i in range(count).
    """

    count: int
    stride: int
    shift: int
    step: int
    first: int = 0
    weight_step: int = 1


@dataclass(frozen=True)
class Phase:
    """A sub-grid of the output: position (q, r) of the phase is output (q * scale + origin, ...)."""

    rows: int
    columns: int
    row_taps: Taps
    column_taps: Taps
    scale: tuple[int, int] = (1, 1)
    origin: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Conv2D:
    """What to compute: input 0 of the body is the data, input 1 the packed weights.

    Weights are packed as [out block][in block][kernel rows][kernel columns][16 in][16 out] (the two kernel extents are
    `kernel`). Output block b reads `span` input channels from min(span_step * ((b * 16) // span_group), span_last); a
    dense convolution has span = all input channels and span_step = 0. `span_blocks` neighbouring blocks read the same
    channels.
    """

    phases: tuple[Phase, ...]
    kernel: tuple[int, int]
    span: int
    span_step: int = 0
    span_group: int = 1
    span_last: int = 0
    span_blocks: int = 4


@dataclass(frozen=True)
class Tile:
    """A register tile: output rows and columns of a phase, and vectors of channels, which begin at a channel block."""

    rows: int
    columns: int
    vectors: int


def choose_tile(conv: Conv2D, phase: Phase, out_channels: int, machine: Machine) -> Tile:
    """The tile of least estimated time, remainders included; few distinct remainders are preferred.

    Its vectors fill channel blocks, unless it holds all channels.
    """
    halves = BLOCK // machine.lanes
    steps = conv.span * phase.row_taps.count * phase.column_taps.count
    all_vectors = -(-out_channels // machine.lanes)
    best: tuple[float, Tile] | None = None
    for blocks in range(1, min(-(-out_channels // BLOCK), conv.span_blocks) + 1):
        if conv.span_step and conv.span_blocks % blocks:
            continue
        vectors = min(blocks * halves, all_vectors)
        for rows in range(1, min(phase.rows, 4) + 1):
            for columns in range(1, min(phase.columns, 28) + 1):
                tile = Tile(rows, columns, vectors)
                if not machine.fits(rows * columns, vectors):
                    break
                cost = _grid_cycles(tile, phase, all_vectors, steps, machine)
                if best is None or cost < best[0] * 0.999:
                    best = (cost, tile)
    return best[1] if best else Tile(1, 1, min(halves, all_vectors))


def _blocks(tile: Tile, machine: Machine) -> int:
    """Channel blocks of a tile, the last of which it may compute in part."""
    return -(-tile.vectors * machine.lanes // BLOCK)


def _grid_cycles(tile: Tile, phase: Phase, all_vectors: int, steps: int, machine: Machine) -> float:
    cycles = 0.0
    variants = 0
    for vectors, vector_times in cover(all_vectors, tile.vectors):
        for rows, row_times in cover(phase.rows, tile.rows):
            for columns, column_times in cover(phase.columns, tile.columns):
                arithmetic = machine.step_cycles(rows * columns, vectors)
                one = steps * max(arithmetic, machine.weight_cycles(vectors * machine.lanes, steps))
                one += 4.0 * rows * columns * vectors + 30.0
                cycles += one * vector_times * row_times * column_times
                variants += 1
    return cycles * (1 + 0.02 * (variants - 1))


def cover(extent: int, step: int) -> list[tuple[int, int]]:
    """(size, times) of the whole tiles and of the remainder."""
    whole, rest = divmod(extent, step)
    return [(size, times) for size, times in ((step, whole), (rest, 1)) if size and times]


def estimate_cycles(conv: Conv2D, out_channels: int, machine: Machine) -> float:
    """Cycles of an image, and of reading its weights from memory."""
    vectors = -(-out_channels // machine.lanes)
    cycles = 0.0
    for phase in conv.phases:
        steps = conv.span * phase.row_taps.count * phase.column_taps.count
        cycles += _grid_cycles(choose_tile(conv, phase, out_channels, machine), phase, vectors, steps, machine)
    weight_bytes = 4.0 * conv.kernel[0] * conv.kernel[1] * conv.span * -(-out_channels // BLOCK) * BLOCK
    return cycles + weight_bytes / machine.memory_bytes_per_cycle


def conv2d_kernel(conv: Conv2D, body: Body, machine: Machine) -> Kernel:
    """The kernel of a convolution with its epilogue."""
    builder = Builder()
    for phase in conv.phases:
        _PhaseLoops(builder, conv, _in_one_row(conv, phase, body, machine), body, machine).emit()
    return body.kernel(builder.body, machine.lanes)


def _in_one_row(conv: Conv2D, phase: Phase, body: Body, machine: Machine) -> Phase:
    """The phase with all its pixels in one row, where that leaves smaller remainders of tiles: its input stays in the
    second-level cache, groups of channels are enough for threads to share, and everything else allows it."""
    flat = replace(phase, rows=1, columns=phase.rows * phase.columns)
    channels = body.output.layout.shape[1]
    near = 4 * conv.span * flat.columns <= machine.l2_bytes * 0.8
    if not near or channels < LEAST_GROUPS * 2 * machine.lanes or not _pixels_follow(conv, phase, body):
        return phase
    vectors = -(-channels // machine.lanes)
    usual, other = (
        _grid_cycles(choose_tile(conv, each, channels, machine), each, vectors, conv.span, machine)
        for each in (phase, flat)
    )
    return flat if other < 0.9 * usual else phase


def _pixels_follow(conv: Conv2D, phase: Phase, body: Body) -> bool:
    """Whether a pixel is computed from its own place alone, and rows follow each other without gaps in all operands."""
    taps = phase.row_taps, phase.column_taps
    layouts = body.inputs[0].layout, body.output.layout
    if len(conv.phases) > 1 or any((each.count, each.stride, each.shift) != (1, 1, 0) for each in taps):
        return False
    if body.output.layout.halo != NO_HALO or any(
        each.strides[2] != phase.columns * each.strides[3] for each in layouts
    ):
        return False
    image, channel, row, column = (
        Index.of(Axis(name, extent - 1)) for name, extent in zip("ncyx", body.output.layout.shape)
    )
    scalars = ScalarBuilder()
    places = (row, column), (Index.of(0), row * phase.columns + column)
    first, second = (body.rule(scalars, [image, channel, *place], scalars.anchor("float32")) for place in places)
    return first is second and not scalars.run_time_indices


def choose_chunk(conv: Conv2D, phase: Phase, tile: Tile, groups: int, bands: int, machine: Machine) -> int:
    """Bands in a chunk: the number that moves the fewest bytes into the second-level cache.

    A chunk's input is read once if it fits beside one group's weights, else once a group; all weights are read once if
    they fit beside a chunk's input, else once a chunk.
    """
    taps = conv.kernel[0] * conv.kernel[1]
    group_weights = 4 * tile.vectors * machine.lanes * conv.span * taps
    row_bytes = 4 * conv.span * phase.columns * phase.column_taps.stride
    band_bytes = row_bytes * min(phase.row_taps.stride, conv.kernel[0]) * tile.rows
    border = row_bytes * (conv.kernel[0] - 1)
    best: tuple[float, int] | None = None
    for chunk in range(bands, 0, -1):
        chunks = -(-bands // chunk)
        data = band_bytes * chunk + border
        moved = data * chunks * (1 if data + group_weights <= machine.l2_bytes * 0.8 else groups)
        weights = group_weights * groups
        moved += weights * (1 if weights + data <= machine.l2_bytes * 0.8 else chunks)
        if best is None or moved < best[0] * 0.98:
            best = (moved, chunk)
    return best[1] if best else bands


def split_tiles(builder: Builder, number: Index, extent: int, step: int, emit: Callable[[int], None]) -> None:
    """Emit the code of a whole tile and, where the extent leaves one, of the last, smaller tile."""
    rest = extent % step
    if rest == 0:
        emit(step)
    elif extent < step:
        emit(rest)
    else:
        with builder.branch(f"{number} < {extent // step}") as branch:
            emit(step)
        with builder.block(branch.otherwise):
            emit(rest)


@dataclass(frozen=True)
class _Corner:
    """Where a register tile begins: image, output channel block, row and column of the phase."""

    image: Index
    block: Index
    row: Index
    column: Index


@dataclass(frozen=True)
class _PhaseLoops:
    """Emits the loops of one phase into `builder`."""

    builder: Builder
    conv: Conv2D
    phase: Phase
    body: Body
    machine: Machine

    @property
    def halves(self) -> int:
        """Vectors in a channel block."""
        return BLOCK // self.machine.lanes

    def _parts(self, tile: Tile) -> list[tuple[int, int, int]]:
        """(first block, blocks, vectors of each): a tile's whole channel blocks, and one it computes in part.

        The other vectors of that block hold pad lanes only.
        """
        whole, rest = divmod(tile.vectors, self.halves)
        return [part for part in ((0, whole, self.halves), (whole, 1, rest)) if part[1] and part[2]]

    def emit(self) -> None:
        """Units run chunk by chunk of bands, group by group of channel blocks within a chunk, band by band within a
        group: a group's weights and a chunk's input stay in the second-level cache."""
        builder, out = self.builder, self.body.output.layout
        vectors = -(-out.shape[1] // self.machine.lanes)
        tile = choose_tile(self.conv, self.phase, out.shape[1], self.machine)
        groups = -(-vectors // tile.vectors)
        bands = -(-self.phase.rows // tile.rows)
        chunk = choose_chunk(self.conv, self.phase, tile, groups, bands, self.machine)
        with builder.share(out.shape[0] * groups * bands) as unit:
            image = builder.let_index("image", unit // (bands * groups))
            group, band = self._unit_position(unit % (bands * groups), groups, bands, chunk)

            def emit_band(vectors: int, rows: int) -> None:
                corner = _Corner(image, group * _blocks(tile, self.machine), band * tile.rows, Index.of(0))
                self._band(Tile(rows, tile.columns, vectors), corner)

            split_tiles(
                builder,
                group,
                vectors,
                tile.vectors,
                lambda vectors: split_tiles(
                    builder, band, self.phase.rows, tile.rows, lambda rows: emit_band(vectors, rows)
                ),
            )

    def _unit_position(self, rest: Index, groups: int, bands: int, chunk: int) -> tuple[Index, Index]:
        """(group of channel blocks, band of rows) of a unit's number within its image."""
        builder = self.builder
        chunks = -(-bands // chunk)
        part = builder.let_index("chunk", rest // (chunk * groups))
        within = rest - part * (chunk * groups)
        if bands % chunk == 0:
            group, band = within // chunk, within % chunk
        else:
            last = bands - (chunks - 1) * chunk
            size = builder.let("ptrdiff_t", "bands", f"{part} < {chunks - 1} ? {chunk} : {last}")
            position = builder.let_index("within", within)
            group, band = Index.opaque(f"{position} / {size}"), Index.opaque(f"{position} % {size}")
        return builder.let_index("group", group), builder.let_index("band", part * chunk + band)

    def _band(self, tile: Tile, corner: _Corner) -> None:
        """All tiles of one band of rows, then the halo beside them."""
        whole, rest = divmod(self.phase.columns, tile.columns)
        if whole:
            with self.builder.loop("x", whole * tile.columns, step=tile.columns) as column:
                self._tile(tile, replace(corner, column=column))
        if rest:
            last = Tile(tile.rows, rest, tile.vectors)
            self._tile(last, replace(corner, column=Index.of(whole * tile.columns)))
        self._halo(tile, corner)

    def _halo(self, tile: Tile, corner: _Corner) -> None:
        """The halo beside the rows of a band; of several phases the first does it, for the rows that they share."""
        if self.phase.origin != (0, 0):
            return
        builder, output = self.builder, self.body.output
        scale, height = self.phase.scale[0], output.layout.shape[2]
        for number in range(_blocks(tile, self.machine)):
            block = corner.block + number
            if height % scale == 0:
                zero_halo(builder, output, corner.image, block, corner.row * scale, tile.rows * scale)
                continue
            with builder.loop("s", tile.rows * scale) as s:
                row = corner.row * scale + s
                with builder.branch(f"{row} < {height}"):
                    zero_halo(builder, output, corner.image, block, row, 1)

    def _tile(self, tile: Tile, corner: _Corner) -> None:
        """Accumulate one register tile and store it through the epilogue."""
        builder = self.builder
        dims = (tile.rows * tile.columns, tile.vectors)
        acc = builder.declare("rb_v", "acc", dims)
        with builder.loop("i", dims[0], unroll=True) as i, builder.loop("j", dims[1], unroll=True) as j:
            builder.assign(f"{acc}[{i}][{j}]", "rb_splat(0.0f)")
        self._accumulate(tile, corner, acc)
        unroll = not is_heavy(self.body)
        self._finish(tile, corner, acc if unroll else spill(builder, acc, dims), unroll=unroll)

    def _finish(self, tile: Tile, corner: _Corner, acc: str, *, unroll: bool) -> None:
        builder, lanes = self.builder, self.machine.lanes
        for first, blocks, vectors in self._parts(tile):
            with builder.loop("b", blocks, unroll=unroll) as b, builder.loop("h", vectors, unroll=unroll) as h:
                lane = builder.axis("lane", lanes)
                block = corner.block + first + b
                mask = pad_mask(builder, self.body.output.layout, block, h * lanes if lanes == 1 else h, lanes)
                with self._pixels(tile, unroll=unroll) as (r, c):
                    index = self._position(corner, block, h * lanes + Index.of(lane), (r, c))
                    value = f"{acc}[{r * tile.columns + c}][{(first + b) * self.halves + h}]"
                    store(builder, self.body, index, value, lanes, lane, mask)
            if vectors < self.halves:
                self._clear(tile, corner, corner.block + first, vectors, unroll=unroll)

    def _clear(self, tile: Tile, corner: _Corner, block: Index, first: int, *, unroll: bool) -> None:
        """Write zeros into the vectors of a block from number `first` on, which hold pad lanes only."""
        builder, lanes = self.builder, self.machine.lanes
        with builder.loop("h", self.halves, first, unroll=unroll) as h, self._pixels(tile, unroll=unroll) as at:
            address = self.body.output.layout.address(self._position(corner, block, h * lanes, at))
            builder.evaluate(f"rb_store(out + {address}, rb_splat(0.0f))")

    @contextmanager
    def _pixels(self, tile: Tile, *, unroll: bool) -> Iterator[tuple[Index, Index]]:
        """The loops over a tile's rows and columns."""
        with (
            self.builder.loop("r", tile.rows, unroll=unroll) as r,
            self.builder.loop("c", tile.columns, unroll=unroll) as c,
        ):
            yield r, c

    def _position(self, corner: _Corner, block: Index, lane: Index, at: tuple[Index, Index]) -> list[Index]:
        """The logical index in the output of lane `lane` of a block, `at` (row, column) of a tile."""
        phase = self.phase
        return [
            corner.image,
            block * BLOCK + lane,
            (corner.row + at[0]) * phase.scale[0] + phase.origin[0],
            (corner.column + at[1]) * phase.scale[1] + phase.origin[1],
        ]

    def _accumulate(self, tile: Tile, corner: _Corner, acc: str) -> None:
        whole, rest = divmod(self.conv.span, BLOCK)
        start = self._span_start(corner.block)
        if whole:
            with self.builder.loop("ib", whole) as in_block:
                self._taps(tile, corner, acc, start, in_block, BLOCK)
        if rest:
            self._taps(tile, corner, acc, start, Index.of(whole), rest)

    def _span_start(self, block: Index) -> Index:
        """The first input channel that the blocks from `block` read."""
        conv = self.conv
        start = (block * BLOCK) // conv.span_group * conv.span_step
        if start.upper is not None and start.upper <= conv.span_last:
            return start
        text = start.as_factor()
        value = f"{text} < {conv.span_last} ? {text} : {conv.span_last}"
        return Index.opaque(self.builder.let("ptrdiff_t", "start", value))

    def _taps(self, tile: Tile, corner: _Corner, acc: str, start: Index, in_block: Index, channels: int) -> None:
        if self._fetches_ahead(tile):
            with nullcontext() if self._is_read_once(tile) else self.builder.branch(f"{corner.block} == 0"):
                self._fetch_next(tile, corner, start + in_block * BLOCK)
        with (
            self.builder.loop("kr", self.phase.row_taps.count) as kr,
            self.builder.loop("kc", self.phase.column_taps.count) as kc,
            self.builder.loop("ic", channels) as ic,
        ):
            weights = self._weights(tile, corner, in_block, (kr, kc, ic))
            self._products(tile, corner, acc, weights, start + in_block * BLOCK + ic, (kr, kc))

    def _fetches_ahead(self, tile: Tile) -> bool:
        """Whether the next tile's input should be fetched: it comes from beyond the second-level cache, and every other
        pixel is skipped, which the hardware would fetch as well.

        Where it is read once for each group of channels, the first group does it. That was measured to pay with 16
        registers, whose tiles hold few channels.
        """
        data = self.body.inputs[0].layout
        rows, columns = self.phase.row_taps, self.phase.column_taps
        strided = rows.count * columns.count == 1 and columns.stride > 1
        far = data.block > 1 and 4 * data.size > 4 * self.machine.l2_bytes
        return strided and far and (self._is_read_once(tile) or self.machine.registers < 32)

    def _is_read_once(self, tile: Tile) -> bool:
        """Whether a tile holds all channels."""
        return self.body.output.layout.shape[1] <= tile.vectors * self.machine.lanes

    def _fetch_next(self, tile: Tile, corner: _Corner, channel: Index) -> None:
        """Fetch one channel block of the tile to the right."""
        builder, data = self.builder, self.body.inputs[0].layout
        rows, columns = self.phase.row_taps, self.phase.column_taps
        first_column = (corner.column + tile.columns) * columns.stride + columns.shift
        first = data.address([corner.image, channel, corner.row * rows.stride + rows.shift, first_column])
        source = builder.let("float *", "ahead", f"p0 + {first}")
        with builder.loop("r", tile.rows, unroll=True) as r, builder.loop("c", tile.columns, unroll=True) as c:
            offset = r * (rows.stride * data.strides[2]) + c * (columns.stride * data.strides[3])
            builder.evaluate(f"RB_PREFETCH({source} + {offset})")

    def _weights(self, tile: Tile, corner: _Corner, in_block: Index, tap: tuple[Index, Index, Index]) -> str:
        """Load one row of weights: a vector for each half of each block; fetched ahead where they come from memory."""
        builder, conv, lanes = self.builder, self.conv, self.machine.lanes
        kr, kc, ic = tap
        rows, columns = self.phase.row_taps, self.phase.column_taps
        in_blocks = -(-conv.span // BLOCK)

        def address(b: IndexLike, h: IndexLike) -> Index:
            block = (corner.block + b) * in_blocks + in_block
            row = block * conv.kernel[0] + kr * rows.weight_step + rows.first
            column = row * conv.kernel[1] + kc * columns.weight_step + columns.first
            return column * (BLOCK * BLOCK) + ic * BLOCK + Index.of(h) * lanes

        weights = builder.declare("rb_v", "w", (tile.vectors,))
        first = address(0, 0)
        source = builder.let("float *", "weights", f"p1 + {first}")
        out_blocks = self.body.output.layout.num_blocks
        num_bytes = 4 * out_blocks * BLOCK * conv.span * conv.kernel[0] * conv.kernel[1]
        for begin, blocks, vectors in self._parts(tile):
            with builder.loop("b", blocks, unroll=True) as b:
                with builder.loop("h", vectors, unroll=True) as h:
                    offset = address(b + begin, h) - first
                    builder.assign(f"{weights}[{(b + begin) * self.halves + h}]", f"rb_load({source} + {offset})")
                if num_bytes > self.machine.l2_bytes // 8:
                    offset = address(b + begin, 0) - first
                    builder.evaluate(f"RB_PREFETCH({source} + {offset + PREFETCH})")
        return weights

    def _products(
        self, tile: Tile, corner: _Corner, acc: str, weights: str, channel: Index, tap: tuple[Index, Index]
    ) -> None:
        """Multiply each pixel's input element with the row of weights."""
        builder, data = self.builder, self.body.inputs[0].layout
        rows, columns = self.phase.row_taps, self.phase.column_taps
        plane = data.address([0, channel, 0, 0]) - data.offset
        if not plane.is_linear:
            plane = builder.let_index("plane", plane)

        def address(r: IndexLike, c: IndexLike) -> Index:
            row = (corner.row + r) * rows.stride + rows.shift + tap[0] * rows.step
            column = (corner.column + c) * columns.stride + columns.shift + tap[1] * columns.step
            return data.address([corner.image, 0, row, column]) + plane

        first = address(0, 0)
        pixels = builder.let("float *", "pixels", f"p0 + {first}")
        with builder.loop("r", tile.rows, unroll=True) as r, builder.loop("c", tile.columns, unroll=True) as c:
            value = builder.let("float", "a", f"{pixels}[{address(r, c) - first}]")
            with builder.loop("j", tile.vectors, unroll=True) as j:
                builder.assign(f"{acc}[{r * tile.columns + c}][{j}]", f"{value} * {weights}[{j}]", "+=")


def direct_phase(
    out_hw: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Phase:
    """The one phase of an ordinary convolution; `padding` is (top, left)."""
    rows, columns = (Taps(kernel[d], strides[d], -padding[d], dilation[d]) for d in (0, 1))
    return Phase(out_hw[0], out_hw[1], rows, columns)


def transposed_phases(
    out_hw: tuple[int, int],
    kernel: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> tuple[Phase, ...]:
    """The phases of a transposed convolution: outputs of equal remainder by the stride share their taps.

    Output o receives input i with kernel position k where i * stride + k * dilation - padding = o.
    """
    per_dimension = [
        [_transposed_taps(origin, kernel[d], strides[d], padding[d], dilation[d]) for origin in range(strides[d])]
        for d in (0, 1)
    ]
    phases = []
    for row, row_taps in enumerate(per_dimension[0]):
        for column, column_taps in enumerate(per_dimension[1]):
            rows = -(-(out_hw[0] - row) // strides[0])
            columns = -(-(out_hw[1] - column) // strides[1])
            if rows > 0 and columns > 0:
                phases.append(Phase(rows, columns, row_taps, column_taps, (strides[0], strides[1]), (row, column)))
    return tuple(phases)


def _transposed_taps(origin: int, kernel: int, stride: int, padding: int, dilation: int) -> Taps:
    reaching = [k for k in range(kernel) if (origin + padding - k * dilation) % stride == 0]
    if not reaching:
        return Taps(0, 1, 0, 0)
    first = reaching[0]
    weight_step = reaching[1] - first if len(reaching) > 1 else 1
    shift = (origin + padding - first * dilation) // stride
    return Taps(len(reaching), 1, shift, -(weight_step * dilation) // stride, first, weight_step)


def taps_reach(taps: Taps, positions: int, extent: int) -> tuple[int, int]:
    """How far the taps of `positions` outputs reach before 0 and past `extent`: the halo the input needs."""
    if taps.count == 0 or positions == 0:
        return 0, 0
    offsets = (taps.shift, taps.shift + taps.step * (taps.count - 1))
    lowest = min(offsets)
    highest = max(offsets) + (positions - 1) * taps.stride
    return max(0, -lowest), max(0, highest - (extent - 1))
