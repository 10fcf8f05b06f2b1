"""Pooling over channel blocks, windowed and global; windows are clipped to the image; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Axis, Index
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import Body, is_heavy, pad_mask, store, zero_halo


@dataclass(frozen=True)
class Pool2D:
    """`reduce` is max or avg. An average divides by the clipped window, or by the window clipped to the padded image
    (bottom and right padding given by `padding[2:]`) where `count_include_pad`."""

    reduce: str
    size: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int] = (1, 1)
    count_include_pad: bool = False


def pool2d_kernel(pool: Pool2D, body: Body, machine: Machine) -> Kernel:
    """The kernel of a windowed pooling; input 0 is the data. A unit is one row of one channel block, or two.

    Where windows overlap much, each input column is first reduced over the window's rows, into scratch memory that has
    neutral columns where the image is padded; then neighbouring columns are reduced. Where windows one below the other
    overlap, two rows are computed together: what both need is reduced once.
    """
    builder = Builder()
    out = body.output.layout
    batch, _, height, width = out.shape
    separable = pool.size[0] > 1 and pool.size[1] > pool.strides[1] + 1
    overlaps = separable and pool.dilation[0] == 1 and pool.size[0] > 2 * pool.strides[0] and height > 1
    together = 2 if overlaps else 1
    if separable:
        _clear_columns(builder, together * _columns(pool, width), pool.reduce, machine.lanes)
    groups = -(-height // together)
    with builder.share(batch * out.num_blocks * groups) as unit:
        group = builder.let_index("group", unit % groups)
        block = builder.let_index("block", unit // groups % out.num_blocks)
        image = builder.let_index("image", unit // (groups * out.num_blocks))
        whole_mask = pad_mask(builder, out, block, 0, BLOCK) if machine.lanes == BLOCK else None

        def rows(first: Index, count: int) -> None:
            sites = []
            for number in range(count):
                row = builder.let_index("y", first + number)
                at = image, block, Index.of(0), row
                window = _window(builder, pool, 0, row, body)
                sites.append(_Site(builder, pool, body, machine, at, window, whole_mask, separable, number))
            if separable:
                _reduce_columns(sites)
            for site in sites:
                _row(site)

        if height % together == 0:
            rows(group * together, together)
        else:
            with builder.branch(f"{group} < {groups - 1}") as branch:
                rows(builder.let_index("first", group * together), together)
            with builder.block(branch.otherwise):
                rows(Index.of(height - 1), 1)
    scratch_bytes = 4 * together * _columns(pool, width) * BLOCK if separable else 0
    return body.kernel(builder.body, machine.lanes, scratch_bytes)


def _row(site: _Site) -> None:
    """A row of outputs."""
    builder, pool, body = site.builder, site.pool, site.body
    for begin, end, clipped in _ranges(pool, body, body.output.layout.shape[3], site.separable):
        tile = 1 if clipped else _tile_width(end - begin, site.machine)
        whole = (end - begin) // tile * tile
        with builder.loop("x", begin + whole, begin, step=tile, last=begin + whole - tile) as x:
            _tile(site, x, tile, clipped=clipped)
        if begin + whole < end:
            _tile(site, Index.of(begin + whole), end - begin - whole, clipped=clipped)
    image, block, _, row = site.at
    zero_halo(builder, body.output, image, block, row, 1)


@dataclass(frozen=True)
class _Site:
    """One row of one vector of channels: `at` is (image, block, half, row), `rows` what `_window` gives for the row,
    `number` counts the rows that are computed together.

    `halves` makes such sites of one whose half is none yet.
    """

    builder: Builder
    pool: Pool2D
    body: Body
    machine: Machine
    at: tuple[Index, Index, Index, Index]
    rows: tuple[str, str, Index]
    mask: str | None
    separable: bool
    number: int

    def channel(self, lane: Axis) -> Index:
        _, block, h, _ = self.at
        return block * BLOCK + h * self.machine.lanes + Index.of(lane)

    @contextmanager
    def halves(self) -> Iterator[_Site]:
        """The loop over the vectors of a channel block, which are of one cache line."""
        image, block, _, row = self.at
        lanes = self.machine.lanes
        with self.builder.loop("h", BLOCK // lanes) as h:
            half = h * lanes if lanes == 1 else h
            mask = self.mask if lanes == BLOCK else pad_mask(self.builder, self.body.output.layout, block, half, lanes)
            yield replace(self, at=(image, block, h, row), mask=mask)

    def column(self, number: Index) -> str:
        """The C text of the place in scratch memory of a column."""
        before = self.number * _columns(self.pool, self.body.output.layout.shape[3])
        return f"columns + {(number + before) * BLOCK + self.at[2] * self.machine.lanes}"

    def load(self, row: Index, column: Index) -> str:
        """The vector of channels at a pixel of the image."""
        lane = self.builder.axis("lane", self.machine.lanes)
        address = self.body.inputs[0].layout.address([self.at[0], self.channel(lane), row, column])
        return f"rb_load(p0 + {address.substitute({lane: 0})})"

    def accumulators(self, count: int) -> str:
        """An array of that many neutral values; returns its name."""
        acc = self.builder.declare("rb_v", "acc", (count,))
        with self.builder.loop("i", count, unroll=True) as i:
            self.builder.assign(f"{acc}[{i}]", f"rb_splat({_neutral(self.pool.reduce)})")
        return acc

    def accumulate(self, target: str, value: str) -> None:
        self.builder.assign(target, _combine(self.pool.reduce, target, value))


def _neutral(reduce: str) -> str:
    return "-INFINITY" if reduce == "max" else "0.0f"


def _combine(reduce: str, total: str, value: str) -> str:
    return f"rb_max({total}, {value})" if reduce == "max" else f"{total} + {value}"


def _tile_width(extent: int, machine: Machine) -> int:
    """Output columns a tile: enough accumulators to hide latency, and few columns left over."""
    most = min(8 if machine.registers >= 32 else 6, extent)
    return max(range(1, most + 1), key=lambda width: width / (1 + (extent % width != 0)))


def _columns(pool: Pool2D, width: int) -> int:
    """Columns that the windows of a row span, padding included."""
    return (width - 1) * pool.strides[1] + (pool.size[1] - 1) * pool.dilation[1] + 1


def _clear_columns(builder: Builder, count: int, reduce: str, lanes: int) -> None:
    """Make every column in scratch memory neutral; those outside the image stay so."""
    builder.evaluate("float *const columns = scratch")
    with builder.loop("c", count * (BLOCK // lanes)) as c:
        builder.evaluate(f"rb_store(columns + {c * lanes}, rb_splat({_neutral(reduce)}))")


def _reduce_columns(sites: Sequence[_Site]) -> None:
    """Reduce each column of the image that a window reads over the window's rows, some columns at a time.

    The windows of two rows read three runs of the image's rows: the first window's alone, both, the second's alone.
    """
    whole_site = sites[0]
    builder, pool = whole_site.builder, whole_site.pool
    left = pool.padding[1]
    extent = min(
        whole_site.body.inputs[0].layout.shape[3], _columns(pool, whole_site.body.output.layout.shape[3]) - left
    )
    windows = [(Index.opaque(first), Index.opaque(last), start) for first, last, start in (site.rows for site in sites)]

    fetches = _fetches_ahead(whole_site)

    def reduce(column: Index, count: int) -> None:
        if fetches:
            _fetch_rows(whole_site, len(sites), column, count)
        with whole_site.halves() as site:
            reduce_half(site, column, count)

    def reduce_half(site: _Site, column: Index, count: int) -> None:
        def accumulate(acc: str, begin: Index, end: Index, start: Index) -> None:
            with builder.loop("kr", end, begin) as kr, builder.loop("i", count, unroll=True) as i:
                site.accumulate(f"{acc}[{i}]", site.load(start + kr * pool.dilation[0], column + i))

        def keep(acc: str, number: int) -> None:
            place = replace(site, number=number).column
            with builder.loop("i", count, unroll=True) as i:
                builder.evaluate(f"rb_store({place(column + i + left)}, {acc}[{i}])")

        acc = site.accumulators(count)
        if len(windows) == 1:
            accumulate(acc, *windows[0])
            keep(acc, 0)
            return
        (first, last, start), (next_first, next_last, next_start) = windows
        down = pool.strides[0]
        accumulate(acc, next_first + down, last, start)
        other = builder.declare("rb_v", "acc", (count,))
        with builder.loop("i", count, unroll=True) as i:
            builder.assign(f"{other}[{i}]", f"{acc}[{i}]")
        accumulate(acc, first, next_first + down, start)
        keep(acc, 0)
        accumulate(other, last - down, next_last, next_start)
        keep(other, 1)

    if extent <= 0:
        return
    tile = _tile_width(extent, whole_site.machine)
    whole = extent // tile * tile
    with builder.loop("c", whole, step=tile, last=whole - tile) as column:
        reduce(column, tile)
    if whole < extent:
        reduce(Index.of(whole), extent - whole)


_FAR = 12
"""Multiples of the second-level cache from which an image is beyond a core's share of the third: measured; nearer by,
fetching ahead costs a tenth."""


def _fetches_ahead(site: _Site) -> bool:
    """Whether rows are fetched before their turn: they come from afar, and the hardware, which stops at each page, lags
    behind rows this short."""
    return site.machine.lanes > 1 and 4 * site.body.inputs[0].layout.size > _FAR * site.machine.l2_bytes


def _fetch_rows(site: _Site, together: int, column: Index, count: int) -> None:
    """Fetch, at some columns, the rows that the next rows of outputs are the first to read."""
    builder, pool = site.builder, site.pool
    image, block, _, _ = site.at
    data = site.body.inputs[0].layout
    down = pool.strides[0]
    reach = (pool.size[0] - 1) * pool.dilation[0] + (together - 1) * down
    source = data.address([image, block * BLOCK, site.rows[2] + reach + 1, column])
    with builder.loop("r", together * down, unroll=True) as r, builder.loop("i", count, unroll=True) as i:
        builder.evaluate(f"RB_PREFETCH(p0 + {source + r * data.strides[2] + i * data.strides[3]})")


def _ranges(pool: Pool2D, body: Body, width: int, separable: bool) -> list[tuple[int, int, bool]]:
    """Output columns as (first, past the last, whether their windows are clipped to the image)."""
    if separable and pool.reduce == "max":
        return [(0, width, False)]
    inside = _interior(pool, body, width)
    parts = [(0, inside[0], True), (*inside, False), (inside[1], width, True)]
    return [part for part in parts if part[0] < part[1]]


def _interior(pool: Pool2D, body: Body, width: int) -> tuple[int, int]:
    """The output columns whose windows lie wholly in the image."""
    extent = body.inputs[0].layout.shape[3]
    reach = (pool.size[1] - 1) * pool.dilation[1]
    begin = min(width, -(-pool.padding[1] // pool.strides[1]))
    last = (extent - 1 - reach + pool.padding[1]) // pool.strides[1]
    return begin, max(begin, min(width, last + 1))


def _window(builder: Builder, pool: Pool2D, dimension: int, position: Index, body: Body) -> tuple[str, str, Index]:
    """(first tap, past the last tap, position of tap 0) of a window clipped to the image."""
    extent = body.inputs[0].layout.shape[2 + dimension]
    dilation = pool.dilation[dimension]
    start = position * pool.strides[dimension] - pool.padding[dimension]
    size = pool.size[dimension]
    stem = "row" if dimension == 0 else "column"
    above = f"({start}) < 0 ? ({-start} + {dilation - 1}) / {dilation} : 0"
    past = f"({start}) + {(size - 1) * dilation} < {extent} ? {size} : ({extent - start} + {dilation - 1}) / {dilation}"
    first = builder.let("ptrdiff_t", f"{stem}_first", above)
    last = builder.let("ptrdiff_t", f"{stem}_last", past)
    return first, last, start


def _tile(site: _Site, x: Index, count: int, *, clipped: bool) -> None:
    """`count` neighbouring output columns; only one where its window is clipped."""
    with site.halves() as half:
        _half_tile(half, x, count, clipped=clipped)


def _half_tile(site: _Site, x: Index, count: int, *, clipped: bool) -> None:
    builder, pool = site.builder, site.pool
    acc = site.accumulators(count)
    window = _window(builder, pool, 1, x, site.body) if clipped else None
    if site.separable:
        _gather_columns(site, acc, x, count)
    else:
        _gather_pixels(site, acc, x, count, window)
    if pool.reduce == "avg":
        scale = builder.let("float", "scale", f"1.0f / (float)({_count(site, x, window)})")
        with builder.loop("i", count, unroll=True) as i:
            builder.assign(f"{acc}[{i}]", f"{acc}[{i}] * {scale}")
    image, _, _, row = site.at
    unroll = count == 1 or not is_heavy(site.body)
    lane = builder.axis("lane", site.machine.lanes)
    with builder.loop("i", count, unroll=unroll) as i:
        index = [image, site.channel(lane), row, x + i]
        store(builder, site.body, index, f"{acc}[{i}]", site.machine.lanes, lane, site.mask)


def _gather_columns(site: _Site, acc: str, x: Index, count: int) -> None:
    """Combine neighbouring columns of scratch memory."""
    pool = site.pool
    if pool.strides[1] == pool.dilation[1] == 1 and count > 1 and _LEAST_SHARED <= pool.size[1] <= _MOST_UNROLLED:
        _gather_runs(site, acc, x, count)
        return
    with (
        site.builder.loop("kc", pool.size[1], unroll=pool.size[1] <= _MOST_UNROLLED) as kc,
        site.builder.loop("i", count, unroll=True) as i,
    ):
        column = (x + i) * pool.strides[1] + kc * pool.dilation[1]
        site.accumulate(f"{acc}[{i}]", f"rb_load({site.column(column)})")


_LEAST_SHARED = 4
"""Taps of a window's row from which neighbouring windows share what runs of their columns are combined to."""


