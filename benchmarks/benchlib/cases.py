"""Random shapes for each kernel template, and the work of each; knows nothing of how they are compiled or timed.

Shapes are drawn so that their sizes spread evenly, on a logarithmic scale, from microseconds to milliseconds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from benchlib.limits import Work
from relaybuild.ir.expr import Call, Expr, Function, Var, const, var
from relaybuild.ir.op import call_op

NOMINAL_PEAK = 1e11
NOMINAL_BANDWIDTH = 2e10
"""Operations and bytes a second by which sizes are spread; they need not be those of any machine."""
LEAST_SECONDS, MOST_SECONDS = 1e-6, 4e-3
MOST_BYTES = 96e6
DRAWS = 300
EXP_OPERATIONS = 16.0
"""An exponential in single precision: eight multiply-adds (reduction, polynomial, scaling)."""


@dataclass(frozen=True)
class Case:
    """One call of one operator: `op` is the one to be timed in the function that `build` makes."""

    template: str
    label: str
    op: str
    work: Work
    build: Callable[[], Function]
    precise: bool = False


Draw = Callable[[random.Random], Case]


def draw_cases(names: Iterable[str], count: int, seed: int) -> list[Case]:
    """`count` cases of each template, in order of size; each template's depend on the seed and its name alone."""
    cases: list[Case] = []
    for name in names:
        rng = random.Random(f"{seed} {name}")
        cases += [_of_size(TEMPLATES[name], rng, number, count) for number in range(count)]
    return cases


def nominal_seconds(work: Work) -> float:
    """A machine-independent size."""
    return max(work.operations / NOMINAL_PEAK, work.num_bytes / NOMINAL_BANDWIDTH)


def _of_size(draw: Draw, rng: random.Random, number: int, count: int) -> Case:
    """The first case drawn in the part `number` of `count` of the range of sizes, or the nearest."""
    ratio = MOST_SECONDS / LEAST_SECONDS
    low, high = (LEAST_SECONDS * ratio ** ((number + end) / count) for end in (0, 1))
    middle = math.log(math.sqrt(low * high))
    best: tuple[float, Case] | None = None
    for _ in range(DRAWS):
        case = draw(rng)
        if case.work.num_bytes > MOST_BYTES:
            continue
        seconds = nominal_seconds(case.work)
        if low <= seconds < high:
            return case
        distance = abs(math.log(seconds) - middle)
        if best is None or distance < best[0]:
            best = (distance, case)
    assert best is not None
    return best[1]


def _log(rng: random.Random, low: int, high: int, multiple: int = 1) -> int:
    """A number between `low` and `high`, evenly on a logarithmic scale; three of four are multiples of `multiple`."""
    value = round(math.exp(rng.uniform(math.log(low), math.log(high))))
    if multiple > 1 and rng.random() < 0.75:
        value = max(1, round(value / multiple)) * multiple
    return min(max(value, low), high)


def _channels(rng: random.Random, low: int = 8, high: int = 1024) -> int:
    return _log(rng, low, high, 16)


def _image(rng: random.Random, low: int = 4, high: int = 160) -> tuple[int, int]:
    """Rows and columns, mostly equal."""
    rows = _log(rng, low, high)
    return rows, rows if rng.random() < 0.75 else _log(rng, low, high)


def _weight(*shape: int) -> Expr:
    return const(np.zeros(shape, np.float32))


def _op(name: str, *args: Expr, **attrs: object) -> Call:
    return call_op(name, args, None, **attrs)


def _text(*extents: int) -> str:
    return "×".join(map(str, extents))


def _floats(*shape: int) -> float:
    return 4.0 * prod(shape)


def _biased(value: Call, channels: int) -> Call:
    """With the epilogue that nearly every product and convolution has: bias and rectifier."""
    return _op("nn.relu", _op("nn.bias_add", value, _weight(channels), axis=1 if value.tensor_type.rank == 4 else -1))


def _function(params: Iterable[Var], body: Expr) -> Function:
    return Function(list(params), body)


