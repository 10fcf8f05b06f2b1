"""Direct two-dimensional convolution into channel blocks, strided, padded, dilated, grouped or transposed.

One register tile is `rows x columns` output pixels times `blocks` channel blocks; a step broadcasts one input element
per pixel and multiplies it with a row of packed weights. Borders are the input's halo. Knows nothing of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaybuild.lower.index import Index, IndexLike
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import PREFETCH, Body, is_heavy, pad_mask, spill, store, zero_halo


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
    """A register tile: output rows and columns of a phase, and channel blocks."""

    rows: int
    columns: int
    blocks: int


def choose_tile(conv: Conv2D, phase: Phase, out_blocks: int, machine: Machine) -> Tile:
    """The tile of least estimated time, remainders included; few distinct remainders are preferred."""
    halves = BLOCK // machine.lanes
    steps = conv.span * phase.row_taps.count * phase.column_taps.count
    best: tuple[float, Tile] | None = None
    for blocks in range(1, min(out_blocks, conv.span_blocks) + 1):
        if conv.span_step and conv.span_blocks % blocks:
            continue
        for rows in range(1, min(phase.rows, 4) + 1):
            for columns in range(1, min(phase.columns, 28) + 1):
                tile = Tile(rows, columns, blocks)
                if not machine.fits(rows * columns, blocks * halves):
                    break
                cost = _grid_cycles(tile, phase, out_blocks, steps, halves, machine)
                if best is None or cost < best[0] * 0.999:
                    best = (cost, tile)
    return best[1] if best else Tile(1, 1, 1)


def _grid_cycles(tile: Tile, phase: Phase, out_blocks: int, steps: int, halves: int, machine: Machine) -> float:
    cycles = 0.0
    variants = 0
    for blocks, block_times in _cover(out_blocks, tile.blocks):
        for rows, row_times in _cover(phase.rows, tile.rows):
            for columns, column_times in _cover(phase.columns, tile.columns):
                one = steps * machine.step_cycles(rows * columns, blocks * halves)
                one += 4.0 * rows * columns * blocks * halves + 30.0
                cycles += one * block_times * row_times * column_times
                variants += 1
    return cycles * (1 + 0.02 * (variants - 1))


def _cover(extent: int, step: int) -> list[tuple[int, int]]:
    """(size, times) of the whole tiles and of the remainder."""
    whole, rest = divmod(extent, step)
    return [(size, times) for size, times in ((step, whole), (rest, 1)) if size and times]


def estimate_cycles(conv: Conv2D, out_blocks: int, machine: Machine) -> float:
    """Cycles of an image, and of reading its weights from memory."""
    halves = BLOCK // machine.lanes
    cycles = 0.0
    for phase in conv.phases:
        steps = conv.span * phase.row_taps.count * phase.column_taps.count
        cycles += _grid_cycles(choose_tile(conv, phase, out_blocks, machine), phase, out_blocks, steps, halves, machine)
    weight_bytes = 4.0 * conv.kernel[0] * conv.kernel[1] * conv.span * out_blocks * BLOCK
    return cycles + weight_bytes / machine.memory_bytes_per_cycle


def conv2d_kernel(conv: Conv2D, body: Body, machine: Machine) -> Kernel:
    """The kernel of a convolution with its epilogue."""
    builder = Builder()
    for phase in conv.phases:
        _phase_loops(builder, conv, phase, body, machine)
    return body.kernel(builder.body, machine.lanes)


def _phase_loops(builder: Builder, conv: Conv2D, phase: Phase, body: Body, machine: Machine) -> None:
    """Units run chunk by chunk of bands, group by group of channel blocks within a chunk, band by band within a group:
    a group's weights and a chunk's input stay in the second-level cache."""
    out = body.output.layout
    batch, out_blocks = out.shape[0], out.num_blocks
    tile = choose_tile(conv, phase, out_blocks, machine)
    groups = -(-out_blocks // tile.blocks)
    bands = -(-phase.rows // tile.rows)
    chunk = choose_chunk(conv, phase, tile, groups, bands, machine)
    chunks = -(-bands // chunk)
    with builder.share(batch * groups * bands) as unit:
        image = builder.let_index("image", unit // (bands * groups))
        rest = unit % (bands * groups)
        part = builder.let_index("chunk", rest // (chunk * groups))
        within = rest - part * (chunk * groups)
        if chunks == 1 or bands % chunk == 0:
            group, band = within // chunk, within % chunk
        else:
            size = builder.let_index("size", _last_smaller(builder, part, chunks, chunk, bands))
            position = builder.let_index("within", within)
            group = Index.opaque(f"{position.as_factor()} / {size.as_factor()}")
            band = Index.opaque(f"{position.as_factor()} % {size.as_factor()}")
        group = builder.let_index("group", group)
        band = builder.let_index("band", part * chunk + band)

        def band_of(blocks: int, rows: int) -> None:
            corner = (image, group * tile.blocks, band * tile.rows)
            _band(builder, conv, phase, body, machine, Tile(rows, tile.columns, blocks), *corner)

        _split(
            builder,
            group,
            out_blocks,
            tile.blocks,
            lambda blocks: _split(builder, band, phase.rows, tile.rows, lambda rows: band_of(blocks, rows)),
        )


def _last_smaller(builder: Builder, part: Index, chunks: int, chunk: int, bands: int) -> Index:
    last = bands - (chunks - 1) * chunk
    return Index.opaque(builder.let("ptrdiff_t", "bands", f"{part} < {chunks - 1} ? {chunk} : {last}"))


def choose_chunk(conv: Conv2D, phase: Phase, tile: Tile, groups: int, bands: int, machine: Machine) -> int:
    """Bands in a chunk: the number that moves the fewest bytes into the second-level cache.

    A chunk's input is read once if it fits beside one group's weights, else once a group; all weights are read once if
    they fit beside a chunk's input, else once a chunk.
    """
    taps = conv.kernel[0] * conv.kernel[1]
    group_weights = 4 * tile.blocks * BLOCK * conv.span * taps
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


def _split(builder: Builder, number: Index, extent: int, step: int, emit: Callable[[int], None]) -> None:
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


def _band(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    tile: Tile,
    image: Index,
    first_block: Index,
    first_row: Index,
) -> None:
    """All tiles of one band of rows, then the halo beside them."""
    whole = phase.columns // tile.columns
    rest = phase.columns % tile.columns
    if whole:
        with builder.loop("x", whole * tile.columns, step=tile.columns) as column:
            _tile(builder, conv, phase, body, machine, tile, (image, first_block, first_row, column))
    if rest:
        last = Tile(tile.rows, rest, tile.blocks)
        _tile(
            builder, conv, phase, body, machine, last, (image, first_block, first_row, Index.of(whole * tile.columns))
        )
    _halo(builder, phase, body, tile, image, first_block, first_row)


def _halo(
    builder: Builder, phase: Phase, body: Body, tile: Tile, image: Index, first_block: Index, first_row: Index
) -> None:
    """The halo beside the rows of a band; of several phases the first does it, for the rows that they share."""
    if phase.origin != (0, 0):
        return
    scale, height = phase.scale[0], body.output.layout.shape[2]
    for number in range(tile.blocks):
        block = first_block + number
        if height % scale == 0:
            zero_halo(builder, body.output, image, block, first_row * scale, tile.rows * scale)
            continue
        with builder.loop("s", tile.rows * scale) as s:
            row = first_row * scale + s
            with builder.branch(f"{row} < {height}"):
                zero_halo(builder, body.output, image, block, row, 1)


def _tile(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    tile: Tile,
    corner: tuple[Index, Index, Index, Index],
) -> None:
    """Accumulate one register tile and store it through the epilogue."""
    image, first_block, first_row, first_column = corner
    lanes = machine.lanes
    halves = BLOCK // lanes
    vectors = tile.blocks * halves
    acc = builder.declare("rb_v", "acc", (tile.rows * tile.columns, vectors))
    with builder.loop("i", tile.rows * tile.columns, unroll=True) as i, builder.loop("j", vectors, unroll=True) as j:
        builder.assign(f"{acc}[{i}][{j}]", "rb_splat(0.0f)")
    _accumulate(builder, conv, phase, body, machine, tile, corner, acc)
    out = body.output.layout
    unroll = not is_heavy(body)
    if not unroll:
        acc = spill(builder, acc, (tile.rows * tile.columns, vectors))
    with builder.loop("b", tile.blocks, unroll=unroll) as b, builder.loop("h", halves, unroll=unroll) as h:
        lane = builder.axis("lane", lanes)
        block = first_block + b
        mask = pad_mask(builder, out, block, h * lanes if lanes == 1 else h, lanes)
        with builder.loop("r", tile.rows, unroll=unroll) as r, builder.loop("c", tile.columns, unroll=unroll) as c:
            index = [
                image,
                block * BLOCK + h * lanes + Index.of(lane),
                (first_row + r) * phase.scale[0] + phase.origin[0],
                (first_column + c) * phase.scale[1] + phase.origin[1],
            ]
            value = f"{acc}[{r * tile.columns + c}][{b * halves + h}]"
            store(builder, body, index, value, lanes, lane, mask)


def _accumulate(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    tile: Tile,
    corner: tuple[Index, Index, Index, Index],
    acc: str,
) -> None:
    whole, rest = divmod(conv.span, BLOCK)
    start = _span_start(builder, conv, corner[1])
    if whole:
        with builder.loop("ib", whole) as in_block:
            _taps(builder, conv, phase, body, machine, tile, corner, acc, (start, in_block), BLOCK)
    if rest:
        _taps(builder, conv, phase, body, machine, tile, corner, acc, (start, Index.of(whole)), rest)


def _span_start(builder: Builder, conv: Conv2D, block: Index) -> Index:
    """The first input channel that the blocks from `block` read."""
    start = (block * BLOCK) // conv.span_group * conv.span_step
    if start.upper is not None and start.upper <= conv.span_last:
        return start
    text = start.as_factor()
    return Index.opaque(builder.let("ptrdiff_t", "start", f"{text} < {conv.span_last} ? {text} : {conv.span_last}"))


def _taps(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    tile: Tile,
    corner: tuple[Index, Index, Index, Index],
    acc: str,
    source: tuple[Index, Index],
    channels: int,
) -> None:
    rows, columns = phase.row_taps, phase.column_taps
    with (
        builder.loop("kr", rows.count) as kr,
        builder.loop("kc", columns.count) as kc,
        builder.loop("ic", channels) as ic,
    ):
        _step(builder, conv, phase, body, machine, tile, corner, acc, (*source, kr, kc, ic))


def _step(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    tile: Tile,
    corner: tuple[Index, Index, Index, Index],
    acc: str,
    position: tuple[Index, Index, Index, Index, Index],
) -> None:
    """One broadcast of each pixel's input element against one row of weights."""
    image, first_block, first_row, first_column = corner
    start, in_block, kr, kc, ic = position
    rows, columns = phase.row_taps, phase.column_taps
    lanes, halves = machine.lanes, BLOCK // machine.lanes
    in_blocks = -(-conv.span // BLOCK)
    kernel_rows, kernel_columns = conv.kernel
    weights = builder.declare("rb_v", "w", (tile.blocks * halves,))
    weight_bytes = 4 * body.output.layout.num_blocks * BLOCK * conv.span * kernel_rows * kernel_columns
    from_memory = weight_bytes > machine.l2_bytes // 8
    weight_row = kr * rows.weight_step + rows.first
    weight_column = kc * columns.weight_step + columns.first

    def weight_address(b: IndexLike, h: IndexLike) -> Index:
        block = (first_block + b) * in_blocks + in_block
        position = (block * kernel_rows + weight_row) * kernel_columns + weight_column
        return position * (BLOCK * BLOCK) + ic * BLOCK + Index.of(h) * lanes

    first_weight = weight_address(0, 0)
    source = builder.let("float *", "weights", f"p1 + {first_weight}")
    with builder.loop("b", tile.blocks, unroll=True) as b, builder.loop("h", halves, unroll=True) as h:
        offset = weight_address(b, h) - first_weight
        builder.assign(f"{weights}[{b * halves + h}]", f"rb_load({source} + {offset})")
        if from_memory:
            builder.evaluate(f"RB_PREFETCH({source} + {offset + PREFETCH})")
    data = body.inputs[0].layout
    plane = data.address([0, start + in_block * BLOCK + ic, 0, 0]) - data.offset
    if not plane.is_linear:
        plane = builder.let_index("plane", plane)

    def data_address(r: IndexLike, c: IndexLike) -> Index:
        row = (first_row + r) * rows.stride + rows.shift + kr * rows.step
        column = (first_column + c) * columns.stride + columns.shift + kc * columns.step
        return data.address([image, 0, row, column]) + plane

    first_pixel = data_address(0, 0)
    pixels = builder.let("float *", "pixels", f"p0 + {first_pixel}")
    with builder.loop("r", tile.rows, unroll=True) as r, builder.loop("c", tile.columns, unroll=True) as c:
        value = builder.let("float", "a", f"{pixels}[{data_address(r, c) - first_pixel}]")
        with builder.loop("j", tile.blocks * halves, unroll=True) as j:
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