def _gather_runs(site: _Site, acc: str, x: Index, count: int) -> None:
    """Combine neighbouring columns by runs of two, four and so on, each of two shorter ones, to windows."""
    builder, pool = site.builder, site.pool
    size = pool.size[1]
    length, runs = 1, builder.declare("rb_v", "runs", (count + size - 1,))
    with builder.loop("i", count + size - 1, unroll=True) as i:
        builder.assign(f"{runs}[{i}]", f"rb_load({site.column(x + i)})")
    offset = 0
    while True:
        if size & length:
            with builder.loop("i", count, unroll=True) as i:
                part = f"{runs}[{i + offset}]"
                builder.assign(f"{acc}[{i}]", _combine(pool.reduce, f"{acc}[{i}]", part) if offset else part)
            offset += length
        if 2 * length > size:
            return
        longer = builder.declare("rb_v", "runs", (count + size - 2 * length,))
        with builder.loop("i", count + size - 2 * length, unroll=True) as i:
            builder.assign(f"{longer}[{i}]", _combine(pool.reduce, f"{runs}[{i}]", f"{runs}[{i + length}]"))
        length, runs = 2 * length, longer


_MOST_UNROLLED = 8
"""Taps of a window's row that are written out."""


def _gather_pixels(site: _Site, acc: str, x: Index, count: int, window: tuple[str, str, Index] | None) -> None:
    """Combine the pixels of a window."""
    builder, pool = site.builder, site.pool
    first: Index | int = 0
    last: Index | int = pool.size[1]
    if window is not None:
        first, last = Index.opaque(window[0]), Index.opaque(window[1])
    row_first, row_last, row_start = site.rows
    with (
        builder.loop("kr", Index.opaque(row_last), Index.opaque(row_first)) as kr,
        builder.loop("kc", last, first, unroll=window is None and pool.size[1] <= _MOST_UNROLLED) as kc,
        builder.loop("i", count, unroll=True) as i,
    ):
        column = (x + i) * pool.strides[1] - pool.padding[1] + kc * pool.dilation[1]
        site.accumulate(f"{acc}[{i}]", site.load(row_start + kr * pool.dilation[0], column))


