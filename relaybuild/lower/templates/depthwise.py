"""Depthwise convolution over channel blocks: one vector multiply-add per pixel and tap; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Callable

from relaybuild.dataclass import dataclass
from relaybuild.lower.index import Index, IndexLike
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.templates.body import Body, is_heavy, pad_mask, store, zero_halo
from relaybuild.lower.templates.conv2d import Phase

SPILLED = 2
"""Weights that may lie in memory where the others are kept in registers."""


def depthwise_kernel(phase: Phase, body: Body, machine: Machine) -> Kernel:
    """The kernel: input 0 is the data, input 1 the weights packed as [block][kernel rows][kernel columns][16].

    A tile is a run of pixels of one row. Weights of a vector of channels stay in registers for a row where they fit;
    else a tile loads each of them once, for all its pixels, and the vectors of a block, which share cache lines, are
    computed one after the other.
    """
    builder = Builder()
    out = body.output.layout
    width = _tile_width(phase, machine)
    with builder.share(out.shape[0] * out.num_blocks * phase.rows) as unit:
        row = builder.let_index("y", unit % phase.rows)
        block = builder.let_index("block", unit // phase.rows % out.num_blocks)
        image = builder.let_index("image", unit // (phase.rows * out.num_blocks))

        def vector(h: Index) -> Callable[[Index, int], None]:
            """Tiles of one vector of channels."""
            mask = pad_mask(builder, out, block, h * machine.lanes if machine.lanes == 1 else h, machine.lanes)
            weights = _Weights(builder, phase, machine, block, h)
            weights.keep(width)
            return lambda x, count: _tile(
                builder, phase, body, machine, (image, block, h, row, x), count, weights, mask
            )

        if _weights_stay(phase, width, machine):
            with builder.loop("h", BLOCK // machine.lanes) as h:
                _each_tile(builder, phase.columns, width, vector(h))
        else:

            def tile(x: Index, count: int) -> None:
                with builder.loop("h", BLOCK // machine.lanes) as h:
                    vector(h)(x, count)

            _each_tile(builder, phase.columns, width, tile)
        zero_halo(builder, body.output, image, block, row, 1)
    return body.kernel(builder.body, machine.lanes)


def _each_tile(builder: Builder, columns: int, width: int, tile: Callable[[Index, int], None]) -> None:
    """`tile(first column, columns)` over a row."""
    whole, rest = divmod(columns, width)
    if whole:
        with builder.loop("x", whole * width, step=width) as x:
            tile(x, width)
    if rest:
        tile(Index.of(whole * width), rest)


def _weights_stay(phase: Phase, width: int, machine: Machine) -> bool:
    """Whether registers suffice for all weights of a vector beside a tile of `width` pixels."""
    return phase.row_taps.count * phase.column_taps.count + width + 1 <= machine.registers + SPILLED


@dataclass
class _Weights:
    """The weights of vector `half` of a channel block; `kept` is the array that holds them, if there is one."""

    builder: Builder
    phase: Phase
    machine: Machine
    block: Index
    half: Index
    kept: str | None = None

    def keep(self, width: int) -> None:
        """Load all of them where registers suffice beside a tile of `width` pixels."""
        if not _weights_stay(self.phase, width, self.machine):
            return
        taps = self.phase.row_taps.count * self.phase.column_taps.count
        self.kept = self.builder.declare("rb_v", "w", (taps,))
        with self.builder.loop("k", taps, unroll=True) as k:
            self.builder.assign(f"{self.kept}[{k}]", self._load(k))

    def of(self, tap: Index) -> str:
        """The C text of the weight of a tap."""
        return f"{self.kept}[{tap}]" if self.kept else self.builder.let("rb_v", "w", self._load(tap))

    def _load(self, tap: Index) -> str:
        taps = self.phase.row_taps.count * self.phase.column_taps.count
        return f"rb_load(p1 + {(self.block * taps + tap) * BLOCK + self.half * self.machine.lanes})"


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
    weights: _Weights,
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
    with builder.loop("kr", rows.count, unroll=True) as kr, builder.loop("kc", columns.count, unroll=True) as kc:
        weight = weights.of(kr * columns.count + kc)
        with builder.loop("c", width, unroll=True) as c:
            offset = address(kr, kc, c) - first
            builder.assign(f"{acc}[{c}]", f"rb_load({source} + {offset}) * {weight}", "+=")
    unroll = not is_heavy(body)
    if not unroll:
        copied = builder.declare("rb_v", "tile", (width,))
        with builder.loop("i", width, unroll=True) as i:
            builder.assign(f"{copied}[{i}]", f"{acc}[{i}]")
        acc = copied
    with builder.loop("c", width, unroll=unroll) as c:
        store(builder, body, [image, channel, row, x + c], f"{acc}[{c}]", machine.lanes, lane, mask)
