"""Trigonometric and hyperbolic functions, element by element."""

from __future__ import annotations

import numpy as np

from relaybuild.ir.ops._families import elemwise_op

OPS = (
    elemwise_op("sin", "sin", np.sin),
    elemwise_op("cos", "cos", np.cos),
    elemwise_op("tan", "tan", np.tan),
    elemwise_op("asin", "asin", np.arcsin),
    elemwise_op("acos", "acos", np.arccos),
    elemwise_op("atan", "atan", np.arctan),
    elemwise_op("sinh", "sinh", np.sinh),
    elemwise_op("cosh", "cosh", np.cosh),
    elemwise_op("tanh", "tanh", np.tanh, fast="fast_tanh"),
    elemwise_op("asinh", "asinh", np.arcsinh),
    elemwise_op("acosh", "acosh", np.arccosh),
    elemwise_op("atanh", "atanh", np.arctanh),
)