def _count(site: _Site, x: Index, window: tuple[str, str, Index] | None) -> str:
    """What an average divides by."""
    pool = site.pool
    row_first, row_last, row_start = site.rows
    rows, columns = f"({row_last} - {row_first})", str(pool.size[1])
    if window is not None:
        columns = f"({window[1]} - {window[0]})"
    if pool.count_include_pad:
        rows = _padded_count(pool, 0, row_start, site.body)
        columns = _padded_count(pool, 1, window[2], site.body) if window is not None else columns
    return f"{rows} * {columns}"


def _padded_count(pool: Pool2D, dimension: int, start: Index, body: Body) -> str:
    """Taps of a window that starts at `start` within the padded image."""
    extent = body.inputs[0].layout.shape[2 + dimension] + pool.padding[2 + dimension]
    size, dilation = pool.size[dimension], pool.dilation[dimension]
    reach = start + (size - 1) * dilation
    past = (extent - start).as_factor()
    if reach.upper is not None and reach.upper < extent:
        return str(size)
    return f"({reach} < {extent} ? {size} : ({past} + {dilation - 1}) / {dilation})"


def global_pool2d_kernel(reduce: str, body: Body, machine: Machine) -> Kernel:
    """The kernel of a pooling over whole images; input 0 is the data.

    A unit is a channel block, all vectors of which are read together, since they are of one cache line; without
    vectors it is a channel.
    """
    builder = Builder()
    layout = body.inputs[0].layout
    out = body.output.layout
    batch, _, height, width = layout.shape
    lanes = machine.lanes
    together = BLOCK // lanes if lanes > 1 else 1
    units = BLOCK // lanes // together
    parts = 4 if width >= 4 else 1
    with builder.share(batch * out.num_blocks * units) as unit:
        start = builder.let_index("h", unit % units)
        block = builder.let_index("block", unit // units % out.num_blocks)
        image = builder.let_index("image", unit // (units * out.num_blocks))
        halves = [start + number for number in range(together)]
        sums = [_GlobalSum(builder, reduce, parts) for _ in halves]
        lane = builder.axis("lane", lanes)

        def channel(half: Index) -> Index:
            return block * BLOCK + half * lanes + Index.of(lane)

        def accumulate(row: Index, column: Index, part: Index) -> None:
            for half, total in zip(halves, sums):
                address = layout.address([image, channel(half), row, column]).substitute({lane: 0})
                total.add(f"rb_load(p0 + {address})", part)

        with builder.loop("y", height) as y:
            whole = width // parts * parts
            with builder.loop("x", whole, step=parts) as x, builder.loop("i", parts, unroll=True) as i:
                accumulate(y, x + i, i)
            if whole < width:
                with builder.loop("x", width, whole) as x:
                    accumulate(y, x, Index.of(0))
        for half, total in zip(halves, sums):
            result = total.result(height * width)
            mask = pad_mask(builder, out, block, half * lanes if lanes == 1 else half, lanes)
            store(builder, body, [image, channel(half), 0, 0], result, lanes, lane, mask)
        zero_halo(builder, body.output, image, block, 0, 1)
    return body.kernel(builder.body, lanes)


class _GlobalSum:
    """A vector's sum or maximum, in `parts` accumulators."""

    def __init__(self, builder: Builder, reduce: str, parts: int) -> None:
        self._builder = builder
        self._reduce = reduce
        self._parts = parts
        self._acc = builder.declare("rb_v", "acc", (parts,))
        with builder.loop("i", parts, unroll=True) as i:
            builder.assign(f"{self._acc}[{i}]", f"rb_splat({_neutral(reduce)})")

    def add(self, value: str, part: Index) -> None:
        """Combine a value with those of an accumulator."""
        target = f"{self._acc}[{part}]"
        self._builder.assign(target, _combine(self._reduce, target, value))

    def result(self, count: int) -> str:
        """The name of all accumulators combined; of an average over `count` values, their mean."""
        builder = self._builder
        total = builder.declare("rb_v", "total")
        builder.assign(total, f"{self._acc}[0]")
        with builder.loop("i", self._parts, 1, unroll=True) as i:
            builder.assign(total, _combine(self._reduce, total, f"{self._acc}[{i}]"))
        if self._reduce == "avg":
            builder.assign(total, f"{total} * (1.0f / {count}.0f)")
        return total
