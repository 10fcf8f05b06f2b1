"""One loop nest that computes each element of its output from elements of its inputs; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import NamedTuple

from relaybuild.dataclass import dataclass
from relaybuild.lower.emit import c_type
from relaybuild.lower.index import Axis, Index, IndexLike, delinearize
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel, Let
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, indices_of, walk
from relaybuild.lower.templates.body import Body, is_heavy, pad_mask, store, stray_reads, vector_body, zero_halo
from relaybuild.lower.templates.tables import Place, Tables, Window, define_table, staged, with_position_tables
from relaybuild.lower.templates.transpose import Ahead, Places, crosses, store_tile

CHUNK = 4096
"""Elements of the innermost loop that one thread takes at a time."""

RUN = 64
"""Elements that are written one after another where a kernel reads across the order in which it writes."""

KEPT_BYTES = 1 << 14
"""Of the rows of a staged value that lie near: half of the nearest cache. Wider rows are computed in parts."""

KEPT_PARTS = 8
"""Parts of the second-level cache, of which these rows may take one where the output is large: it comes fastest in the
order of its addresses."""

WRITES_AHEAD = 512
"""Elements by which the output of a staged map is fetched ahead, at least, where it is large."""

FAR = 8
"""Sizes of the second-level cache from which an output is large: the third level brings lines fast enough."""

LINE = 16
"""Elements of a cache line, which rows that are written together are given in turn: a processor joins writes to the
same line where they follow each other."""

MOST_PAIRS = 0.55
"""Pairs and single rows, for each row, up to which rows of a row-major output are written in pairs: nearly all are in
one. Where many stay single, reads that are saved do not pay for writes to two places."""

BEYOND = 48
"""Sizes of the second-level cache up to which an output is written in pairs of rows: one from memory is best written in
order."""

UNITS = 16
"""Parts for threads to share, at least, where a kernel can be cut."""


class Line(NamedTuple):
    """A row of what `body` computes, at position `y` of the last dimension but one."""

    body: Body
    y: Index


def map_kernel(body: Body, machine: Machine) -> Kernel:
    """The kernel of a map, over channel blocks or row-major by the output's layout."""
    if body.output.layout.block > 1:
        return _blocked_map(body, machine)
    return _row_major_map(body, machine)


