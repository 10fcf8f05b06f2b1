"""One loop nest that computes each element of its output from elements of its inputs; knows nothing of the model."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.lower.index import Axis, Index, IndexLike, delinearize
from relaybuild.lower.layout import BLOCK
from relaybuild.lower.loop_ir import Builder, Kernel
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, indices_of, walk
from relaybuild.lower.templates.body import Body, pad_mask, store, stray_reads, vector_body, zero_halo

CHUNK = 4096
"""Elements of the innermost loop that one thread takes at a time."""


def map_kernel(body: Body, machine: Machine) -> Kernel:
    """The kernel of a map, over channel blocks or row-major by the output's layout."""
    if body.output.layout.block > 1:
        return _blocked_map(body, machine)
    return _row_major_map(body, machine)


def _blocked_map(body: Body, machine: Machine) -> Kernel:
    builder = Builder()
    out = body.output.layout
    batch, channels, height, width = out.shape
    with builder.share(batch * out.num_blocks * height) as unit:
        y = builder.let_index("y", unit % height)
        block = builder.let_index("block", unit // height % out.num_blocks)
        image = builder.let_index("image", unit // (height * out.num_blocks))
        lane = Axis("lane", machine.lanes - 1)
        probe = [image, block * BLOCK + Index.of(lane), y, Index.of(Axis("x", width - 1))]
        if machine.lanes == 1 or not vector_body(body, probe, lane, anchored=False):
            _blocked_lanes(builder, body, channels, image, block, y)
        elif out.has_pad_lanes and stray_reads(body, probe, lane, anchored=False):
            with builder.branch(f"{block} < {out.num_blocks - 1}") as branch:
                _blocked_vectors(builder, body, machine, image, block, y, whole=True)
            with builder.block(branch.otherwise):
                _blocked_lanes(builder, body, channels, image, block, y)
        else:
            _blocked_vectors(builder, body, machine, image, block, y)
        zero_halo(builder, body.output, image, block, y, 1)
    return body.kernel(builder.body, machine.lanes)


def _blocked_vectors(
    builder: Builder, body: Body, machine: Machine, image: Index, block: Index, y: Index, *, whole: bool = False
) -> None:
    """Vectors of channels; `whole` says that the block has no pad lanes."""
    out = body.output.layout
    with builder.loop("h", BLOCK // machine.lanes) as h:
        mask = None if whole else pad_mask(builder, out, block, h, machine.lanes)
        with builder.loop("x", out.shape[3]) as x:
            lane = builder.axis("lane", machine.lanes)
            index = [image, block * BLOCK + h * machine.lanes + Index.of(lane), y, x]
            store(builder, body, index, None, machine.lanes, lane, mask)


def _blocked_lanes(builder: Builder, body: Body, channels: int, image: Index, block: Index, y: Index) -> None:
    out = body.output.layout
    with builder.loop("x", out.shape[3]) as x, builder.loop("l", BLOCK) as lane:
        index: Sequence[IndexLike] = [image, block * BLOCK + lane, y, x]
        if channels % BLOCK == 0:
            store(builder, body, index, None, 1, None)
            return
        with builder.branch(f"{block * BLOCK + lane} < {channels}") as branch:
            store(builder, body, index, None, 1, None)
        with builder.block(branch.otherwise):
            builder.assign(f"out[{out.address(index)}]", "0")


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
    groups = merged_dimensions(body)
    extents = [_product([shape[dimension] for dimension in group]) for group in groups]
    inner = extents[-1] if extents else 1
    outer = extents[:-1]
    outer_total = _product(outer)
    chunks = -(-inner // CHUNK) if outer_total < 8 else 1
    length = -(-inner // chunks)
    length = -(-length // BLOCK) * BLOCK if chunks > 1 else inner
    with builder.share(outer_total * chunks) as unit:
        chunk = builder.let_index("chunk", unit % chunks)
        counters = [builder.let_index("i", part) for part in delinearize(unit // chunks, outer)]
        begin: Index = chunk * length
        end: Index = Index.of(inner)
        if chunks > 1:
            past = (begin + length).as_factor()
            end = Index.opaque(builder.let("ptrdiff_t", "end", f"{past} < {inner} ? {past} : {inner}"))
        _inner_loop(builder, body, machine, groups, inner, counters, (begin, end), single=chunks == 1)
    _zero_row_major_halo(builder, body)
    return body.kernel(builder.body, machine.lanes)


def _inner_loop(
    builder: Builder,
    body: Body,
    machine: Machine,
    groups: Sequence[Sequence[int]],
    inner: int,
    counters: Sequence[Index],
    bounds: tuple[Index, Index],
    *,
    single: bool,
) -> None:
    """Vectors as far as they go, then single elements."""
    lanes = machine.lanes
    shape = body.output.layout.shape
    begin, end = bounds
    lane = Axis("lane", lanes - 1)
    probe = _expand(shape, groups, [*counters, Index.of(Axis("probe", inner - lanes)) + Index.of(lane)])
    contiguous = body.output.layout.address(probe).coefficient(lane) == 1
    if lanes > 1 and inner >= lanes and contiguous and vector_body(body, probe, lane, anchored=False):
        stop = Index.of(inner // lanes * lanes)
        if not single:
            count = f"({end} - {begin.as_factor()}) / {lanes} * {lanes}"
            stop = Index.opaque(builder.let("ptrdiff_t", "stop", f"{begin} + {count}"))
        with builder.loop("v", stop, begin, step=lanes, last=inner - lanes) as v:
            axis = builder.axis("lane", lanes)
            store(builder, body, _expand(shape, groups, [*counters, v + Index.of(axis)]), None, lanes, axis)
        if single and inner % lanes == 0:
            return
        begin = stop
    with builder.loop("x", end, begin, last=inner - 1) as x:
        store(builder, body, _expand(shape, groups, [*counters, x]), None, 1, None)


def _expand(shape: Sequence[int], groups: Sequence[Sequence[int]], counters: Sequence[Index]) -> list[Index]:
    """The logical index of the counters of merged loops."""
    index = [Index.of(0)] * len(shape)
    for group, counter in zip(groups, counters):
        parts = delinearize(counter, [shape[dimension] for dimension in group])
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