def _matmul(rng: random.Random) -> Case:
    rows, depth, columns = _log(rng, 1, 1024), _log(rng, 8, 4096, 16), _log(rng, 8, 4096, 16)

    def build() -> Function:
        data = var("data", (rows, depth))
        return _function([data], _biased(_op("nn.dense", data, _weight(columns, depth)), columns))

    work = Work(2.0 * rows * depth * columns, _floats(rows, depth) + _floats(depth, columns), _floats(rows, columns))
    return Case("matrix product", f"{_text(rows, depth)} · {_text(depth, columns)}", "nn.dense", work, build)


def _batched(rng: random.Random) -> Case:
    batch, rows = _log(rng, 1, 64), _log(rng, 1, 512)
    depth, columns = _log(rng, 8, 512, 16), _log(rng, 8, 512, 16)
    transposed = rng.random() < 0.5
    right_shape = (batch, columns, depth) if transposed else (batch, depth, columns)

    def build() -> Function:
        left, right = var("left", (batch, rows, depth)), var("right", right_shape)
        return _function([left, right], _op("nn.matmul", left, right, transpose_b=transposed))

    work = Work(
        2.0 * batch * rows * depth * columns,
        _floats(batch, rows, depth) + _floats(batch, depth, columns),
        _floats(batch, rows, columns),
    )
    label = f"{batch} of {_text(rows, depth)} · {_text(depth, columns)}{', right side transposed' * transposed}"
    return Case("batched product", label, "nn.matmul", work, build)


@dataclass(frozen=True)
class _Window:
    """Where a window of `size` taps reads along one dimension of `extent` positions."""

    extent: int
    size: int
    stride: int = 1
    before: int = 0
    after: int = 0
    dilation: int = 1

    @property
    def outputs(self) -> int:
        return (self.extent + self.before + self.after - self.dilation * (self.size - 1) - 1) // self.stride + 1

    @property
    def touched(self) -> int:
        """How many positions are read at all."""
        taps = (
            q * self.stride - self.before + i * self.dilation for q in range(self.outputs) for i in range(self.size)
        )
        return len({tap for tap in taps if 0 <= tap < self.extent})


def _conv(
    template: str,
    channels: int,
    out_channels: int,
    rows: _Window,
    columns: _Window,
    groups: int = 1,
    precise: bool = False,
) -> Case:
    attrs = {
        "strides": (rows.stride, columns.stride),
        "padding": (rows.before, columns.before, rows.after, columns.after),
        "dilation": (rows.dilation, columns.dilation),
        "groups": groups,
    }
    depth = channels // groups

    def build() -> Function:
        data = var("data", (1, channels, rows.extent, columns.extent))
        weight = _weight(out_channels, depth, rows.size, columns.size)
        return _function([data], _biased(_op("nn.conv2d", data, weight, **attrs), out_channels))

    pixels = rows.outputs * columns.outputs
    taps = rows.size * columns.size
    work = Work(
        2.0 * out_channels * pixels * depth * taps,
        _floats(channels, rows.touched, columns.touched) + _floats(out_channels, depth, taps),
        _floats(out_channels, pixels),
    )
    notes = [
        f"kernel {_text(rows.size, columns.size)}",
        f"stride {_text(rows.stride, columns.stride)}" if (rows.stride, columns.stride) != (1, 1) else "",
        f"padding {attrs['padding']}" if any((rows.before, columns.before, rows.after, columns.after)) else "",
        f"dilation {rows.dilation}" if rows.dilation > 1 else "",
        f"{groups} groups" if groups > 1 else "",
    ]
    label = f"{channels}→{out_channels} on {_text(rows.extent, columns.extent)}, {', '.join(filter(None, notes))}"
    return Case(template, label, "nn.conv2d", work, build, precise)