def _blocked_map(body: Body, machine: Machine) -> Kernel:
    builder = Builder()
    out = body.output.layout
    batch, _, height, _ = out.shape
    if body.stage is not None:
        body, stage, window = staged(builder, _fetching(body, machine), body.stage, columns=True)

        width = out.shape[3]
        near = machine.l2_bytes // KEPT_PARTS if body.ahead else KEPT_BYTES
        parts = -(-width * BLOCK * window.rows * 4 // near)
        size = -(-width // parts)

        def rows(lines: Sequence[Line], part: Index) -> None:
            plane = part // parts
            block, image = plane % out.num_blocks, plane // out.num_blocks
            begin = part % parts * size
            end = Index.of(width)
            if parts > 1:
                past = (begin + size).as_factor()
                end = Index.opaque(builder.let("ptrdiff_t", "end", f"{past} < {width} ? {past} : {width}"))
            written = lines[0].body is body
            _blocked_rows(builder, lines, machine, (image, block), (begin, end), masked=written)
            if written and parts == 1:
                zero_halo(builder, body.output, image, block, lines[0].y, len(lines))
            elif written and any(out.halo):
                with builder.branch(f"{begin} == 0"):
                    zero_halo(builder, body.output, image, block, lines[0].y, len(lines))

        _staged_rows(builder, body, stage, window, batch * out.num_blocks * parts, rows, paired=not is_heavy(body))
        return body.kernel(builder.body, machine.lanes, window.bytes_of(stage))
    body = with_position_tables(builder, body)
    with builder.share(batch * out.num_blocks * height) as unit:
        y = builder.let_index("y", unit % height)
        block = builder.let_index("block", unit // height % out.num_blocks)
        image = builder.let_index("image", unit // (height * out.num_blocks))
        _blocked_rows(builder, [Line(body, y)], machine, (image, block), None, masked=True)
        zero_halo(builder, body.output, image, block, y, 1)
    return body.kernel(builder.body, machine.lanes)


def _fetching(body: Body, machine: Machine) -> Body:
    """The body of a map that writes more than it reads, fetching what it will write where that lies far.

    Two rows may be written at a time: what they fetch beyond their ends is for the next two.
    """
    layout = body.output.layout
    if 4 * layout.size <= FAR * machine.l2_bytes:
        return body
    two = 2 * layout.strides[-2]
    return replace(body, ahead=-(-WRITES_AHEAD // two) * two if two < 2 * WRITES_AHEAD else WRITES_AHEAD)


def _staged_rows(
    builder: Builder,
    body: Body,
    stage: Body,
    window: Window,
    planes: int,
    rows: Callable[[Sequence[Line], Index], None],
    *,
    paired: bool,
) -> None:
    """Bands of rows of each plane, by `rows(lines of body or stage, plane)`: before a row of the output, those rows of
    the stage that it is the first to read. Where they may be `paired`, rows of the output that read the same are
    computed together."""
    height = body.output.layout.shape[-2]
    begins = window.pairs() if paired else list(range(height))
    count = len(begins)
    firsts, lasts = (
        define_table(builder, "int32_t", [str(bounds[row]) for row in begins])
        for bounds in (window.firsts, window.lasts)
    )
    bands = min(count, -(-UNITS // planes))
    with builder.share(planes * bands) as unit:
        plane = builder.let_index("plane", unit // bands)
        band = unit % bands
        first = builder.let_index("top", band * count // bands)
        ready = builder.declare("ptrdiff_t", "ready")
        builder.assign(ready, "0")
        with builder.loop("y" if count == height else "pair", (band + 1) * count // bands, first, last=count - 1) as at:
            least = builder.let("ptrdiff_t", "least", f"{firsts}[{at}]")
            begin = builder.let("ptrdiff_t", "begin", f"{ready} < {least} ? {least} : {ready}")
            builder.assign(ready, f"{lasts}[{at}] + 1")
            last = stage.output.layout.shape[-2] - 1
            with builder.loop("r", Index.opaque(ready), Index.opaque(begin), last=last) as r:
                ctype = c_type(stage.output.dtype)
                line = (r % window.rows) * window.pitch
                builder.evaluate(f"{ctype} *const {stage.target} = {window.name} + {line}")
                rows([Line(stage, r)], plane)
            if count == height:
                rows([Line(body, at)], plane)
            else:
                _pair(builder, body, window, begins, at, lambda lines: rows(lines, plane))


def _pair(
    builder: Builder,
    body: Body,
    window: Window,
    begins: Sequence[int],
    at: Index,
    rows: Callable[[Sequence[Line]], None],
) -> None:
    """The row of the output that begins pair number `at`, and the one that joins it, if one does."""
    height = body.output.layout.shape[-2]
    table = define_table(builder, "int32_t", [str(row) for row in (*begins, height)])
    y, following = builder.axis("y", height), builder.axis("following", height)
    builder.append(Let("ptrdiff_t", y.name, f"{table}[{at}]"))
    leading = Line(body, Index.of(y))
    with builder.branch(f"{table}[{at + 1}] - {leading.y} == 2") as branch:
        builder.append(Let("ptrdiff_t", following.name, str(leading.y + 1)))
        rows([leading, Line(replace(body, rule=window.follow(following, y)), Index.of(following))])
    with builder.block(branch.otherwise):
        rows([leading])


def _blocked_rows(
    builder: Builder,
    lines: Sequence[Line],
    machine: Machine,
    at: tuple[Index, Index],
    columns: tuple[Index, Index] | None,
    *,
    masked: bool,
) -> None:
    """Rows of pixels, or the `columns` of them, of one channel block, `at` (image, block), pixel by pixel; `masked`
    says that pad lanes must be zero. What holds of the first of the rows holds of all."""
    body, y = lines[0]
    out = body.output.layout
    image, block = at
    lane, x = Axis("lane", machine.lanes - 1), Index.of(Axis("x", out.shape[3] - 1))
    probes = [
        [image, block * BLOCK + half * machine.lanes + Index.of(lane), y, x] for half in _halves_written(body, machine)
    ]
    if machine.lanes == 1 or not all(vector_body(body, probe, lane, anchored=False) for probe in probes):
        _blocked_lanes(builder, lines, at, columns)
    elif out.has_pad_lanes and any(stray_reads(body, probe, lane, anchored=False) for probe in probes):
        with builder.branch(f"{block} < {out.num_blocks - 1}") as branch:
            _blocked_vectors(builder, lines, machine, at, columns, whole=True)
        with builder.block(branch.otherwise):
            _blocked_lanes(builder, lines, at, columns)
    else:
        _blocked_vectors(builder, lines, machine, at, columns, whole=not masked)


def _halves_written(body: Body, machine: Machine) -> list[Index]:
    """The vectors of a block by which code is written: each, or one for all where that is much code."""
    count = BLOCK // machine.lanes
    if count > 1 and is_heavy(body):
        return [Index.of(Axis("half", count - 1))]
    return [Index.of(half) for half in range(count)]


def _pixels(builder: Builder, body: Body, columns: tuple[Index, Index] | None) -> AbstractContextManager[Index]:
    """The loop over a row, or the `columns` of it."""
    width = body.output.layout.shape[3]
    begin, end = columns or (Index.of(0), Index.of(width))
    return builder.loop("x", end, begin, last=width - 1)


def _blocked_vectors(
    builder: Builder,
    lines: Sequence[Line],
    machine: Machine,
    at: tuple[Index, Index],
    columns: tuple[Index, Index] | None,
    *,
    whole: bool = False,
) -> None:
    """Vectors of channels; `whole` says that the block has no pad lanes to be zeroed.

    All vectors of a pixel are computed after each other, since they are of one cache line, unless that is much code.
    """
    body, y = lines[0]
    out = body.output.layout
    halves = BLOCK // machine.lanes
    image, block = at
    if columns is None and (whole or not out.has_pad_lanes) and _crosses_pixels(body, machine):
        _blocked_squares(builder, body, machine, (image, block, y))
        return

    def mask_of(half: Index) -> str | None:
        return None if whole else pad_mask(builder, out, block, half, machine.lanes)

    def put(line: Line, half: Index, x: Index, mask: str | None) -> None:
        lane = builder.axis("lane", machine.lanes)
        index = [image, block * BLOCK + half * machine.lanes + Index.of(lane), line.y, x]
        store(builder, line.body, index, None, machine.lanes, lane, mask)

    if is_heavy(body):
        with builder.loop("h", halves) as h:
            mask = mask_of(h)
            with _pixels(builder, body, columns) as x:
                for line in lines:
                    put(line, h, x, mask)
        return
    masks = [mask_of(Index.of(half)) for half in range(halves)]
    with _pixels(builder, body, columns) as x:
        for line in lines:
            for half, mask in enumerate(masks):
                put(line, Index.of(half), x, mask)


def _pixel_places(at: tuple[Index, Index, Index], start: Index, x: Index) -> Places:
    """Lanes of a tile are channels from `start` on, its vectors pixels from `x` on."""
    image, _block, y = at
    return lambda lane, vector: [image, start + lane, y, x + vector]


def _crosses_pixels(body: Body, machine: Machine) -> bool:
    """Whether all that is not read by channels side by side is read by pixels side by side, a vector of them."""
    out = body.output.layout
    if out.shape[3] < machine.lanes:
        return False
    image, block, y, x = (
        Index.of(Axis(name, extent - 1))
        for name, extent in zip("nbyx", (out.shape[0], out.num_blocks, out.shape[2], out.shape[3] - machine.lanes + 1))
    )
    return crosses(body, _pixel_places((image, block, y), block * BLOCK, x), machine)


def _blocked_squares(builder: Builder, body: Body, machine: Machine, at: tuple[Index, Index, Index]) -> None:
    """Squares of channels and pixels, transposed in registers; the last pixels of a row may be loaded twice.

    The next row is fetched meanwhile: channels are more streams than the processor follows.
    """
    lanes, width = machine.lanes, body.output.layout.shape[3]
    row = next((axis for axis in at[2].axes() if Index.of(axis) == at[2]), None)
    from_memory = 4 * body.output.layout.size > machine.l2_bytes
    ahead = Ahead(row, 1) if from_memory and row is not None else None

    def squares(x: Index, stored: tuple[int, int]) -> None:
        for half in range(0, BLOCK, lanes):
            places = _pixel_places(at, at[1] * BLOCK + half, x)
            store_tile(builder, body, machine, places, stored, ahead)

    whole, rest = width // lanes * lanes, width % lanes
    with builder.loop("x", whole, step=lanes, last=whole - lanes) as x:
        squares(x, (0, lanes))
    if rest:
        squares(Index.of(width - lanes), (lanes - rest, lanes))


def _blocked_lanes(
    builder: Builder, lines: Sequence[Line], at: tuple[Index, Index], columns: tuple[Index, Index] | None
) -> None:
    out = lines[0].body.output.layout
    image, block = at
    channels = out.shape[1]
    with _pixels(builder, lines[0].body, columns) as x, builder.loop("l", BLOCK) as lane:
        indices = [[image, block * BLOCK + lane, line.y, x] for line in lines]

        def put() -> None:
            for line, index in zip(lines, indices):
                store(builder, line.body, index, None, 1, None)

        if channels % BLOCK == 0:
            put()
            return
        with builder.branch(f"{block * BLOCK + lane} < {channels}") as branch:
            put()
        with builder.block(branch.otherwise):
            for line, index in zip(lines, indices):
                builder.assign(f"{line.body.target}[{out.address(index)}]", "0")


def copy_channels_kernel(body: Body, begin: int, machine: Machine) -> Kernel:
    """The kernel that copies input 0, in channel blocks, to channels `begin` and on of the output, in channel blocks.

    It serves parts that do not begin at a block: each block of the input goes to one or two blocks of the output. Pad
    lanes are zeroed behind the output's last channel; the halo of a block that two parts share by the first of them.
    """
    builder = Builder()
    source, out = body.inputs[0].layout, body.output.layout
    batch, channels, height, _width = source.shape
    blocks = source.num_blocks
    with builder.share(batch * blocks * height) as unit:
        y = builder.let_index("y", unit % height)
        block = builder.let_index("block", unit // height % blocks)
        image = builder.let_index("image", unit // (height * blocks))
        rest = channels - (blocks - 1) * BLOCK
        if rest == BLOCK or blocks == 1:
            _copy_block(builder, body, begin, (image, block, y), rest, last=blocks == 1)
        else:
            with builder.branch(f"{block} < {blocks - 1}") as branch:
                _copy_block(builder, body, begin, (image, block, y), BLOCK, last=False)
            with builder.block(branch.otherwise):
                _copy_block(builder, body, begin, (image, block, y), rest, last=True)
        target = block + begin // BLOCK
        if begin % BLOCK == 0:
            zero_halo(builder, body.output, image, target, y, 1)
        else:
            with builder.branch(f"{block} > 0"):
                zero_halo(builder, body.output, image, target, y, 1)
        if begin % BLOCK + rest > BLOCK:
            with builder.branch(f"{block} == {blocks - 1}"):
                zero_halo(builder, body.output, image, target + 1, y, 1)
    assert out.block == BLOCK
    return body.kernel(builder.body, machine.lanes)


def _copy_block(
    builder: Builder, body: Body, begin: int, at: tuple[Index, Index, Index], count: int, *, last: bool
) -> None:
    """Runs of lanes of one row of pixels."""
    image, block, y = at
    source, out = body.inputs[0].layout, body.output.layout
    lane = begin % BLOCK
    first = min(BLOCK - lane, count)
    ends = begin + source.shape[1] == out.shape[1] and out.has_pad_lanes
    with builder.loop("x", source.shape[3]) as x:
        whole = [image, block * BLOCK, y, x]
        target = [image, (block + begin // BLOCK) * BLOCK, y, x]
        read, write = source.address(whole), out.address(target)
        builder.evaluate(f"memcpy(out + {write + lane}, p0 + {read}, {4 * first})")
        if count > first:
            following = write + out.strides[1]
            builder.evaluate(f"memcpy(out + {following}, p0 + {read + first}, {4 * (count - first)})")
        used = (lane + count - 1) % BLOCK + 1
        if ends and (last or source.num_blocks == 1) and used < BLOCK:
            behind = write + (out.strides[1] if count > first else 0) + used
            builder.evaluate(f"memset(out + {behind}, 0, {4 * (BLOCK - used)})")


def _row_major_map(body: Body, machine: Machine) -> Kernel:
    builder = Builder()
    shape = body.output.layout.shape
    if body.stage is not None:
        return _staged_row_major_map(builder, body, body.stage, machine)
    groups = merged_dimensions(body)
    extents = [_product([shape[dimension] for dimension in group]) for group in groups]
    crossing = _crossing(body, machine, groups, extents)
    if crossing is not None:
        _tiled_map(builder, body, machine, groups, extents, crossing)
        _zero_row_major_halo(builder, body)
        return body.kernel(builder.body, machine.lanes)
    inner = extents[-1] if extents else 1
    outer = extents[:-1]
    outer_total = _product(outer)
    chunks = -(-inner // CHUNK) if outer_total < 8 else 1
    length = -(-inner // chunks)
    length = -(-length // BLOCK) * BLOCK if chunks > 1 else inner
    tables = Tables(builder, body, machine, inner)
    if chunks == 1 and tables.serve(_row_places(shape, groups, [_any_position(extent) for extent in outer])):
        tables.define()
        with builder.share(outer_total) as unit:
            counters = [builder.let_index("i", part) for part in delinearize(unit, outer)]
            tables.loop(_row_places(shape, groups, counters))
        _zero_row_major_halo(builder, body)
        return body.kernel(builder.body, machine.lanes)
    with builder.share(outer_total * chunks) as unit:
        chunk = builder.let_index("chunk", unit % chunks)
        counters = [builder.let_index("i", part) for part in delinearize(unit // chunks, outer)]
        begin: Index = chunk * length
        end: Index = Index.of(inner)
        if chunks > 1:
            past = (begin + length).as_factor()
            end = Index.opaque(builder.let("ptrdiff_t", "end", f"{past} < {inner} ? {past} : {inner}"))
        _inner_loop(builder, [(body, _row_places(shape, groups, counters))], machine, inner, (begin, end))
    _zero_row_major_halo(builder, body)
    return body.kernel(builder.body, machine.lanes)


def _staged_row_major_map(builder: Builder, body: Body, stage: Body, machine: Machine) -> Kernel:
    outer = body.output.layout.shape[:-2]
    body, stage, window = staged(builder, _fetching(body, machine), stage, columns=machine.lanes == 1)
    tables = {id(each): Tables(builder, each, machine, each.output.layout.shape[-1]) for each in (stage, body)}
    served = {id(each): tables[id(each)].serve(_any_row(each)) for each in (stage, body)}
    for each in (stage, body):
        if served[id(each)]:
            tables[id(each)].define()

    def rows(lines: Sequence[Line], plane: Index) -> None:
        line = lines[0].body
        places = [_behind([*delinearize(plane, outer), y]) for _body, y in lines]
        if served.get(id(line)):
            tables[id(line)].loop(places[0])
        else:
            width = line.output.layout.shape[-1]
            bodies = [(each.body, place) for each, place in zip(lines, places)]
            _inner_loop(builder, bodies, machine, width, (Index.of(0), Index.of(width)))

    layout = body.output.layout
    joined = len(window.pairs()) <= MOST_PAIRS * layout.shape[-2] and 4 * layout.size <= BEYOND * machine.l2_bytes
    paired = joined and not served[id(body)] and not is_heavy(body)
    _staged_rows(builder, body, stage, window, _product(outer), rows, paired=paired)
    _zero_row_major_halo(builder, body)
    return body.kernel(builder.body, machine.lanes, window.bytes_of(stage))


def _any_row(body: Body) -> Place:
    """The logical index of a position in whichever row."""
    return _behind([Index.of(Axis(f"i{at}", extent - 1)) for at, extent in enumerate(body.output.layout.shape[:-1])])


def _behind(before: Sequence[Index]) -> Place:
    """The logical index of a position along the last dimension, behind those of the others."""
    return lambda position: [*before, position]


def _any_position(extent: int) -> Index:
    return Index.of(Axis("any", extent - 1)) if extent > 1 else Index.of(0)


def _row_places(shape: Sequence[int], groups: Sequence[Sequence[int]], counters: Sequence[Index]) -> Place:
    """The logical index of a position along the innermost loop."""
    return lambda position: _expand(shape, groups, [*counters, position])


@dataclass(frozen=True)
class _Crossing:
    """Tiles over the innermost loop and loop number `loop`, along which loads are contiguous.

    The vectors at the end of that loop read past it (`past_end`: into pad lanes) or what the ones before have read.
    """

    loop: int
    past_end: bool


def _crossing(
    body: Body, machine: Machine, groups: Sequence[Sequence[int]], extents: Sequence[int]
) -> _Crossing | None:
    """The tiles that make all loads contiguous, where there are such."""
    if machine.lanes == 1 or not extents or extents[-1] < machine.lanes:
        return None
    in_blocks = all(operand.layout.block > 1 for operand in body.inputs)
    for loop, extent in enumerate(extents[:-1]):
        for crossing in (_Crossing(loop, False), _Crossing(loop, True)):
            reads_inside = in_blocks if crossing.past_end else extent >= machine.lanes
            if reads_inside and _crosses(body, machine, groups, extents, crossing):
                return crossing
    return None


def _crosses(
    body: Body, machine: Machine, groups: Sequence[Sequence[int]], extents: Sequence[int], crossing: _Crossing
) -> bool:
    shape, lanes, extent = body.output.layout.shape, machine.lanes, extents[crossing.loop]
    counters = [Index.of(Axis(f"i{number}", each - 1)) for number, each in enumerate(extents)]
    counters[-1] = Index.of(Axis("inner", extents[-1] - lanes))
    starts = [begin for begin, _vectors in _last_vectors(extent, machine, crossing)]
    if extent >= BLOCK:
        starts.append(
            BLOCK * Index.of(Axis("tile", extent // BLOCK - 1)) + lanes * Index.of(Axis("half", BLOCK // lanes - 1))
        )
    return all(crosses(body, _tile_places(shape, groups, counters, crossing.loop, start), machine) for start in starts)


def _last_vectors(extent: int, machine: Machine, crossing: _Crossing) -> list[tuple[Index, tuple[int, int]]]:
    """(where a tile begins, its first and last vector to be stored) in what is left of a loop past whole blocks."""
    lanes = machine.lanes
    whole = extent // lanes * lanes
    parts = [(Index.of(begin), (0, lanes)) for begin in range(extent // BLOCK * BLOCK, whole, lanes)]
    rest = extent - whole
    if rest:
        parts.append(
            (Index.of(whole), (0, rest)) if crossing.past_end else (Index.of(extent - lanes), (lanes - rest, lanes))
        )
    return parts


def _tile_places(
    shape: Sequence[int], groups: Sequence[Sequence[int]], counters: Sequence[Index], loop: int, start: Index
) -> Places:
    """Vectors of a tile are along the innermost loop, one for each position of `loop` from `start`."""

    def places(lane: Index, vector: Index) -> Sequence[IndexLike]:
        steps = [*counters[:-1], counters[-1] + lane]
        steps[loop] = start + vector
        return _expand(shape, groups, steps)

    return places


def _tiled_map(
    builder: Builder,
    body: Body,
    machine: Machine,
    groups: Sequence[Sequence[int]],
    extents: Sequence[int],
    crossing: _Crossing,
) -> None:
    """Units are runs of the innermost loop over all blocks of the crossing loop, or over a band of them.

    A run is short enough for what it reads to stay in the cache, and for the processor to follow its pages, from one
    block to the next. Where the innermost loop is shorter than a run, neighbours along the next loop share one.
    """
    lanes, inner, extent = machine.lanes, extents[-1], extents[crossing.loop]
    vectors, blocks = inner // lanes, -(-extent // BLOCK)
    chunks = -(-inner // RUN)
    length = -(-vectors // chunks) * lanes
    chunks = -(-vectors * lanes // length)
    near = _Near.of(extents, crossing)
    outer = [*extents[: crossing.loop], *extents[crossing.loop + 1 : -1]]
    outer[-1:] = [near.parts] if near.size > 1 else outer[-1:]
    bands = min(blocks, -(-UNITS // (_product(outer) * chunks)))
    from_memory = 4 * _product(extents) > machine.l2_bytes
    with builder.share(bands * _product(outer) * chunks) as unit:
        parts = delinearize(unit, [bands, *outer, chunks])
        band, *counters, chunk = (builder.let_index("i", part) for part in parts)
        counters.insert(crossing.loop, Index.of(0))
        end = Index.of(inner)
        if chunks > 1:
            past = (chunk * length + length).as_factor()
            end = Index.opaque(builder.let("ptrdiff_t", "end", f"{chunk} < {chunks - 1} ? {past} : {inner}"))
        begin, bound = band * blocks // bands, (band + 1) * blocks // bands
        with (
            builder.loop("block", bound, begin, last=blocks - 1) as block,
            near.loop(builder, counters) as neighbour,
            builder.loop("v", end, chunk * length, step=lanes, last=(inner - 1) // lanes * lanes) as v,
        ):
            position = _not_past(builder, v, inner - lanes) if inner % lanes else v
            ahead = Ahead(None, length) if chunks > 1 else near.ahead(neighbour)
            place = _TilePlace([*counters[:-1], *neighbour, position], block, ahead if from_memory else None)
            _tile_block(builder, body, machine, groups, place, extent, crossing)


class _TilePlace(NamedTuple):
    """Where a tile stands: positions of all loops but the crossing one, its block there, and what comes in its place
    in the next run."""

    counters: Sequence[Index]
    block: Index
    ahead: Ahead | None


@dataclass(frozen=True)
class _Near:
    """The loop outside the innermost one, of `extent` positions in `parts` parts of at most `size` that share a run."""

    extent: int
    size: int
    parts: int

    @staticmethod
    def of(extents: Sequence[int], crossing: _Crossing) -> _Near:
        """The parts whose runs are about as long as others; of size 1 where that loop is none, or the crossing one."""
        if len(extents) < 3 or crossing.loop == len(extents) - 2:
            return _Near(1, 1, 1)
        extent = extents[-2]
        parts = -(-extent // -(-RUN // extents[-1]))
        size = -(-extent // parts)
        return _Near(extent, size, -(-extent // size))

    @contextmanager
    def loop(self, builder: Builder, counters: Sequence[Index]) -> Iterator[list[Index]]:
        """The loop over a part, whose number is the last counter."""
        if self.size == 1:
            yield list(counters[-1:])
            return
        begin = counters[-1] * self.size
        end = begin + self.size
        if self.extent % self.size:
            end = Index.opaque(builder.let("ptrdiff_t", "past", f"{end} < {self.extent} ? {end} : {self.extent}"))
        with builder.loop("near", end, begin, last=self.extent - 1) as position:
            yield [position]

    def ahead(self, neighbour: Sequence[Index]) -> Ahead | None:
        """The same position in the next part."""
        axes = [axis for position in neighbour for axis in position.axes() if Index.of(axis) == position]
        return Ahead(axes[0], self.size) if axes and self.extent > 1 else None


def _tile_block(
    builder: Builder,
    body: Body,
    machine: Machine,
    groups: Sequence[Sequence[int]],
    place: _TilePlace,
    extent: int,
    crossing: _Crossing,
) -> None:
    """One vector along the innermost loop for each of 16 positions of the crossing loop."""
    shape, lanes, block = body.output.layout.shape, machine.lanes, place.block

    def tiles(parts: Sequence[tuple[Index, tuple[int, int]]]) -> None:
        for begin, stored in parts:
            places = _tile_places(shape, groups, place.counters, crossing.loop, begin)
            store_tile(builder, body, machine, places, stored, place.ahead)

    whole = [(block * BLOCK + half, (0, lanes)) for half in range(0, BLOCK, lanes)]
    if extent % BLOCK == 0:
        tiles(whole)
        return
    if extent < BLOCK:
        tiles(_last_vectors(extent, machine, crossing))
        return
    with builder.branch(f"{block} < {extent // BLOCK}") as branch:
        tiles(whole)
    with builder.block(branch.otherwise):
        tiles(_last_vectors(extent, machine, crossing))


def _not_past(builder: Builder, position: Index, last: int) -> Index:
    """The position, or `last` where it is beyond."""
    axis = builder.axis("at", last + 1)
    builder.append(Let("ptrdiff_t", axis.name, f"{position} < {last} ? {position} : {last}"))
    return Index.of(axis)


def _inner_loop(
    builder: Builder,
    bodies: Sequence[tuple[Body, Place]],
    machine: Machine,
    inner: int,
    bounds: tuple[Index, Index],
) -> None:
    """Vectors as far as they go, then single elements; the last vector of a whole row overlaps the one before.

    Of several bodies, each at its places, runs are computed in turn; what holds of the first holds of all.
    """
    body, place = bodies[0]
    lanes = machine.lanes
    begin, end = bounds
    lane = Axis("lane", lanes - 1)
    probe = place(Index.of(Axis("probe", inner - lanes)) + Index.of(lane))
    contiguous = body.output.layout.address(probe).coefficient(lane) == 1
    if lanes > 1 and inner >= lanes and contiguous and vector_body(body, probe, lane, anchored=False):
        stop = Index.of(inner // lanes * lanes)
        whole = end.constant == inner
        if not whole:
            count = f"({end} - {begin.as_factor()}) / {lanes} * {lanes}"
            stop = Index.opaque(builder.let("ptrdiff_t", "stop", f"{begin} + {count}"))
        if whole and len(bodies) > 1:
            lines = Index.of(inner // LINE * LINE)
            _vectors(builder, bodies, machine, (begin, lines), LINE, inner)
            begin = lines
        _vectors(builder, bodies, machine, (begin, stop), lanes, inner)
        if whole:
            if inner % lanes:
                _vectors(builder, bodies, machine, (Index.of(inner - lanes), Index.of(inner)), lanes, inner)
            return
        begin = stop
    with builder.loop("x", end, begin, last=inner - 1) as x:
        for body, place in bodies:
            store(builder, body, place(x), None, 1, None)


def _vectors(
    builder: Builder,
    bodies: Sequence[tuple[Body, Place]],
    machine: Machine,
    bounds: tuple[Index, Index],
    run: int,
    inner: int,
) -> None:
    """Vectors of all bodies within the bounds, `run` elements of each body in turn, in a row of `inner` elements."""
    begin, stop = bounds
    if begin == stop:
        return
    with builder.loop("v", stop, begin, step=run, last=inner - run) as v:
        for body, place in bodies:
            for at in range(0, run, machine.lanes):
                axis = builder.axis("lane", machine.lanes)
                store(builder, body, place(v + at + Index.of(axis)), None, machine.lanes, axis)


def _expand(shape: Sequence[int], groups: Sequence[Sequence[int]], counters: Sequence[Index]) -> list[Index]:
    """The logical index of the counters of merged loops."""
    index = [Index.of(0)] * len(shape)
    for group, counter in zip(groups, counters):
        several = len(group) > 1
        parts = delinearize(counter, [shape[dimension] for dimension in group]) if several else [counter]
        for dimension, part in zip(group, parts):
            index[dimension] = part
    return index


def merged_dimensions(body: Body) -> list[list[int]]:
    """The loops that remain when neighbouring dimensions are merged wherever every address allows it."""
    shape = body.output.layout.shape
    groups: list[list[int]] = []
    for dimension in reversed(range(len(shape))):
        if groups and _merges(body, [dimension, *groups[0]]):
            groups[0].insert(0, dimension)
        else:
            groups.insert(0, [dimension])
    return groups


def _merges(body: Body, group: Sequence[int]) -> bool:
    """Whether one loop over `group` leaves no quotient or remainder in any address that it moves."""
    shape = body.output.layout.shape
    flat = Axis("flat", _product([shape[dimension] for dimension in group]) - 1)
    index: list[Index] = [Index.of(Axis(f"d{dimension}", extent - 1)) for dimension, extent in enumerate(shape)]
    for dimension, part in zip(group, delinearize(Index.of(flat), [shape[dimension] for dimension in group])):
        index[dimension] = part
    scalars = ScalarBuilder()
    roots = [body.rule(scalars, index, None), *scalars.run_time_indices.values()]
    used = [address for root in roots for node in walk(root) for address in indices_of(node)]
    used.append(body.output.layout.address(index))
    return all(address.is_linear for address in used if address.mentions(flat))


def _product(extents: Sequence[int]) -> int:
    product = 1
    for extent in extents:
        product *= extent
    return product


def _zero_row_major_halo(builder: Builder, body: Body) -> None:
    layout = body.output.layout
    if not any(layout.halo):
        return
    batch, channels, height, _ = layout.shape
    with builder.share(batch * channels) as plane:
        image = builder.let_index("image", plane // channels)
        channel = builder.let_index("channel", plane % channels)
        zero_halo(builder, body.output, image, channel, 0, height)
