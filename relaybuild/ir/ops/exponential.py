"""Exponential functions, roots and their inverses, element by element."""

from __future__ import annotations

import math

import numpy as np

from relaybuild.ir.op import Precision
from relaybuild.ir.ops._families import elemwise_op
from relaybuild.ir.ops._shapes import Array, accumulator


def _rsqrt(x: Array) -> Array:
    return np.asarray(1 / np.sqrt(x.astype(accumulator(x.dtype), copy=False)))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x.astype(accumulator(x.dtype), copy=False))))


def _erf(x: Array) -> Array:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64))).astype(x.dtype)


OPS = (
    elemwise_op("exp", "exp", np.exp, precision=Precision.NEVER, fast="fast_exp"),
    elemwise_op("log", "log", np.log, precision=Precision.NEVER),
    elemwise_op("sqrt", "sqrt", np.sqrt),
    elemwise_op("rsqrt", "rsqrt", _rsqrt, precision=Precision.NEVER),
    elemwise_op("sigmoid", "sigmoid", _sigmoid),
    elemwise_op("erf", "erf", _erf, precision=Precision.NEVER, fast="fast_erf"),
)