def _same(extent: int, size: int, stride: int = 1, dilation: int = 1) -> _Window:
    pad = dilation * (size // 2)
    return _Window(extent, size, stride, pad, pad, dilation)


def _conv_1x1(rng: random.Random) -> Case:
    rows, columns = _image(rng, 1, 112)
    return _conv("convolution 1×1", _channels(rng), _channels(rng), _Window(rows, 1), _Window(columns, 1))


def _conv_3x3(rng: random.Random) -> Case:
    rows, columns = _image(rng)
    window = _same(rows, 3), _same(columns, 3)
    return _conv("convolution 3×3", _channels(rng, 8, 512), _channels(rng, 8, 512), *window)


def _conv_precise(rng: random.Random) -> Case:
    rows, columns = _image(rng)
    window = _same(rows, 3), _same(columns, 3)
    channels = _channels(rng, 8, 512), _channels(rng, 8, 512)
    return _conv("convolution 3×3, precise", *channels, *window, precise=True)


def _conv_large(rng: random.Random) -> Case:
    rows, columns = _image(rng, 7)
    sizes = rng.choice([(5, 5), (7, 7), (1, 7), (7, 1)])
    window = _same(rows, sizes[0]), _same(columns, sizes[1])
    return _conv("convolution 5×5, 7×7", _channels(rng, 8, 256), _channels(rng, 8, 256), *window)


def _conv_strided(rng: random.Random) -> Case:
    rows, columns = _image(rng, 7)
    size = rng.choice([1, 3, 5])
    window = _same(rows, size, 2), _same(columns, size, 2)
    return _conv("convolution, strided", _channels(rng, 8, 512), _channels(rng, 8, 512), *window)


def _conv_dilated(rng: random.Random) -> Case:
    rows, columns = _image(rng, 6, 96)
    channels = _channels(rng, 8, 512), _channels(rng, 8, 512)
    if rng.random() < 0.6:
        dilation = rng.choice([2, 3, 4, 6])
        window = _same(rows, 3, 1, dilation), _same(columns, 3, 1, dilation)
    else:
        pads = [rng.randrange(4) for _ in range(4)]
        window = _Window(rows, 4, 1, pads[0], pads[1]), _Window(columns, 4, 1, pads[2], pads[3])
    return _conv("convolution, padded or dilated", *channels, *window)


def _conv_grouped(rng: random.Random) -> Case:
    rows, columns = _image(rng, 4, 112)
    groups = rng.choice([2, 4, 8, 16, 32])
    depth, width = (rng.choice([4, 8, 16, 20, 32, 64]) for _ in range(2))
    width = depth if rng.random() < 0.7 else width
    size = rng.choice([1, 3])
    window = _same(rows, size), _same(columns, size)
    return _conv("convolution, grouped", groups * depth, groups * width, *window, groups=groups)


def _conv_first(rng: random.Random) -> Case:
    rows, columns = _image(rng, 24, 640)
    size, stride = rng.choice([(3, 1), (3, 2), (5, 1), (7, 2)])
    window = _same(rows, size, stride), _same(columns, size, stride)
    return _conv("convolution of 3 channels", 3, rng.choice([8, 16, 24, 32, 48, 64]), *window)


def _depthwise(rng: random.Random) -> Case:
    rows, columns = _image(rng)
    channels = _channels(rng)
    size, stride = rng.choice([3, 3, 5, 7]), rng.choice([1, 1, 2])
    window = _same(rows, size, stride), _same(columns, size, stride)
    return _conv("convolution, depthwise", channels, channels, *window, groups=channels)


def _transposed(rng: random.Random) -> Case:
    rows, columns = _image(rng, 4, 96)
    channels, out_channels = _channels(rng, 8, 256), _channels(rng, 8, 256)
    size, pad = rng.choice([(2, 0), (3, 1), (4, 1)])

    def build() -> Function:
        data = var("data", (1, channels, rows, columns))
        weight = _weight(channels, out_channels, size, size)
        made = _op("nn.conv2d_transpose", data, weight, strides=(2, 2), padding=(pad, pad, pad, pad))
        return _function([data], _biased(made, out_channels))

    out = [(extent - 1) * 2 + size - 2 * pad for extent in (rows, columns)]
    work = Work(
        2.0 * channels * out_channels * rows * columns * size * size,
        _floats(channels, rows, columns) + _floats(channels, out_channels, size, size),
        _floats(out_channels, *out),
    )
    label = (
        f"{channels}→{out_channels} on {_text(rows, columns)}, kernel {_text(size, size)}, stride 2×2, padding {pad}"
    )
    return Case("convolution, transposed", label, "nn.conv2d_transpose", work, build)


def _pool(template: str, op: str) -> Draw:
    def draw(rng: random.Random) -> Case:
        rows, columns = _image(rng, 5)
        channels = _channels(rng)
        size, stride, pad = rng.choice([(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2), (3, 3, 0)])
        window = _Window(rows, size, stride, pad, pad), _Window(columns, size, stride, pad, pad)

        def build() -> Function:
            data = var("data", (1, channels, rows, columns))
            pads = (pad, pad, pad, pad)
            return _function([data], _op(op, data, pool_size=(size, size), strides=(stride, stride), padding=pads))

        outputs = channels * window[0].outputs * window[1].outputs
        read = _floats(channels, window[0].touched, window[1].touched)
        # The window's sum or maximum over rows, then over columns, is the least arithmetic.
        work = Work(2.0 * outputs * 2 * size, read, _floats(outputs))
        label = f"{channels} on {_text(rows, columns)}, window {size}, stride {stride}, padding {pad}"
        return Case(template, label, op, work, build)

    return draw


def _global_pool(rng: random.Random) -> Case:
    rows, columns = _image(rng, 2, 112)
    channels = _channels(rng)
    op = rng.choice(["nn.global_avg_pool2d", "nn.global_max_pool2d"])

    def build() -> Function:
        data = var("data", (1, channels, rows, columns))
        return _function([data], _op(op, data))

    work = Work(2.0 * channels * rows * columns, _floats(channels, rows, columns), _floats(channels))
    label = f"{channels} on {_text(rows, columns)}, {'average' if 'avg' in op else 'maximum'}"
    return Case("global pool", label, op, work, build)


def _resize(template: str, method: str, operations: float) -> Draw:
    def draw(rng: random.Random) -> Case:
        rows, columns = _image(rng, 4, 160)
        channels = _channels(rng, 8, 512)
        factor = rng.choice([2.0, 2.0, 4.0, 1.6, 3.3])
        out = round(rows * factor), round(columns * factor)
        blocked = rng.random() < 0.7

        def build() -> Function:
            data = var("data", (1, channels, rows, columns))
            source = _through_blocks(data) if blocked else data
            made = _op("image.resize2d", source, size=out, method=method)
            return _function([data], _through_blocks(made) if blocked else made)

        work = Work(operations * channels * prod(out), _floats(channels, rows, columns), _floats(channels, *out))
        label = f"{channels} on {_text(rows, columns)} to {_text(*out)}, {'blocks' if blocked else 'rows'}"
        return Case(template, label, "image.resize2d", work, build)

    return draw


def _through_blocks(value: Expr) -> Call:
    """The value through an operator whose input and output lie in channel blocks."""
    return _op("nn.max_pool2d", value, pool_size=(1, 1))


def _softmax(rng: random.Random) -> Case:
    outer, extent, inner = _log(rng, 1, 4096), _log(rng, 4, 8192), 1
    if rng.random() < 0.2:
        outer, inner = _log(rng, 1, 16), _log(rng, 4, 2048)
    shape = (outer, extent) if inner == 1 else (outer, extent, inner)

    def build() -> Function:
        data = var("data", shape)
        return _function([data], _op("nn.softmax", data, axis=1))

    elements = prod(shape)
    work = Work((8 + EXP_OPERATIONS) * elements, _floats(elements), _floats(elements))
    return Case("softmax", f"{_text(*shape)} along axis 1", "nn.softmax", work, build)


def _sum(template: str, along_rows: bool) -> Draw:
    def draw(rng: random.Random) -> Case:
        outer, extent, inner = _log(rng, 1, 2048), _log(rng, 4, 16384), 1
        if not along_rows:
            outer, inner = rng.choice([1, 1, _log(rng, 2, 32)]), _log(rng, 4, 4096)
        shape = (outer, extent) if along_rows else (outer, extent, inner)

        def build() -> Function:
            data = var("data", shape)
            return _function([data], _op("sum", data, axis=(1,)))

        elements = prod(shape)
        work = Work(2.0 * elements, _floats(elements), _floats(outer, inner))
        return Case(template, f"{_text(*shape)} along axis 1", "sum", work, build)

    return draw


def _map(rng: random.Random) -> Case:
    """max(x * s + b, 0), with s and b of one of the usual shapes."""
    outer, rows, columns = _log(rng, 1, 64), _log(rng, 1, 512), _log(rng, 4, 1024)
    shape = (outer, rows, columns)
    kinds = [shape, (columns,), (rows, 1), (outer, 1, 1), (1, rows, columns), (outer, 1, columns)]
    scale, bias = rng.choice(kinds[1:]), rng.choice(kinds)

    def build() -> Function:
        data, by, plus = var("data", shape), var("scale", scale), var("bias", bias)
        return _function([data, by, plus], _op("nn.relu", _op("add", _op("multiply", data, by), plus)))

    elements = prod(shape)
    work = Work(4.0 * elements, _floats(elements) + _floats(*scale) + _floats(*bias), _floats(elements))
    label = f"{_text(*shape)}, times {_text(*scale)}, plus {_text(*bias)}"
    return Case("map with broadcast", label, "nn.relu", work, build)


def _transpose(rng: random.Random) -> Case:
    axes = rng.choice([(1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1)])
    shape = (_log(rng, 1, 64), _log(rng, 2, 512), _log(rng, 2, 512))

    def build() -> Function:
        data = var("data", shape)
        return _function([data], _op("transpose", data, axes=axes))

    work = Work(0.0, _floats(*shape), _floats(*shape))
    return Case("transpose", f"{_text(*shape)} to axes {axes}", "transpose", work, build)


def _blocks(rng: random.Random) -> Case:
    """Rows to channel blocks, as a model's input is brought to its first layer."""
    rows, columns = _image(rng, 2, 224)
    channels = _channels(rng, 8, 512)

    def build() -> Function:
        data = var("data", (1, channels, rows, columns))
        return _function([data], _op("nn.global_max_pool2d", data))

    elements = channels * rows * columns
    work = Work(0.0, _floats(elements), _floats(elements))
    return Case("rows to channel blocks", f"{channels} on {_text(rows, columns)}", "copy", work, build)


TEMPLATES: dict[str, Draw] = {
    "matrix product": _matmul,
    "batched product": _batched,
    "convolution 1×1": _conv_1x1,
    "convolution 3×3": _conv_3x3,
    "convolution 3×3, precise": _conv_precise,
    "convolution 5×5, 7×7": _conv_large,
    "convolution, strided": _conv_strided,
    "convolution, padded or dilated": _conv_dilated,
    "convolution, grouped": _conv_grouped,
    "convolution of 3 channels": _conv_first,
    "convolution, depthwise": _depthwise,
    "convolution, transposed": _transposed,
    "max pool": _pool("max pool", "nn.max_pool2d"),
    "average pool": _pool("average pool", "nn.avg_pool2d"),
    "global pool": _global_pool,
    "resize, nearest": _resize("resize, nearest", "nearest_neighbor", 0.0),
    "resize, linear": _resize("resize, linear", "linear", 6.0),
    "softmax": _softmax,
    "sum along rows": _sum("sum along rows", True),
    "sum along columns": _sum("sum along columns", False),
    "map with broadcast": _map,
    "transpose": _transpose,
    "rows to channel blocks": _blocks,
}
