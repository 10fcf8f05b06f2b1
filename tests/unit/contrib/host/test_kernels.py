"""Random convolutions, pools, products, reductions and copies: what the templates compute, by thread and target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, target_params, weight

from relaybuild.ir.expr import Expr, Tuple, const

CHANNELS = (1, 2, 3, 5, 7, 8, 15, 16, 17, 24, 31, 32, 33, 48, 50)
CASES = 7
"""Cases in one library."""
HEAVY = 1e-4
"""Tolerance of long sums, and of Winograd's transforms."""


class Random:
    """Draws shapes and values."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        """In [low, high]."""
        return int(self.generator.integers(low, high + 1))

    def of(self, *choices: object) -> object:
        return choices[self.number(0, len(choices) - 1)]

    def channels(self) -> int:
        return CHANNELS[self.number(0, len(CHANNELS) - 1)]

    def chance(self, probability: float = 0.5) -> bool:
        return bool(self.generator.random() < probability)

    def real(self, *shape: int) -> Array:
        return self.generator.normal(size=shape).astype("float32")


def shape_of(expr: Expr) -> tuple[int, ...]:
    return expr.tensor_type.static_shape


def image(r: Random, batch: Batch, channels: int, least: int = 1, most: int = 13) -> Expr:
    """An input, or what an element-wise kernel makes of one, so that it may lie in channel blocks."""
    value: Expr = batch.input(r.real(r.number(1, 2), channels, r.number(least, most), r.number(least, most)))
    return call("tanh", value) if r.chance(0.3) else value


def pads(r: Random, most: int) -> tuple[int, int, int, int]:
    return r.number(0, most), r.number(0, most), r.number(0, most), r.number(0, most)


def finish(r: Random, batch: Batch, value: Expr) -> Expr:
    """Maybe an epilogue, and maybe a reader that wants a halo, blocks or rows."""
    shape = shape_of(value)
    channels = shape[1]
    if r.chance():
        value = call("nn.bias_add", value, weight(r.real(channels)))
    if r.chance(0.3):
        value = call("add", value, batch.input(r.real(*shape)))
    if r.chance(0.3):
        value = call("multiply", value, call("sigmoid", value))
    if r.chance(0.3):
        value = call(str(r.of("nn.relu", "tanh", "erf")), call("clip", value, a_min=-3.0, a_max=3.0))
    match r.number(0, 7):
        case 0:
            size = r.number(1, 3)
            attrs = {"padding": (size - 1, size // 2, size, size - 1), "strides": r.number(1, 2)}
            return call("nn.conv2d", value, weight(r.real(r.number(1, 20), channels, size, size)), **attrs)
        case 1:
            size = r.number(2, 5)
            filters = weight(r.real(channels, 1, size, size))
            return call("nn.conv2d", value, filters, groups=channels, padding=size - 1)
        case 2:
            return call("nn.max_pool2d", value, pool_size=2, padding=1)
        case 3:
            return call("nn.softmax", value, axis=1)
        case 4:
            part = call("strided_slice", value, begin=(0,), end=(max(1, channels // 2),), axes=(1,))
            return call("concatenate", Tuple([value, part]), axis=1)
        case 5:
            return call("reshape", value, newshape=(shape[0], -1))
    return value


def group_count(r: Random, channels: int) -> int:
    return int(str(r.of(*[n for n in range(1, channels + 1) if channels % n == 0])))


def convolution(r: Random, batch: Batch) -> Expr:
    channels = r.channels()
    groups = group_count(r, channels) if r.chance(0.5) else 1
    rows, columns = r.number(1, 5), r.number(1, 4)
    dilation = (r.number(1, 2), r.number(1, 3))
    top, left, bottom, right = pads(r, 3)
    least = max(1, (rows - 1) * dilation[0] + 1 - top - bottom, (columns - 1) * dilation[1] + 1 - left - right)
    outs = groups * r.number(1, max(1, 50 // groups))
    value = call(
        "nn.conv2d",
        image(r, batch, channels, least, least + r.number(0, 14)),
        weight(r.real(outs, channels // groups, rows, columns)),
        groups=groups,
        dilation=dilation,
        strides=(r.number(1, 3), r.number(1, 3)),
        padding=(top, left, bottom, right),
    )
    return finish(r, batch, value)


def narrow(r: Random, batch: Batch) -> Expr:
    """Groups, or outputs in all, that would leave channel blocks half empty."""
    inputs, outputs = r.number(2, 24), r.number(1, 24)
    groups = r.number(2, 9) if r.chance(0.8) else 1
    if groups == 1:
        inputs, outputs = r.number(8, 60), r.number(5, 8)
    rows, columns = r.number(1, 4), r.number(1, 4)
    dilation = (r.number(1, 2), r.number(1, 3))
    least = max((rows - 1) * dilation[0], (columns - 1) * dilation[1]) + 1
    value = call(
        "nn.conv2d",
        image(r, batch, groups * inputs, least + 8, least + 30),
        weight(r.real(groups * outputs, inputs, rows, columns)),
        groups=groups,
        dilation=dilation,
        strides=(r.number(1, 3), r.number(1, 3)),
        padding=pads(r, 3),
    )
    return finish(r, batch, value)


def winograd(r: Random, batch: Batch) -> Expr:
    channels, outs = r.number(32, 70), r.number(32, 70)
    x = batch.input(r.real(r.number(1, 2), channels, r.number(6, 30), r.number(6, 30)))
    filters = r.real(outs, channels, 3, 3) / np.float32(20)
    value = call("nn.conv2d", x, weight(filters), padding=pads(r, 2))
    return finish(r, batch, value)


def depthwise(r: Random, batch: Batch) -> Expr:
    channels = max(2, r.channels())
    rows, columns = r.number(1, 5), r.number(1, 5)
    dilation = (r.number(1, 2), r.number(1, 2))
    least = max((rows - 1) * dilation[0], (columns - 1) * dilation[1]) + 1
    value = call(
        "nn.conv2d",
        image(r, batch, channels, least, least + 12),
        weight(r.real(channels, 1, rows, columns)),
        groups=channels,
        dilation=dilation,
        strides=(r.number(1, 2), r.number(1, 2)),
        padding=pads(r, 2),
    )
    return finish(r, batch, value)


def transposed(r: Random, batch: Batch) -> Expr:
    channels = r.channels()
    groups = group_count(r, channels) if r.chance(0.4) else 1
    strides = (r.number(1, 3), r.number(1, 3))
    kernel = (r.number(2, 5), r.number(1, 5))
    value = call(
        "nn.conv2d_transpose",
        image(r, batch, channels, 2, 9),
        weight(r.real(channels, r.number(1, max(1, 40 // groups)), *kernel)),
        groups=groups,
        strides=strides,
        padding=(r.number(0, 1), r.number(0, 1), 0, r.number(0, 1)),
        output_padding=(r.number(0, strides[0] - 1), r.number(0, strides[1] - 1)),
    )
    return finish(r, batch, value)


def pool(r: Random, batch: Batch) -> Expr:
    name = str(r.of("nn.max_pool2d", "nn.avg_pool2d"))
    size = (r.number(1, 4), r.number(1, 4))
    dilation = (r.number(1, 2), r.number(1, 2))
    least = max((size[0] - 1) * dilation[0], (size[1] - 1) * dilation[1]) + 1
    attrs = {"count_include_pad": r.chance()} if name == "nn.avg_pool2d" else {}
    value = call(
        name,
        image(r, batch, r.channels(), least, least + 9),
        pool_size=size,
        dilation=dilation,
        strides=(r.number(1, 3), r.number(1, 3)),
        padding=tuple(r.number(0, size[d % 2] - 1) for d in range(4)),
        ceil_mode=r.chance(),
        **attrs,
    )
    return finish(r, batch, value)


def global_pool(r: Random, batch: Batch) -> Expr:
    """A squeeze-and-excitation block."""
    x = image(r, batch, r.channels())
    channels = shape_of(x)[1]
    pooled = call(str(r.of("nn.global_avg_pool2d", "nn.global_max_pool2d")), x)
    middle = r.number(1, 20)
    squeezed = call("nn.relu", call("nn.conv2d", pooled, weight(r.real(middle, channels, 1, 1))))
    gate = call("sigmoid", call("nn.conv2d", squeezed, weight(r.real(channels, middle, 1, 1))))
    return finish(r, batch, call("multiply", x, gate) if r.chance(0.7) else pooled)


def product(r: Random, batch: Batch) -> Expr:
    m, k, n = (int(str(r.of(1, 2, 3, 7, 16, 17, 31, 33, 40, 65))) for _ in range(3))
    leading = [(), (3,), (2, 3)][r.number(0, 2)]
    if r.chance(0.4):
        x = batch.input(r.real(*leading, m, k))
        right = weight(r.real(n, k)) if r.chance() else batch.input(r.real(n, k))
        value = call("nn.dense", x, right)
        return call("nn.relu", call("add", value, weight(r.real(n)))) if r.chance() else value
    transposes = {"transpose_a": r.chance(0.3), "transpose_b": r.chance(0.3)}
    left_shape = (k, m) if transposes["transpose_a"] else (m, k)
    right_shape = (n, k) if transposes["transpose_b"] else (k, n)
    right_leading = [(), leading, leading[-1:], (1,) * len(leading)][r.number(0, 3)]
    right_value = r.real(*right_leading, *right_shape)
    right = weight(right_value) if r.chance() else batch.input(right_value)
    value = call("nn.matmul", batch.input(r.real(*leading, *left_shape)), right, **transposes)
    return call("tanh", call("add", value, weight(r.real(m, n)))) if r.chance() else value


def reduction(r: Random, batch: Batch) -> Expr:
    shape = tuple(int(str(r.of(1, 2, 3, 5, 16, 17, 40))) for _ in range(r.number(1, 4)))
    x: Expr = batch.input(r.real(*shape))
    if r.chance(0.4):
        x = call("sigmoid", x)
    if r.chance(0.3):
        x = call("transpose", x)
    axes = [axis for axis in range(len(shape)) if r.chance()]
    names = ("sum", "max", "min", "mean", "variance", "nn.softmax", "nn.log_softmax", "argmax", "argmin", "prod")
    name = str(r.of(*names))
    if "softmax" in name:
        value = call(name, x, axis=r.number(0, len(shape) - 1))
    elif name.startswith("arg"):
        return call(name, x, axis=r.number(0, len(shape) - 1), keepdims=r.chance(), select_last_index=r.chance())
    else:
        value = call(name, x, axis=axes, keepdims=r.chance())
    return call("nn.relu", value) if r.chance(0.3) else value


def resize(r: Random, batch: Batch) -> Expr:
    x = image(r, batch, r.channels())
    method = str(r.of("nearest_neighbor", "linear", "cubic"))
    mode = str(r.of("half_pixel", "align_corners", "asymmetric"))
    scale = r.number(1, 3)
    size = tuple(extent * scale if r.chance(0.7) else r.number(1, 20) for extent in shape_of(x)[2:])
    value = call("image.resize2d", x, size=size, method=method, coordinate_transformation_mode=mode)
    return finish(r, batch, value)


def joined(r: Random, batch: Batch) -> Expr:
    """Concatenations of produced values, of inputs, of one value twice, in each other."""
    first = image(r, batch, r.channels())
    batch_size, _, height, width = shape_of(first)
    axis = int(str(r.of(1, 1, 1, 0, 2, 3)))

    def part() -> Expr:
        channels = shape_of(first)[1] if axis != 1 else r.channels()
        x: Expr = batch.input(r.real(batch_size, channels, height, width))
        match r.number(0, 4):
            case 0:
                return x
            case 1:
                return call("nn.conv2d", x, weight(r.real(channels, channels, 3, 3)), padding=1)
            case 2:
                return call("nn.max_pool2d", x, pool_size=3, padding=1)
        return call("nn.relu", x)

    parts = [part() for _ in range(r.number(1, 3))]
    if r.chance():
        parts.append(parts[0])
    if axis == 1 and r.chance():
        parts.append(call("concatenate", Tuple([part(), parts[0], part()]), axis=1))
    value = call("concatenate", Tuple(parts), axis=axis)
    if r.chance(0.3):
        other = call("concatenate", Tuple([parts[-1], parts[0]]), axis=axis)
        batch.add("other", call("nn.max_pool2d", other, pool_size=2, padding=1), HEAVY)
    return finish(r, batch, value)


def moved(r: Random, batch: Batch) -> Expr:
    """Slices, pads, transposes, reshapes, gathers of produced values."""
    x = image(r, batch, r.channels(), 2)
    shape = shape_of(x)
    if r.chance():
        x = call("nn.conv2d", x, weight(r.real(r.channels(), shape[1], 1, 1)))
    for _ in range(r.number(1, 3)):
        shape = shape_of(x)
        match r.number(0, 5):
            case 0:
                axis = r.number(0, 3)
                begin = r.number(0, shape[axis] - 1)
                x = call("strided_slice", x, begin=(begin,), end=(r.number(begin + 1, 99),), axes=(axis,))
            case 1:
                axis = r.number(1, 3)
                step = r.number(2, 3)
                attrs = {"begin": (shape[axis], 0), "end": (-99, 99), "strides": (-step, 1), "axes": (axis, 0)}
                x = call("strided_slice", x, **attrs)
            case 2:
                widths = [(r.number(0, 2), r.number(0, 2)) for _ in range(4)]
                x = call("nn.pad", x, pad_width=widths, pad_mode=str(r.of("constant", "edge")))
            case 3:
                x = call("transpose", x, axes=(0, 2, 3, 1) if r.chance() else (1, 0, 3, 2))
            case 4:
                index = r.generator.integers(0, shape[1], r.number(1, 18))
                x = call("take", x, batch.input(index), axis=1)
            case 5:
                x = call("reshape", x, newshape=(shape[0], shape[2], shape[1], shape[3]))
    return finish(r, batch, call("abs", x) if r.chance(0.3) else x)


def ordered(r: Random, batch: Batch) -> Expr:
    """Sorted rows and columns, with many equal elements, and the first of them."""
    shape = tuple(int(str(r.of(1, 2, 3, 16, 17, 40, 300))) for _ in range(r.number(1, 2)))
    x: Expr = batch.input(np.round(2 * r.real(*shape)))
    if r.chance(0.4):
        x = call("transpose", call("negative", x))
    axis, ascending = r.number(-1, len(shape) - 1), r.chance()
    match r.number(0, 3):
        case 0:
            return call("sort", x, axis=axis, is_ascend=ascending)
        case 1:
            return call("argsort", x, axis=axis, is_ascend=ascending, dtype=str(r.of("int32", "int64")))
        case 2:
            return call("nn.relu", call("sort", x, axis=axis, is_ascend=ascending))
    count = r.number(1, shape_of(x)[axis])
    return call("topk", x, k=count, axis=axis, is_ascend=ascending, ret_type=str(r.of("values", "indices")))


def scattered(r: Random, batch: Batch) -> Expr:
    """Updates at computed places, of which some are outside."""
    shape = tuple(int(str(r.of(1, 2, 5, 17, 40))) for _ in range(r.number(1, 3)))
    x: Expr = batch.input(r.real(*shape))
    mode = str(r.of("update", "add", "mul", "min", "max"))
    if r.chance():
        axis = r.number(0, len(shape) - 1)
        extents = tuple(r.number(1, extent) for extent in shape)
        indices = r.generator.integers(-1, shape[axis] + 1, extents)
        value = call(
            "scatter_elements", x, batch.input(indices), batch.input(r.real(*extents)), axis=axis, reduction=mode
        )
    else:
        depth, count = r.number(1, len(shape)), r.number(1, 30)
        indices = np.stack([r.generator.integers(-1, extent + 1, count) for extent in shape[:depth]], 1)
        updates = batch.input(r.real(count, *shape[depth:]))
        value = call("scatter_nd", x, batch.input(indices), updates, mode=mode)
    return call("nn.relu", value) if r.chance(0.3) else value


KINDS: dict[str, Callable[[Random, Batch], Expr]] = {
    "convolution": convolution,
    "narrow": narrow,
    "winograd": winograd,
    "depthwise": depthwise,
    "transposed": transposed,
    "pool": pool,
    "global_pool": global_pool,
    "product": product,
    "reduction": reduction,
    "resize": resize,
    "joined": joined,
    "moved": moved,
    "ordered": ordered,
    "scattered": scattered,
}
FEWER = {"winograd": 2}


def gather(kind: str, seed: int) -> Batch:
    batch = Batch()
    for number in range(FEWER.get(kind, CASES)):
        value = KINDS[kind](Random(1000 * seed + number), batch)
        batch.add(f"{kind} seed {1000 * seed + number} {value.checked_type}", value, HEAVY)
    return batch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", target_params())
def test_kernels(target: str, kind: str) -> None:
    gather(kind, 1).compare(target, threads=(1, 2, 3, 4))


def producers(batch: Batch, channels: int) -> dict[str, Expr]:
    """Values of (1, channels, 6, 20) by operators that lie in rows and are no maps."""
    generator = np.random.default_rng(channels)

    def data(*shape: int) -> Expr:
        return batch.input(generator.normal(size=shape).astype("float32"))

    wide = data(1, channels, 6, 20)
    return {
        "product": call("nn.matmul", data(1, channels, 6, 9), data(1, channels, 9, 20)),
        "product with an epilogue": call("tanh", call("nn.matmul", data(1, channels, 6, 9), data(1, channels, 9, 20))),
        "dense layer": call(
            "reshape", call("nn.dense", data(channels * 6, 9), data(20, 9)), newshape=(1, channels, 6, 20)
        ),
        "softmax of rows": call("nn.softmax", wide, axis=3),
        "softmax of channels": call("nn.softmax", wide, axis=1),
        "sum": call("sum", data(1, channels, 3, 6, 20), axis=(2,)),
        "maximum": call("max", data(1, channels, 6, 20, 3), axis=(4,)),
        "index": call("cast", call("argmax", data(1, channels, 6, 20, 3), axis=4), dtype="float32"),
    }


@pytest.mark.parametrize("target", target_params())
@pytest.mark.parametrize("channels", [1, 3, 17])
def test_what_windows_read_around_an_image_is_zero(target: str, channels: int) -> None:
    batch, r = Batch(), Random(channels)
    for name, value in producers(batch, channels).items():
        filters = weight(r.real(5, channels, 3, 3))
        batch.add(f"{name}, convolution", call("nn.conv2d", value, filters, padding=(1, 1, 1, 1)), HEAVY)
        pooled = call("nn.avg_pool2d", value, pool_size=(3, 3), padding=(1, 1, 1, 1), count_include_pad=True)
        batch.add(f"{name}, pool", pooled)
        spread = call("nn.conv2d_transpose", value, weight(r.real(channels, 3, 3, 3)), strides=(2, 2))
        batch.add(f"{name}, transposed convolution", spread, HEAVY)
    batch.compare(target, threads=(1, 2))


@pytest.mark.parametrize("target", target_params())
def test_channels_that_end_within_a_block(target: str) -> None:
    """Where they are padded, the end lies in any of a block's vectors."""
    batch, r = Batch(), Random(3)
    for channels in (1, 3, 7, 9, 10, 15):
        image = call("nn.relu", call("nn.conv2d", batch.input(r.real(1, 4, 5, 6)), weight(r.real(channels, 4, 1, 1))))
        for padded in (14, 16, 24):
            value = call("nn.pad", image, pad_width=((0, 0), (0, padded - channels), (0, 0), (0, 0)))
            value = call("nn.conv2d", value, weight(r.real(4, padded, 3, 3)), padding=1)
            batch.add(f"{channels} of {padded}", value, HEAVY)
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_roots_by_powers(target: str) -> None:
    batch = Batch()
    x = batch.input(np.array([-np.inf, -2.0, -0.0, 0.0, 0.5, 2.0, np.inf, np.nan] * 5, "float32"))
    half = const(np.float32(0.5))
    batch.add("root", call("power", x, half))
    batch.add("sign of the root of zero", call("divide", const(np.float32(1)), call("power", call("abs", x), half)))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_means_of_nothing_are_no_numbers(target: str) -> None:
    batch = Batch()
    nothing = call("strided_slice", batch.input(np.ones((3, 4), "float32")), begin=(0,), end=(0,), axes=(1,))
    for name in ("mean", "variance", "sum"):
        batch.add(name, call(name, nothing, axis=1))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_narrow_integers_wrap(target: str) -> None:
    """Where one is made of a float and is a float again, too: gcc need not make it one for that."""
    batch = Batch()
    x = batch.input(np.array([300.5, -2.0, 44.25, 1e5, -70000.75] * 5, "float32"))
    for dtype in ("int8", "uint8", "int16", "uint16", "uint32"):
        batch.add(dtype, call("cast", call("cast", x, dtype=dtype), dtype="float32"))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_halves_are_computed_in_single_precision(target: str) -> None:
    generator = np.random.default_rng(2)
    batch = Batch()

    def half(*shape: int) -> Array:
        return generator.normal(size=shape).astype("float16")

    image = batch.input(half(1, 5, 9, 9))
    values = {
        "convolution": call("nn.conv2d", image, weight(half(7, 5, 3, 3)), padding=1),
        "groups": call("nn.conv2d", image, weight(half(5, 1, 3, 3)), groups=5),
        "widened": call("nn.conv2d", image, weight(half(7, 5, 1, 1)), out_dtype="float32"),
        "transposed": call("nn.conv2d_transpose", image, weight(half(5, 4, 2, 2)), strides=2),
        "maximum": call("nn.max_pool2d", image, pool_size=3),
        "mean": call("nn.global_avg_pool2d", image),
        "product": call("nn.matmul", batch.input(half(3, 20)), weight(half(20, 17))),
        "dense": call("nn.dense", batch.input(half(3, 20)), batch.input(half(17, 20))),
    }
    for name, value in values.items():
        batch.add(name, value, 2e-3)
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_indices_that_come_of_comparisons(target: str) -> None:
    """gcc 12 vectorises these loops, and takes a comparison for the index of what it gathers."""
    generator = np.random.default_rng(5)
    batch = Batch()
    pairs = batch.input(generator.normal(size=(7, 2)).astype("float32"))
    signs = batch.input(generator.normal(size=(4, 4)).astype("float32"))
    for dtype in ("int32", "int64"):
        positions = batch.input(generator.integers(0, 2, (2, 2)).astype(dtype))
        batch.add(f"one of two, {dtype}", call("take", pairs, positions, axis=1, mode="clip"))
        chosen = call("cast", call("greater", signs, batch.input(np.zeros(4, "float32"))), dtype=dtype)
        batch.add(f"by sign, {dtype}", call("take", pairs, chosen, axis=1, mode="clip"))
        wide = batch.input(generator.normal(size=(4, 5)).astype("float32"))
        batch.add(f"along an axis by sign, {dtype}", call("gather", wide, chosen, axis=1))
    batch.compare(target, optimisation="-O2")
