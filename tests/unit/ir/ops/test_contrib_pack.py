"""Packed weights: tiles of output channels hold every weight of each group, and parts of a result are the result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from relaybuild.errors import TypeCheckError
from relaybuild.ir.expr import const
from relaybuild.ir.op import Attrs, call_op, get_op
from relaybuild.ir.ops._shapes import Array

WEIGHTS: Mapping[str, tuple[tuple[int, ...], dict[str, object]]] = {
    "whole blocks": ((32, 48, 1, 1), {}),
    "blocks that are not full": ((33, 17, 3, 2), {}),
    "groups": ((48, 8, 3, 3), {"groups": 4}),
    "groups that share blocks": ((9, 5, 3, 3), {"groups": 3}),
    "transposed": ((20, 35, 3, 3), {"kernel_layout": "IOHW"}),
    "transposed groups": ((15, 3, 3, 3), {"groups": 3, "kernel_layout": "IOHW"}),
}


def evaluated(name: str, weight: Array, **attrs: object) -> tuple[Array, Attrs]:
    """The packed weight, which has the type that is inferred, and the attributes."""
    op = get_op(name)
    record = op.make_attrs(attrs)
    packed = op.evaluate([weight], record)
    inferred = call_op(name, [const(weight)], None, **attrs).tensor_type
    assert (inferred.static_shape, inferred.dtype) == (packed.shape, packed.dtype.name)
    return packed, record


def numbers(*shape: int, dtype: str = "float32") -> Array:
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("shape", "attrs"), WEIGHTS.values(), ids=WEIGHTS.keys())
def test_a_convolution_reads_the_weights_of_its_channels(shape: tuple[int, ...], attrs: dict[str, object]) -> None:
    weight = numbers(*shape)
    packed, record = evaluated("contrib.pack_conv2d", weight, **attrs)
    groups = int(attrs.get("groups", 1))  # type: ignore[call-overload]
    if attrs.get("kernel_layout") == "IOHW":
        split = weight.reshape(groups, shape[0] // groups, *shape[1:]).swapaxes(1, 2)
    else:
        split = weight.reshape(groups, shape[0] // groups, *shape[1:])
    found = packed.transpose(0, 5, 1, 4, 2, 3).reshape(packed.shape[0] * 16, -1, *packed.shape[2:4])
    for out in range(split.shape[0] * split.shape[1]):
        want = split[out // split.shape[1], out % split.shape[1]]
        used = found[out][np.any(found[out] != 0, axis=(1, 2))]
        np.testing.assert_array_equal(used, want)
    assert not found[split.shape[0] * split.shape[1] :].any()
    _check_parts("contrib.pack_conv2d", weight, packed, record)


@pytest.mark.parametrize("layout", ["OIHW", "IOHW"])
def test_rows_of_an_output_channel(layout: str) -> None:
    weight = numbers(5, 19, 3, 2)
    packed, record = evaluated("contrib.pack_rows", weight, kernel_layout=layout)
    plain = weight if layout == "OIHW" else weight.transpose(1, 0, 2, 3)
    found = packed.transpose(0, 1, 4, 2, 3).reshape(plain.shape[0], -1, 3, 2)
    np.testing.assert_array_equal(found[:, : plain.shape[1]], plain)
    assert not found[:, plain.shape[1] :].any()
    _check_parts("contrib.pack_rows", weight, packed, record)


def test_a_depthwise_weight() -> None:
    weight = numbers(37, 1, 3, 5)
    packed, record = evaluated("contrib.pack_depthwise", weight)
    found = packed.transpose(0, 3, 1, 2).reshape(48, 3, 5)
    np.testing.assert_array_equal(found[:37], weight[:, 0])
    assert not found[37:].any()
    _check_parts("contrib.pack_depthwise", weight, packed, record)


@pytest.mark.parametrize("columns", [32, 45])
@pytest.mark.parametrize("form", ["columns first", "depth first", "a view"])
def test_panels_of_a_matrix(columns: int, form: str) -> None:
    plain = numbers(columns, 21)
    weight = {"columns first": plain, "depth first": plain.T.copy(), "a view": plain.T.copy().T}[form]
    packed, record = evaluated("contrib.pack_matmul", weight, transposed=form != "depth first")
    found = packed.transpose(0, 2, 1).reshape(-1, 21)
    np.testing.assert_array_equal(found[:columns], plain)
    assert not found[columns:].any()
    _check_parts("contrib.pack_matmul", weight, packed, record)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_winograd_is_rounded_once(dtype: str) -> None:
    weight = numbers(18, 70, 3, 3, dtype=dtype)
    packed, record = evaluated("contrib.pack_winograd", weight)
    matrix = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / np.longdouble(24)
    exact = np.einsum("pr,oirc,qc->pqoi", matrix, weight.astype(np.longdouble), matrix).reshape(36, 18, 70)
    found = packed.transpose(1, 0, 4, 2, 3).reshape(36, 32, 80)
    # Each sum is exact to a few roundings of double precision, at the size of its largest term, and one of its type.
    rounding = np.spacing(np.abs(exact).astype(dtype)).astype(np.float64) * 0.5001
    bound = rounding + np.finfo(np.float64).eps * 8 * float(np.abs(weight).max())
    assert (np.abs(found[:, :18, :70] - exact) <= bound).all()
    assert not found[:, 18:].any()
    assert not found[:, :, 70:].any()
    _check_parts("contrib.pack_winograd", weight, packed, record)


@pytest.mark.parametrize(("groups", "outputs", "tile"), [(1, 8, 4), (4, 20, 10), (3, 17, 6), (5, 3, 3)])
def test_tiles_hold_the_outputs_of_their_group(groups: int, outputs: int, tile: int) -> None:
    weight = np.arange(groups * outputs * 2 * 3 * 2, dtype="float32").reshape(groups * outputs, 2, 3, 2)
    packed, record = evaluated("contrib.pack_tiles", weight, groups=groups, outputs=tile)
    for group in range(groups):
        for number in range(packed.shape[1]):
            first = group * outputs + min(number * tile, outputs - tile)
            np.testing.assert_array_equal(packed[group, number], weight[first : first + tile].transpose(1, 2, 3, 0))
    _check_parts("contrib.pack_tiles", weight, packed, record)


def test_a_tile_is_no_larger_than_a_group() -> None:
    weight = const(np.zeros((12, 2, 3, 3), "float32"))
    with pytest.raises(TypeCheckError, match="tiles of at most 3 outputs"):
        call_op("contrib.pack_tiles", [weight], None, groups=4, outputs=4)


def _check_parts(name: str, weight: Array, packed: Array, attrs: Attrs) -> None:
    """Whatever the parts, they are the same bytes, and nothing of what was in their place before."""
    fill = get_op(name).evaluate_rows
    assert fill is not None
    for rows in (1, 2):
        parts = np.full_like(packed, np.nan)
        for start in range(0, len(packed), rows):
            fill([weight], attrs, start, min(start + rows, len(packed)), parts[start : start + rows])
        assert parts.tobytes() == packed.tobytes()
