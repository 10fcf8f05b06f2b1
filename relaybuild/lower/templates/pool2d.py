"""Pooling over channel blocks, windowed and global; windows are clipped to the image; knows nothing of the model."""

from __future__ import annotations

from dataclasses import dataclass

from relaybuild.lower.index import Index
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import Body, pad_mask, store, zero_halo


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
    """The kernel of a windowed pooling; input 0 is the data."""
    builder = Builder()
    out = body.output.layout
    batch, _, height, width = out.shape
    halves = BLOCK // machine.lanes
    with builder.share(batch * out.num_blocks * height) as unit:
        row = builder.let_index("y", unit % height)
        block = builder.let_index("block", unit // height % out.num_blocks)
        image = builder.let_index("image", unit // (height * out.num_blocks))
        row_range = _window(builder, pool, 0, row, body)
        with builder.loop("h", halves) as h:
            mask = pad_mask(builder, out, block, h * machine.lanes if machine.lanes == 1 else h, machine.lanes)
            inside = _interior(pool, body, width)
            for begin, end, clipped in ((0, inside[0], True), (inside[0], inside[1], False), (inside[1], width, True)):
                if begin < end:
                    with builder.loop("x", end, begin) as x:
                        at = (image, block, h, row, x)
                        _pixel(builder, pool, body, machine, at, row_range, mask, clipped=clipped)
        zero_halo(builder, body.output, image, block, row, 1)
    return body.kernel(builder.body, machine.lanes)


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


def _pixel(
    builder: Builder,
    pool: Pool2D,
    body: Body,
    machine: Machine,
    at: tuple[Index, Index, Index, Index, Index],
    row_range: tuple[str, str, Index],
    mask: str | None,
    *,
    clipped: bool,
) -> None:
    image, block, h, row, x = at
    lane = builder.axis("lane", machine.lanes)
    channel = block * BLOCK + h * machine.lanes + Index.of(lane)
    acc = builder.declare("rb_v", "acc")
    builder.assign(acc, "rb_splat(-INFINITY)" if pool.reduce == "max" else "rb_splat(0.0f)")
    row_first, row_last, row_start = row_range
    first: Index | int = 0
    last: Index | int = pool.size[1]
    start = x * pool.strides[1] - pool.padding[1]
    if clipped:
        begin, end, start = _window(builder, pool, 1, x, body)
        first, last = Index.opaque(begin), Index.opaque(end)
    with (
        builder.loop("kr", Index.opaque(row_last), Index.opaque(row_first)) as kr,
        builder.loop("kc", last, first, unroll=not clipped) as kc,
    ):
        source = [image, channel, row_start + kr * pool.dilation[0], start + kc * pool.dilation[1]]
        address = body.inputs[0].layout.address(source).substitute({lane: 0})
        value = f"rb_load(p0 + {address})"
        builder.assign(acc, f"rb_max({acc}, {value})" if pool.reduce == "max" else f"{acc} + {value}")
    if pool.reduce == "avg":
        rows = f"({row_last} - {row_first})"
        columns = f"({last} - {first})"
        if pool.count_include_pad:
            rows = _padded_count(pool, 0, row_start, body)
            columns = _padded_count(pool, 1, start, body)
        builder.assign(acc, f"{acc} / (float)({rows} * {columns})")
    store(builder, body, [image, channel, row, x], acc, machine.lanes, lane, mask)


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
    """The kernel of a pooling over whole images; input 0 is the data."""
    builder = Builder()
    layout = body.inputs[0].layout
    out = body.output.layout
    batch, _, height, width = layout.shape
    halves = BLOCK // machine.lanes
    parts = 4 if width >= 4 else 1
    with builder.share(batch * out.num_blocks * halves) as unit:
        h = builder.let_index("h", unit % halves)
        block = builder.let_index("block", unit // halves % out.num_blocks)
        image = builder.let_index("image", unit // (halves * out.num_blocks))
        lane = builder.axis("lane", machine.lanes)
        channel = block * BLOCK + h * machine.lanes + Index.of(lane)
        acc = builder.declare("rb_v", "acc", (parts,))
        with builder.loop("i", parts, unroll=True) as i:
            builder.assign(f"{acc}[{i}]", "rb_splat(-INFINITY)" if reduce == "max" else "rb_splat(0.0f)")

        def accumulate(row: Index, column: Index, part: Index) -> None:
            address = layout.address([image, channel, row, column]).substitute({lane: 0})
            target = f"{acc}[{part}]"
            value = f"rb_load(p0 + {address})"
            builder.assign(target, f"rb_max({target}, {value})" if reduce == "max" else f"{target} + {value}")

        with builder.loop("y", height) as y:
            whole = width // parts * parts
            with builder.loop("x", whole, step=parts) as x, builder.loop("i", parts, unroll=True) as i:
                accumulate(y, x + i, i)
            if whole < width:
                with builder.loop("x", width, whole) as x:
                    accumulate(y, x, Index.of(0))
        total = builder.declare("rb_v", "total")
        builder.assign(total, f"{acc}[0]")
        with builder.loop("i", parts, 1, unroll=True) as i:
            value = f"{acc}[{i}]"
            builder.assign(total, f"rb_max({total}, {value})" if reduce == "max" else f"{total} + {value}")
        if reduce == "avg":
            builder.assign(total, f"{total} * (1.0f / {height * width}.0f)")
        mask = pad_mask(builder, out, block, h * machine.lanes if machine.lanes == 1 else h, machine.lanes)
        store(builder, body, [image, channel, 0, 0], total, machine.lanes, lane, mask)
        zero_halo(builder, body.output, image, block, 0, 1)
    return body.kernel(builder.body, machine.lanes)
