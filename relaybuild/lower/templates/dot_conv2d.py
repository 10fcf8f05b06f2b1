"""Convolution of a few output channels: vectors run over input channels, and a row of pixels is summed at a time.

In channel blocks one output channel would cost sixteen. Here a tile is one vector of output pixels of one channel: each
pixel has an accumulator over input channels, and the sums over their lanes become the lanes of one vector, which goes
through the epilogue to a row-major output. Knows nothing of the model.
"""

from __future__ import annotations

from relaybuild.lower.index import Index
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import Body, store, vector_body, zero_halo
from relaybuild.lower.templates.conv2d import Conv2D, Phase


def dot_conv2d_kernel(conv: Conv2D, body: Body, machine: Machine) -> Kernel:
    """The kernel: input 0 is the data in channel blocks, input 1 the weights as [out][in block][rows][columns][16]."""
    builder = Builder()
    for phase in conv.phases:
        _phase(builder, conv, phase, body, machine)
    return body.kernel(builder.body, machine.lanes)


def _phase(builder: Builder, conv: Conv2D, phase: Phase, body: Body, machine: Machine) -> None:
    out = body.output.layout
    batch, channels = out.shape[:2]
    with builder.share(batch * channels * phase.rows) as unit:
        row = builder.let_index("row", unit % phase.rows)
        channel = builder.let_index("channel", unit // phase.rows % channels)
        image = builder.let_index("image", unit // (phase.rows * channels))
        whole, rest = divmod(phase.columns, machine.lanes)
        if whole:
            end = whole * machine.lanes
            with builder.loop("x", end, step=machine.lanes, last=end - machine.lanes) as x:
                _pixels(builder, conv, phase, body, machine, (image, channel, row, x), machine.lanes)
        if rest:
            start = Index.of(whole * machine.lanes)
            _pixels(builder, conv, phase, body, machine, (image, channel, row, start), rest)
        if phase.origin == (0, 0):
            _halo(builder, phase, body, image, channel, row)


def _halo(builder: Builder, phase: Phase, body: Body, image: Index, channel: Index, row: Index) -> None:
    scale, height = phase.scale[0], body.output.layout.shape[2]
    if not any(body.output.layout.halo):
        return
    with builder.loop("s", scale) as s, builder.branch(f"{row * scale + s} < {height}"):
        zero_halo(builder, body.output, image, channel, row * scale + s, 1)


def _pixels(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    at: tuple[Index, Index, Index, Index],
    count: int,
) -> None:
    """`count` pixels of one row: accumulators, the taps, the sums of lanes, the epilogue."""
    acc = builder.declare("rb_v", "acc", (machine.lanes,))
    with builder.loop("i", machine.lanes, unroll=True) as i:
        builder.assign(f"{acc}[{i}]", "rb_splat(0.0f)")
    rows, columns = phase.row_taps, phase.column_taps
    with (
        builder.loop("ib", -(-conv.span // BLOCK)) as ib,
        builder.loop("kr", rows.count) as kr,
        builder.loop("kc", columns.count) as kc,
        builder.loop("h", BLOCK // machine.lanes) as h,
    ):
        _tap(builder, conv, phase, body, machine, at, count, acc, (ib, kr, kc, h))
    sums = builder.let("rb_v", "sums", f"rb_sum_each({acc})")
    _store(builder, phase, body, machine, at, count, sums)


def _tap(
    builder: Builder,
    conv: Conv2D,
    phase: Phase,
    body: Body,
    machine: Machine,
    at: tuple[Index, Index, Index, Index],
    count: int,
    acc: str,
    position: tuple[Index, Index, Index, Index],
) -> None:
    image, channel, row, x = at
    ib, kr, kc, h = position
    rows, columns = phase.row_taps, phase.column_taps
    in_blocks = -(-conv.span // BLOCK)
    weight_row = kr * rows.weight_step + rows.first
    weight_column = kc * columns.weight_step + columns.first
    address = ((channel * in_blocks + ib) * conv.kernel[0] + weight_row) * conv.kernel[1] + weight_column
    weight = builder.let("rb_v", "w", f"rb_load(p1 + {address * BLOCK + h * machine.lanes})")
    with builder.loop("i", count, unroll=True) as i:
        lane = builder.axis("lane", machine.lanes)
        index = [
            image,
            ib * BLOCK + h * machine.lanes + Index.of(lane),
            row * rows.stride + rows.shift + kr * rows.step,
            (x + i) * columns.stride + columns.shift + kc * columns.step,
        ]
        source = body.inputs[0].layout.address(index).substitute({lane: 0})
        builder.assign(f"{acc}[{i}]", f"rb_load(p0 + {source}) * {weight}", "+=")


def _store(
    builder: Builder,
    phase: Phase,
    body: Body,
    machine: Machine,
    at: tuple[Index, Index, Index, Index],
    count: int,
    sums: str,
) -> None:
    """A whole vector where the epilogue has a vector form and nothing is left over, else pixel by pixel."""
    image, channel, row, x = at
    (row_scale, scale), (row_origin, origin) = phase.scale, phase.origin
    lane = builder.axis("lane", machine.lanes)
    wide = [image, channel, row * row_scale + row_origin, (x + Index.of(lane)) * scale + origin]
    if count == machine.lanes and machine.lanes > 1 and vector_body(body, wide, lane, anchored=True):
        store(builder, body, wide, sums, machine.lanes, lane)
        return
    spilled = builder.declare("float", "pixel", (machine.lanes,))
    builder.evaluate(f"rb_store({spilled}, {sums})")
    with builder.loop("i", count) as i:
        index = [image, channel, row * row_scale + row_origin, (x + i) * scale + origin]
        store(builder, body, index, f"{spilled}[{i}]", 1, None)
