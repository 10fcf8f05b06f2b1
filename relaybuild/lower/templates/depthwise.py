"""Depthwise convolution over channel blocks: one vector multiply-add per pixel and tap; knows nothing of the model."""

from __future__ import annotations

from relaybuild.lower.index import Index, IndexLike
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import Body, is_heavy, pad_mask, store, zero_halo
from relaybuild.lower.templates.conv2d import Phase


def depthwise_kernel(phase: Phase, body: Body, machine: Machine) -> Kernel:
    """The kernel: input 0 is the data, input 1 the weights packed as [block][kernel rows][kernel columns][16].

    The weights of a block stay in registers where they fit; a tile is a run of pixels of one row.
    """
    builder = Builder()
    out = body.output.layout
    halves = BLOCK // machine.lanes
    rows, columns = phase.row_taps, phase.column_taps
    width = _tile_width(phase, machine)
    with builder.share(out.shape[0] * out.num_blocks * phase.rows) as unit:
        row = builder.let_index("y", unit % phase.rows)
        block = builder.let_index("block", unit // phase.rows % out.num_blocks)
        image = builder.let_index("image", unit // (phase.rows * out.num_blocks))
        with builder.loop("h", halves) as h:
            mask = pad_mask(builder, out, block, h * machine.lanes if machine.lanes == 1 else h, machine.lanes)
            weights = builder.declare("rb_v", "w", (rows.count * columns.count,))
            with builder.loop("k", rows.count * columns.count, unroll=True) as k:
                address = (block * (rows.count * columns.count) + k) * BLOCK + h * machine.lanes
                builder.assign(f"{weights}[{k}]", f"rb_load(p1 + {address})")
            whole, rest = divmod(phase.columns, width)
            if whole:
                with builder.loop("x", whole * width, step=width) as x:
                    _tile(builder, phase, body, machine, (image, block, h, row, x), width, weights, mask)
            if rest:
                x = Index.of(whole * width)
                _tile(builder, phase, body, machine, (image, block, h, row, x), rest, weights, mask)
        zero_halo(builder, body.output, image, block, row, 1)
    return body.kernel(builder.body, machine.lanes)


def _tile_width(phase: Phase, machine: Machine) -> int:
    """Pixels a tile: enough to hide latency, and few left over at the end of a row."""
    most = min(8 if machine.registers >= 32 else 6, phase.columns)
    return max(range(1, most + 1), key=lambda width: width / (1 + (phase.columns % width != 0)))


def _tile(
    builder: Builder,
    phase: Phase,
    body: Body,
    machine: Machine,
    corner: tuple[Index, Index, Index, Index, Index],
    width: int,
    weights: str,
    mask: str | None,
) -> None:
    image, block, h, row, x = corner
    rows, columns = phase.row_taps, phase.column_taps
    lane = builder.axis("lane", machine.lanes)
    channel = block * BLOCK + h * machine.lanes + Index.of(lane)
    acc = builder.declare("rb_v", "acc", (width,))
    with builder.loop("i", width, unroll=True) as i:
        builder.assign(f"{acc}[{i}]", "rb_splat(0.0f)")

    def address(kr: IndexLike, kc: IndexLike, c: IndexLike) -> Index:
        source_row = row * rows.stride + rows.shift + Index.of(kr) * rows.step
        source_column = (x + c) * columns.stride + columns.shift + Index.of(kc) * columns.step
        return body.inputs[0].layout.address([image, channel, source_row, source_column]).substitute({lane: 0})

    first = address(0, 0, 0)
    source = builder.let("float *", "source", f"p0 + {first}")
    with (
        builder.loop("kr", rows.count, unroll=True) as kr,
        builder.loop("kc", columns.count, unroll=True) as kc,
        builder.loop("c", width, unroll=True) as c,
    ):
        offset = address(kr, kc, c) - first
        builder.assign(f"{acc}[{c}]", f"rb_load({source} + {offset}) * {weights}[{kr * columns.count + kc}]", "+=")
    unroll = not is_heavy(body)
    if not unroll:
        copied = builder.declare("rb_v", "tile", (width,))
        with builder.loop("i", width, unroll=True) as i:
            builder.assign(f"{copied}[{i}]", f"{acc}[{i}]")
        acc = copied
    with builder.loop("c", width, unroll=unroll) as c:
        store(builder, body, [image, channel, row, x + c], f"{acc}[{c}]", machine.lanes, lane, mask)
