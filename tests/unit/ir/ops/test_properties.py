"""Properties over random shapes and attributes, where a handful of cases would miss a corner."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from suites.numpy_algebra import compute_all
from suites.ops import type_of

from relaybuild.ir.op import TypeMismatch, get_op
from relaybuild.ir.ops._resample import COORDINATE_MODES, ROUNDINGS
from relaybuild.ir.types import TensorType

quick = settings(max_examples=60, deadline=None)


def check(name: str, arguments: list[Any], attrs: dict[str, object]) -> Any:
    """The value, after comparing its type, and the scalar rule's result, with it."""
    op = get_op(name)
    record = op.make_attrs(attrs)
    out_type = op.infer_type([type_of(argument) for argument in arguments], record)
    value = op.evaluate(arguments, record)
    assert type_of(value) == out_type
    if op.compute is not None:
        assert isinstance(out_type, TensorType)
        tensors = [t for argument in arguments for t in (argument if isinstance(argument, tuple) else (argument,))]
        np.testing.assert_allclose(compute_all(op, tensors, out_type, record), value, rtol=1e-5, atol=1e-5)
    return value


def numbered(*shape: int) -> Any:
    """All elements different."""
    return np.arange(prod(shape), dtype=np.float32).reshape(shape)


@st.composite
def grouped(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of the same elements, by grouping the same factors in two ways."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=6))
    assume(prod(factors) <= 200)

    def cut() -> tuple[int, ...]:
        if not factors:
            return ()
        cuts = draw(st.sets(st.integers(0, len(factors))))
        bounds = sorted(cuts | {0, len(factors)})
        return tuple(prod(factors[begin:end]) for begin, end in pairwise(bounds))

    return cut(), cut()


@quick
@given(grouped())
def test_reshape(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    old, new = shapes
    value = check("reshape", [numbered(*old)], {"newshape": new})
    np.testing.assert_array_equal(value.reshape(-1), numbered(*old).reshape(-1))


@quick
@given(st.integers(0, 9), st.integers(-12, 12), st.integers(-12, 12), st.integers(-4, 4).filter(bool))
def test_strided_slice(extent: int, begin: int, end: int, stride: int) -> None:
    data = numbered(2, extent)
    value = check("strided_slice", [data], {"begin": (begin,), "end": (end,), "strides": (stride,), "axes": (1,)})
    np.testing.assert_array_equal(value, data[:, begin:end:stride])


@quick
@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(0, 2))
def test_concatenate(extents: list[int], axis: int) -> None:
    shapes = [[2, 3, 4] for _ in extents]
    for shape, extent in zip(shapes, extents):
        shape[axis] = extent
    parts = tuple(numbered(*shape) + 100 * position for position, shape in enumerate(shapes))
    check("concatenate", [parts], {"axis": axis})


@quick
@given(
    st.tuples(st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.integers(-2, 5), st.integers(-2, 5)),
    st.sampled_from(["constant", "edge", "reflect"]),
)
def test_pad(shape: tuple[int, int], widths: tuple[int, int], mode: str) -> None:
    attrs: dict[str, object] = {"pad_width": (widths, (1, 0) if mode != "reflect" else (0, 0)), "pad_mode": mode}
    try:
        check("nn.pad", [numbered(*shape)], attrs)
    except TypeMismatch:
        assert sum(widths) + shape[0] < 0 or max(widths) >= shape[0]


@quick
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
    st.sampled_from(COORDINATE_MODES),
    st.sampled_from(["nearest_neighbor", "linear", "cubic"]),
    st.sampled_from(ROUNDINGS),
)
def test_resize2d(old: tuple[int, int], new: tuple[int, int], mode: str, method: str, rounding: str) -> None:
    attrs = {"size": new, "method": method, "coordinate_transformation_mode": mode, "rounding_method": rounding}
    value = check("image.resize2d", [numbered(1, 1, *old)], attrs)
    if method == "linear":
        np.testing.assert_allclose(
            check("image.resize2d", [np.ones((1, 1, *old), np.float32)], attrs), np.ones_like(value), rtol=1e-6
        )


@quick
@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.integers(0, 2)] * 4),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.booleans(),
)
def test_windows(
    image: tuple[int, int],
    window: tuple[int, int],
    strides: tuple[int, int],
    padding: tuple[int, ...],
    dilation: tuple[int, int],
    ceil_mode: bool,
) -> None:
    attrs: dict[str, object] = {"strides": strides, "padding": padding, "dilation": dilation}
    data = numbered(1, 2, *image)
    pool = {**attrs, "pool_size": window, "ceil_mode": ceil_mode}
    try:
        convolved = check("nn.conv2d", [data, np.ones((1, 2, *window), np.float32)], attrs)
        check("nn.max_pool2d", [data], pool)
        mean = check("nn.avg_pool2d", [data], {**pool, "ceil_mode": False, "count_include_pad": True})
        check("nn.avg_pool2d", [data], pool)
    except TypeMismatch:
        reach = [d * (w - 1) + 1 for d, w in zip(dilation, window)]
        assert any(reach[axis] > image[axis] + padding[axis] + padding[axis + 2] for axis in (0, 1))
        return
    np.testing.assert_allclose(mean.sum(1) * prod(window), convolved[:, 0], rtol=1e-5)
    back = check(
        "nn.conv2d_transpose",
        [np.ones((1, 1, *image), np.float32), numbered(1, 1, *window)],
        {"strides": strides, "dilation": dilation},
    )
    np.testing.assert_allclose(back.sum(), numbered(*window).sum() * prod(image), rtol=1e-5)
