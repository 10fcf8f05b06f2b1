"""Convolution with output pixels in the lanes of a vector, for channels that would leave channel blocks half empty.

A unit is a band of output rows of a few whole groups. Its input is transposed out of channel blocks into scratch, one
plane a channel (and a phase of the stride), so that neighbouring outputs of all rows read neighbouring elements. A
register tile is some output channels of one group times some vectors of pixels: each input channel and tap costs a load
per vector and a broadcast weight per channel, and no product is with a zero. The sums go to scratch by channel and from
there, transposed back, through the epilogue. Knows nothing of the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import gcd, lcm

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Index
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import Body, is_heavy, pad_mask, store, zero_halo
from relaybuild.lower.templates.conv2d import Phase, Taps, cover, split_tiles

LEAST_UNITS = 8
"""Units there should be to share among threads, where a band keeps at least `SHORT_BAND` rows."""
SHORT_BAND = 4
MOST_OUTPUTS = 16
MOST_VECTORS = 14
MOST_HEIGHTS = 8
"""Heights of bands that are compared."""


@dataclass(frozen=True)
class PixelConv2D:
    """What to compute: `groups` groups of `inputs` to `outputs` channels, over one phase whose taps step forwards.

    Input 0 of the body is the data in channel blocks with the halo that the taps reach, input 1 the weights packed as
    [group][tile][input][kernel rows][kernel columns][output of the tile].
    """

    phase: Phase
    groups: int
    inputs: int
    outputs: int
    batch: int = 1

    @property
    def joined(self) -> int:
        """Groups in a unit: so many that their outputs fill channel blocks, or all."""
        return min(self.groups, lcm(self.outputs, BLOCK) // self.outputs)

    @property
    def in_blocks(self) -> int:
        """Channel blocks that hold the inputs of the groups of a unit, wherever they begin in a block."""
        channels = self.joined * self.inputs
        starts = range(0, self.groups * self.inputs, channels)
        ends = (min(start + channels, self.groups * self.inputs) for start in starts)
        return max(-(-end // BLOCK) - start // BLOCK for start, end in zip(starts, ends))

    @property
    def out_blocks(self) -> int:
        """Channel blocks that a unit writes."""
        return -(-self.joined * self.outputs // BLOCK)

    @property
    def units_of_rows(self) -> int:
        """Units of an image that has one band."""
        return -(-self.groups // self.joined)


@dataclass(frozen=True)
class PixelSchedule:
    """A register tile of `outputs` channels and `vectors` vectors of pixels, and the rows and columns of a band."""

    outputs: int
    vectors: int
    rows: int
    columns: int


@dataclass(frozen=True)
class _Split:
    """Taps along one dimension by remainder of the stride: tap i reads position `quotient(i)` after the output's own,
    of the phase with remainder `i * step % stride`."""

    taps: Taps

    @property
    def unit(self) -> int:
        return gcd(self.taps.stride, self.taps.step)

    @property
    def phases(self) -> int:
        """Phases that are kept: remainders 0, unit, 2 * unit ... up to the largest that a tap has."""
        remainders = [i * self.taps.step % self.taps.stride for i in range(self.taps.count)]
        return max(remainders) // self.unit + 1

    @property
    def reach(self) -> int:
        """The largest quotient."""
        return (self.taps.count - 1) * self.taps.step // self.taps.stride

    def reach_of(self, phase: int) -> int:
        """The largest quotient of the taps of one phase, -1 where it has none."""
        taps = self.taps
        steps = [i * taps.step for i in range(taps.count)]
        return max((s // taps.stride for s in steps if s % taps.stride == phase * self.unit), default=-1)

    def of(self, tap: Index) -> tuple[Index, Index]:
        """(phase, quotient) of a tap."""
        position = tap * self.taps.step
        return position % self.taps.stride // self.unit, position // self.taps.stride


@dataclass(frozen=True)
class _Planes:
    """Sizes in elements of the scratch that a schedule needs.

    The rows of a plane lie `pitch` apart, outputs as well as inputs; a plane of inputs holds one phase of one channel
    and has room for a vector that begins in its last row. `strip` is the pixels of a register tile, `pixels` those of
    a band, in whole strips.
    """

    pitch: int
    rows: int
    plane: int
    channel: int
    strip: int
    pixels: int
    packed: int
    sums: int

    @property
    def num_bytes(self) -> int:
        return 4 * (self.packed + self.sums)


def _planes(conv: PixelConv2D, schedule: PixelSchedule, machine: Machine) -> _Planes:
    rows, columns = _Split(conv.phase.row_taps), _Split(conv.phase.column_taps)
    pitch = schedule.columns + columns.reach
    height = schedule.rows + rows.reach
    plane = height * pitch + machine.lanes
    channel = plane * rows.phases * columns.phases
    # Channels a multiple of a page apart would fall into the same sets of the first-level cache.
    channel += BLOCK if channel % 256 < BLOCK else 0
    strip = schedule.vectors * machine.lanes
    pixels = -(-((schedule.rows - 1) * pitch + schedule.columns) // strip) * strip
    beyond = max(0, pixels + rows.reach * pitch + columns.reach - plane)
    packed = conv.in_blocks * BLOCK * channel + beyond
    sums = conv.out_blocks * BLOCK * pixels + machine.lanes
    return _Planes(pitch, height, plane, channel, strip, pixels, -(-packed // BLOCK) * BLOCK, sums)


@lru_cache(maxsize=64)
def choose_pixel_schedule(conv: PixelConv2D, machine: Machine) -> PixelSchedule | None:
    """The schedule of least estimated time whose scratch stays in half of the second-level cache, if there is one."""
    best: tuple[float, PixelSchedule] | None = None
    for rows, columns in _bands(conv, machine):
        for vectors in range(1, MOST_VECTORS + 1):
            for outputs in range(1, min(conv.outputs, MOST_OUTPUTS) + 1):
                schedule = PixelSchedule(outputs, vectors, rows, columns)
                if not machine.fits(outputs, vectors):
                    break
                cost = _cycles(conv, schedule, machine)
                if best is None or cost < best[0] * 0.999:
                    best = (cost, schedule)
    return best[1] if best else None


def _bands(conv: PixelConv2D, machine: Machine) -> list[tuple[int, int]]:
    """(rows, columns) of bands whose scratch fits: whole rows where `SHORT_BAND` of them do, else parts of rows."""
    heights = _band_heights(conv)
    short = min(SHORT_BAND, heights[0])
    fitting: list[tuple[int, int]] = []
    for parts in range(1, max(1, conv.phase.columns // (2 * machine.lanes)) + 1):
        columns = -(-conv.phase.columns // parts)
        fitting = [
            (rows, columns)
            for rows in heights
            if _planes(conv, PixelSchedule(1, 3, rows, columns), machine).num_bytes <= machine.l2_bytes // 2
        ]
        if fitting and fitting[0][0] >= short:
            break
    return fitting[:MOST_HEIGHTS]


def _band_heights(conv: PixelConv2D) -> list[int]:
    """Heights of bands of nearly equal size, the tallest first, that leave enough units."""
    height = conv.phase.rows
    units = conv.batch * conv.units_of_rows
    most = max(min(height, SHORT_BAND), height // -(-LEAST_UNITS // units))
    heights = {-(-height // bands) for bands in range(1, height + 1)}
    return sorted((rows for rows in heights if rows <= most), reverse=True)


def estimate_cycles(conv: PixelConv2D, machine: Machine) -> float | None:
    """Cycles of an image, and of reading its weights from memory, or None where the scratch would be too large."""
    schedule = choose_pixel_schedule(conv, machine)
    if schedule is None:
        return None
    taps = conv.phase.row_taps.count * conv.phase.column_taps.count
    weight_bytes = 4.0 * conv.groups * conv.inputs * conv.outputs * taps
    return _cycles(conv, schedule, machine) + weight_bytes / machine.memory_bytes_per_cycle


def _cycles(conv: PixelConv2D, schedule: PixelSchedule, machine: Machine) -> float:
    row_taps, column_taps = conv.phase.row_taps, conv.phase.column_taps
    split_rows, split_columns = _Split(row_taps), _Split(column_taps)
    planes = _planes(conv, schedule, machine)
    products = schedule.outputs * schedule.vectors
    # A vector as wide as a cache line mostly lies in two, and such loads were measured to cost four times as much.
    loads = schedule.vectors * (0.5 + 1.7 * machine.lanes / 16) + schedule.outputs / 2
    step = max(products / 2, loads, 4.0) + 0.5
    tile = conv.inputs * row_taps.count * column_taps.count * step + products + 20.0
    tiles = conv.groups * -(-conv.outputs // schedule.outputs)
    in_planes = conv.units_of_rows * conv.in_blocks * BLOCK * split_rows.phases * split_columns.phases
    out_planes = -(-conv.groups * conv.outputs // BLOCK) * BLOCK
    cycles = 0.0
    for rows, row_times in cover(conv.phase.rows, schedule.rows):
        for columns, column_times in cover(conv.phase.columns, schedule.columns):
            strips = -(-((rows - 1) * planes.pitch + columns) // planes.strip)
            in_vectors = (rows + split_rows.reach) * -(-(columns + split_columns.reach) // machine.lanes) * in_planes
            out_vectors = rows * -(-columns // machine.lanes) * out_planes
            unit = tiles * strips * tile + 6.0 * in_vectors + 8.0 * out_vectors + 300.0 * conv.units_of_rows
            cycles += unit * row_times * column_times
    return cycles


def pixel_conv2d_kernel(conv: PixelConv2D, schedule: PixelSchedule, body: Body, machine: Machine) -> Kernel:
    """The kernel of a convolution with its epilogue."""
    builder = Builder()
    planes = _planes(conv, schedule, machine)
    units = conv.units_of_rows
    bands, strips = -(-conv.phase.rows // schedule.rows), -(-conv.phase.columns // schedule.columns)
    builder.evaluate("float *const packed = scratch")
    builder.evaluate(f"float *const sums = packed + {planes.packed}")
    with builder.share(body.output.layout.shape[0] * units * bands * strips) as unit:
        strip = builder.let_index("side", unit % strips)
        band = builder.let_index("band", unit // strips % bands)
        part = builder.let_index("part", unit // (strips * bands) % units)
        image = builder.let_index("image", unit // (strips * bands * units))
        rows = _size_of(builder, "rows", band, schedule.rows, conv.phase.rows)

        def emit(columns: int) -> None:
            row, column = band * schedule.rows, strip * schedule.columns
            _Loops(builder, conv, schedule, planes, body, machine, image, part, row, rows, column, columns).emit()

        split_tiles(builder, strip, conv.phase.columns, schedule.columns, emit)
    return body.kernel(builder.body, machine.lanes, planes.num_bytes)


def _size_of(builder: Builder, stem: str, number: Index, step: int, extent: int) -> Index:
    """How many of `extent` things are in the part with this number, of parts of `step`."""
    if extent % step == 0:
        return Index.of(step)
    last, rest = divmod(extent, step)
    if last == 0:
        return Index.of(rest)
    return Index.opaque(builder.let("ptrdiff_t", stem, f"{number.as_factor()} < {last} ? {step} : {rest}"))


@dataclass(frozen=True)
class _Loops:
    """Emits the loops of one unit into `builder`: `rows` by `columns` outputs from (row, column) of the groups with
    number `part`."""

    builder: Builder
    conv: PixelConv2D
    schedule: PixelSchedule
    planes: _Planes
    body: Body
    machine: Machine
    image: Index
    part: Index
    row: Index
    rows: Index
    column: Index
    columns: int

    def emit(self) -> None:
        """The unit."""
        first_block = self.first_block()
        self.pack(first_block)
        self.multiply(first_block)
        self.store()

    @property
    def halves(self) -> int:
        """Vectors in a channel block."""
        return BLOCK // self.machine.lanes

    def first_block(self) -> Index:
        """The first channel block of the input that is transposed."""
        conv = self.conv
        first = self.part * (conv.joined * conv.inputs) // BLOCK
        last = -(-conv.groups * conv.inputs // BLOCK) - conv.in_blocks
        if first.upper is not None and first.upper <= last:
            return self.builder.let_index("first_block", first)
        text = first.as_factor()
        return Index.opaque(self.builder.let("ptrdiff_t", "first_block", f"{text} < {last} ? {text} : {last}"))

    def pack(self, first_block: Index) -> None:
        """Transpose the rows that the band reads into planes."""
        builder, conv = self.builder, self.conv
        rows, columns = _Split(conv.phase.row_taps), _Split(conv.phase.column_taps)
        with (
            builder.loop("ib", conv.in_blocks) as ib,
            builder.loop("pr", rows.phases) as pr,
            builder.loop("q", self.rows + rows.reach, last=self.planes.rows - 1) as q,
        ):
            source_row = self._source_row(q, pr)
            for pc in range(columns.phases):
                count = self.columns + columns.reach_of(pc)
                if columns.reach_of(pc) < 0:
                    continue
                origin = conv.phase.column_taps.shift + pc * columns.unit
                target = (
                    ib * (BLOCK * self.planes.channel) + self._phase_plane(pr, Index.of(pc)) + q * self.planes.pitch
                )
                with builder.loop("h", self.halves) as h:
                    self._pack_row(first_block + ib, h, source_row, (origin, count), target)

    def _source_row(self, q: Index, pr: Index) -> Index:
        """The input row of row `q` of the planes of a row phase; a row that no output reads may be another one."""
        taps, layout = self.conv.phase.row_taps, self.body.inputs[0].layout
        split = _Split(taps)
        row = (self.row + q) * taps.stride + taps.shift + pr * split.unit
        last = layout.shape[2] + layout.halo[2] - 1
        most = (self.conv.phase.rows - 1 + split.reach) * taps.stride + taps.shift + (split.phases - 1) * split.unit
        if most <= last:
            return self.builder.let_index("source_row", row) if row.lower is not None and row.lower >= 0 else row
        return Index.opaque(self.builder.let("ptrdiff_t", "source_row", f"{row} < {last} ? {row} : {last}"))

    def _pack_row(self, block: Index, h: Index, row: Index, columns: tuple[int, int], target: Index) -> None:
        """Transpose `columns` (first input column, count) of a row, of a vector of channels."""
        builder, lanes = self.builder, self.machine.lanes
        whole, rest = divmod(columns[1], lanes)
        if whole:
            with builder.loop("x", whole * lanes, step=lanes, last=(whole - 1) * lanes) as x:
                self._pack_square(block, h, row, (columns[0], x, lanes), target)
        if rest:
            self._pack_square(block, h, row, (columns[0], Index.of(whole * lanes), rest), target)

    def _pack_square(self, block: Index, h: Index, row: Index, at: tuple[int, Index, int], target: Index) -> None:
        """Transpose `count` pixels from x on, where `at` is (first input column, x, count)."""
        builder, lanes, stride = self.builder, self.machine.lanes, self.conv.phase.column_taps.stride
        origin, x, count = at
        lane = builder.axis("lane", lanes)
        channel = block * BLOCK + h * lanes + Index.of(lane)
        square = builder.declare("rb_v", "square", (lanes,))

        def address(i: Index) -> Index:
            index = [self.image, channel, row, (self.column + x + i) * stride + origin]
            return self.body.inputs[0].layout.address(index).substitute({lane: 0})

        first = address(Index.of(0))
        source = builder.let("float *", "source", f"p0 + {first}")
        if count == lanes:
            builder.evaluate(f"rb_load_transposed({square}, {source}, {address(Index.of(1)) - first})")
        else:
            with builder.loop("i", count, unroll=True) as i:
                builder.assign(f"{square}[{i}]", f"rb_load({source} + {address(i) - first})")
            with builder.loop("i", lanes, count, unroll=True) as i:
                builder.assign(f"{square}[{i}]", "rb_splat(0.0f)")
            builder.evaluate(f"rb_transpose({square})")
        into = builder.name("into")
        builder.evaluate(f"float *const {into} = packed + {target + h * (lanes * self.planes.channel) + x}")
        with builder.loop("i", lanes, unroll=True) as i:
            builder.evaluate(f"rb_store({into} + {i * self.planes.channel}, {square}[{i}])")

    def _phase_plane(self, pr: Index, pc: Index) -> Index:
        return (pr * _Split(self.conv.phase.column_taps).phases + pc) * self.planes.plane

    def multiply(self, first_block: Index) -> None:
        """The sums of the band, by channel: groups, strips of pixels, then tiles of output channels."""
        builder, conv, planes = self.builder, self.conv, self.planes
        groups = _size_of(builder, "groups", self.part, conv.joined, conv.groups)
        flat = (self.rows - 1) * planes.pitch + self.columns
        count = planes.pixels // planes.strip
        strips = (flat + (planes.strip - 1)) // planes.strip
        if self.rows.constant is None:
            value = f"({flat + (planes.strip - 1)}) / {planes.strip}"
            strips = Index.opaque(builder.let("ptrdiff_t", "strips", value))
        start = builder.let_index("start", self.part * (conv.joined * conv.inputs) - first_block * BLOCK)
        with (
            builder.loop("g", groups, last=conv.joined - 1) as g,
            builder.loop("s", strips, last=count - 1) as s,
            builder.loop("t", self._tiles) as t,
        ):
            pixel = s * planes.strip
            acc = self._accumulate((start + g * conv.inputs) * planes.channel + pixel, g, t)
            self._keep(acc, g * conv.outputs + self._first_output(t), pixel)

    @property
    def _tiles(self) -> int:
        """Register tiles that cover the outputs of a group; the last may overlap the one before it."""
        return -(-self.conv.outputs // self.schedule.outputs)

    def _first_output(self, t: Index) -> Index:
        size, last = self.schedule.outputs, self.conv.outputs - self.schedule.outputs
        if t.upper is not None and t.upper * size <= last:
            return t * size
        return Index.opaque(self.builder.let("ptrdiff_t", "output", f"{t * size} < {last} ? {t * size} : {last}"))

    def _accumulate(self, source: Index, g: Index, t: Index) -> str:
        builder, conv, schedule, lanes = self.builder, self.conv, self.schedule, self.machine.lanes
        acc = builder.declare("rb_v", "acc", (schedule.outputs, schedule.vectors))
        with self._tile() as (o, v):
            builder.assign(f"{acc}[{o}][{v}]", "rb_splat(0.0f)")
        rows, columns = conv.phase.row_taps, conv.phase.column_taps
        pixels = builder.let("float *", "pixels", f"packed + {source}")
        tile = (self.part * conv.joined + g) * self._tiles + t
        step = schedule.outputs * rows.count * columns.count
        weights = builder.let("float *", "weights", f"p1 + {tile * (conv.inputs * step)}")
        with (
            builder.loop("ic", conv.inputs) as ic,
            builder.loop("kr", rows.count) as kr,
            builder.loop("kc", columns.count, unroll=columns.stride > 1) as kc,
        ):
            (pr, qr), (pc, qc) = _Split(rows).of(kr), _Split(columns).of(kc)
            offset = ic * self.planes.channel + self._phase_plane(pr, pc) + qr * self.planes.pitch + qc
            x = builder.declare("rb_v", "x", (schedule.vectors,))
            near = builder.let("float *", "near", f"{pixels} + {offset}")
            with builder.loop("v", schedule.vectors, unroll=True) as v:
                builder.assign(f"{x}[{v}]", f"rb_load({near} + {v * lanes})")
            row = builder.let(
                "float *", "row", f"{weights} + {ic * step + (kr * columns.count + kc) * schedule.outputs}"
            )
            with builder.loop("o", schedule.outputs, unroll=True) as o:
                w = builder.let("float", "w", f"{row}[{o}]")
                with builder.loop("v", schedule.vectors, unroll=True) as v:
                    builder.assign(f"{acc}[{o}][{v}]", f"{w} * {x}[{v}]", "+=")
        return acc

    @contextmanager
    def _tile(self) -> Iterator[tuple[Index, Index]]:
        with (
            self.builder.loop("o", self.schedule.outputs, unroll=True) as o,
            self.builder.loop("v", self.schedule.vectors, unroll=True) as v,
        ):
            yield o, v

    def _keep(self, acc: str, channel: Index, pixel: Index) -> None:
        """Store a register tile among the sums."""
        with self._tile() as (o, v):
            address = (channel + o) * self.planes.pixels + pixel + v * self.machine.lanes
            self.builder.evaluate(f"rb_store(sums + {address}, {acc}[{o}][{v}])")

    def store(self) -> None:
        """Transpose the sums back and store them through the epilogue, block by block and row by row."""
        builder, conv, lanes = self.builder, self.conv, self.machine.lanes
        output = self.body.output
        blocks = _size_of(builder, "blocks", self.part, conv.out_blocks, output.layout.num_blocks)
        whole, rest = divmod(self.columns, lanes)
        with builder.loop("b", blocks, last=conv.out_blocks - 1) as b:
            block = builder.let_index("block", self.part * conv.out_blocks + b)
            with builder.loop("h", self.halves) as h:
                mask = pad_mask(builder, output.layout, block, h * lanes if lanes == 1 else h, lanes)
                with builder.loop("r", self.rows, last=self.schedule.rows - 1) as r:
                    if whole:
                        with builder.loop("x", whole * lanes, step=lanes, last=(whole - 1) * lanes) as x:
                            self._store_square(block, (b, h, r, x), lanes, mask)
                    if rest:
                        self._store_square(block, (b, h, r, Index.of(whole * lanes)), rest, mask)
            self._halo(block)

    def _halo(self, block: Index) -> None:
        """The halo beside the rows, which the leftmost unit writes."""
        builder, output = self.builder, self.body.output
        if not any(output.layout.halo):
            return
        with builder.branch(f"{self.column} == 0"):
            zero_halo(builder, output, self.image, block, self.row, self.rows)

    def _store_square(self, block: Index, at: tuple[Index, Index, Index, Index], count: int, mask: str | None) -> None:
        builder, planes, lanes = self.builder, self.planes, self.machine.lanes
        b, h, r, x = at
        square = builder.declare("rb_v", "square", (lanes,))
        source = (b * BLOCK + h * lanes) * planes.pixels + r * planes.pitch + x
        builder.evaluate(f"rb_load_transposed({square}, sums + {source}, {planes.pixels})")
        lane = builder.axis("lane", lanes)
        with builder.loop("i", count, unroll=not is_heavy(self.body)) as i:
            index = [self.image, block * BLOCK + h * lanes + Index.of(lane), self.row + r, self.column + x + i]
            store(builder, self.body, index, f"{square}[{i}]", lanes, lane, mask)
