"""Integers at their limits, divisions that trap in C, special floating-point values: as the reference has them."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from runners.compiled import Array, Batch, call, target_params, weight

from relaybuild.ir.expr import Tuple

SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SPECIAL = np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.5, 3e38, -1e-42, 88.8, -104.5, 0.5] * 4, "float32")


def limits(dtype: str) -> Array:
    info = np.iinfo(dtype)
    values = {info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100}
    values |= {-1, -2, -3, -7} if dtype.startswith("int") else set()
    return np.asarray(sorted(values), dtype)


@pytest.mark.parametrize("target", target_params())
def test_integers_wrap_and_never_trap(target: str) -> None:
    batch = Batch()
    for dtype in (*SIGNED, *UNSIGNED):
        pairs = np.asarray(list(product(limits(dtype), limits(dtype))), dtype)
        left, right = batch.input(pairs[:, 0].copy()), batch.input(pairs[:, 1].copy())
        names = ["add", "subtract", "multiply", "divide", "mod", "floor_divide", "floor_mod", "maximum", "minimum"]
        names += ["less", "greater_equal", "equal", "bitwise_and", "bitwise_or", "bitwise_xor"]
        for name in names:
            batch.add(f"{name} {dtype}", call(name, left, right))
        exponent = batch.input(np.resize(np.asarray([0, 1, 2, 3, 5], dtype), len(pairs)))
        batch.add(f"power {dtype}", call("power", left, exponent))
        bits = np.iinfo(dtype).bits
        shift = batch.input(np.resize(np.asarray([0, 1, bits - 1], dtype), len(pairs)))
        batch.add(f"left_shift {dtype}", call("left_shift", left, shift))
        batch.add(f"right_shift {dtype}", call("right_shift", left, shift))
        for name in ("negative", "abs", "sign", "bitwise_not"):
            batch.add(f"{name} {dtype}", call(name, left))
        chained = call("less", call("add", left, right), call("negative", call("multiply", left, right)))
        batch.add(f"chain {dtype}", chained)
        for axis in (0, 1):
            batch.add(f"sum {dtype} {axis}", call("sum", batch.input(pairs), axis=axis))
            batch.add(f"max {dtype} {axis}", call("max", batch.input(pairs), axis=axis))
            batch.add(f"min {dtype} {axis}", call("min", batch.input(pairs), axis=axis))
            batch.add(f"prod {dtype} {axis}", call("prod", batch.input(pairs), axis=axis))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_negative_powers_of_integers(target: str) -> None:
    batch = Batch()
    for dtype in SIGNED:
        base = batch.input(np.asarray([-3, -1, 0, 1, 2, -1], dtype))
        batch.add(dtype, call("power", base, weight(np.asarray([-1, -3, -2, -5, -1, -2], dtype))))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_wide_integers_keep_all_bits(target: str) -> None:
    batch = Batch()
    value = np.asarray([2**31, -(2**31) - 1, 2**53 + 1, -(2**63), 2**63 - 1, 2**40 + 3], "int64")
    x = batch.input(value)
    batch.add("add", call("add", x, weight(np.asarray(2**33 + 1, "int64"))))
    batch.add("multiply", call("multiply", x, weight(np.asarray(3, "int64"))))
    batch.add("where", call("where", call("greater", x, weight(np.asarray(2**31, "int64"))), x, call("negative", x)))
    batch.add("concatenate", call("concatenate", Tuple([x, x]), axis=0))
    batch.add("mean", call("mean", call("divide", x, weight(np.asarray(64, "int64")))))
    batch.add("least", call("maximum", x, weight(np.asarray(-(2**63), "int64"))))
    batch.add("unsigned", call("add", call("cast", x, dtype="uint64"), weight(np.asarray(2**64 - 1, "uint64"))))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_special_values(target: str) -> None:
    batch = Batch()
    x, y = batch.input(SPECIAL), batch.input(np.roll(SPECIAL, 5).copy())
    column = batch.input(np.repeat(SPECIAL[:12], 12))
    row = batch.input(np.tile(SPECIAL[:12], 12))
    unary = ["nn.relu", "abs", "negative", "sign", "floor", "ceil", "round", "trunc", "sigmoid", "tanh", "exp", "erf"]
    unary += ["sqrt", "log", "rsqrt", "sin", "isnan", "isinf"]
    for name in unary:
        batch.add(name, call(name, x))
        batch.add(f"{name} odd", call(name, call("strided_slice", x, begin=(0,), end=(13,))))
    for name in ("maximum", "minimum", "add", "multiply", "divide", "mod", "floor_mod", "less", "equal", "not_equal"):
        batch.add(name, call(name, column, row))
        batch.add(f"{name} y", call(name, x, y))
    batch.add("clip", call("clip", x, a_min=-1.0, a_max=6.0))
    batch.add("clip up", call("clip", x, a_min=0.0))
    batch.add("leaky", call("nn.leaky_relu", x, alpha=0.1))
    for name in ("max", "min", "sum", "argmax", "argmin"):
        batch.add(name, call(name, call("reshape", x, newshape=(3, 16)), axis=1))
        batch.add(f"{name} 0", call(name, call("reshape", x, newshape=(3, 16)), axis=0))
    batch.add("softmax", call("nn.softmax", call("reshape", x, newshape=(4, 12)), axis=1))
    for shape in ((1, 3, 4, 4), (1, 16, 1, 3)):
        image = call("reshape", x, newshape=shape)
        size = min(2, shape[2])
        batch.add(f"max pool {shape}", call("nn.max_pool2d", image, pool_size=size, padding=0 if size == 1 else 1))
        batch.add(f"avg pool {shape}", call("nn.avg_pool2d", image, pool_size=size))
        batch.add(f"global {shape}", call("nn.global_max_pool2d", image))
    for target_type in ("float16", "float64", "bool"):
        batch.add(target_type, call("cast", x, dtype=target_type))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_exp_does_not_overflow_in_softmax(target: str) -> None:
    batch = Batch()
    for value in (1e4, -1e4, 88.0):
        x = np.full((3, 19), value, "float32")
        x[1, 4] += 3
        batch.add(f"softmax {value}", call("nn.softmax", batch.input(x)))
        batch.add(f"log_softmax {value}", call("nn.log_softmax", batch.input(x), axis=0))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_products_of_other_types(target: str) -> None:
    batch = Batch()
    r = np.random.default_rng(0)
    for dtype in ("int8", "int32", "int64", "uint8", "float16", "float64"):
        left, right = ((r.normal(size=(2, 5, 17)) * 20).astype(dtype) for _ in range(2))
        batch.add(f"matmul {dtype}", call("nn.matmul", batch.input(left), batch.input(right), transpose_b=True))
        product = call("nn.matmul", batch.input(left), weight(right[0]), transpose_a=True)
        batch.add(f"broadcast {dtype}", call("negative", product))
        batch.add(f"dense {dtype}", call("nn.dense", batch.input(left), weight(right[1])))
        batch.add(f"vector {dtype}", call("nn.dense", batch.input(left[0, 0].copy()), weight(right[1])))
    batch.compare(target)


@pytest.mark.parametrize("target", target_params())
def test_bools(target: str) -> None:
    batch = Batch()
    bits = np.resize(np.asarray([True, False, False, True, True]), 37)
    x, y = batch.input(bits), batch.input(np.roll(bits, 3).copy())
    for name in ("logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor", "equal"):
        batch.add(name, call(name, x, y))
    batch.add("not", call("logical_not", x))
    batch.add("not not", call("bitwise_not", call("bitwise_not", x)))
    batch.add("cast", call("cast", x, dtype="float32"))
    batch.add("sum", call("sum", call("cast", x, dtype="int64")))
    batch.add("where", call("where", x, batch.input(SPECIAL[:37].copy()), call("cast", y, dtype="float32")))
    batch.add("all", call("all", x))
    batch.compare(target)
