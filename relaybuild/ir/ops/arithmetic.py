"""Arithmetic of two broadcast tensors; integer division truncates as in C, floor forms round down."""

from __future__ import annotations

import numpy as np

from relaybuild.ir.op import Precision
from relaybuild.ir.ops._families import broadcast_op
from relaybuild.ir.ops._shapes import Array, is_float


def _divide(a: Array, b: Array) -> Array:
    if is_float(a.dtype):
        return np.asarray(np.divide(a, b))
    return np.asarray((a - np.fmod(a, b)) // b)


def _floor_divide(a: Array, b: Array) -> Array:
    if is_float(a.dtype):
        return np.asarray(np.floor(np.divide(a, b)))
    return np.asarray(np.floor_divide(a, b))


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind != "i":
        # of exponents that lie in one place, numpy takes square roots, of which those of -0 and -inf differ
        return np.asarray(np.power(a, np.broadcast_to(b, np.broadcast_shapes(a.shape, b.shape)).copy()))
    base, exponent = np.broadcast_arrays(a, b)
    positive = np.power(base, np.maximum(exponent, 0))
    reciprocal = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent % 2), 0))
    return np.where(exponent < 0, reciprocal, positive)


OPS = (
    broadcast_op("add", "add", np.add, commutative=True),
    broadcast_op("subtract", "sub", np.subtract),
    broadcast_op("multiply", "mul", np.multiply, commutative=True),
    broadcast_op("divide", "div", _divide),
    broadcast_op("power", "pow", _power, precision=Precision.NEVER),
    broadcast_op("maximum", "max", np.maximum, commutative=True),
    broadcast_op("minimum", "min", np.minimum, commutative=True),
    broadcast_op("mod", "mod", np.fmod),
    broadcast_op("floor_mod", "floormod", np.mod),
    broadcast_op("floor_divide", "floordiv", _floor_divide),
)
