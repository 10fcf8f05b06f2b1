"""Rounding, sign and magnitude, element by element; `round` is half to even."""

from __future__ import annotations

import numpy as np

from relaybuild.ir.ops._families import elemwise_op
from relaybuild.ir.ops._shapes import FLOAT, NUMERIC

OPS = (
    elemwise_op("abs", "abs", np.abs, NUMERIC),
    elemwise_op("negative", "neg", np.negative, NUMERIC),
    elemwise_op("sign", "sign", np.sign, NUMERIC),
    elemwise_op("floor", "floor", np.floor),
    elemwise_op("ceil", "ceil", np.ceil),
    elemwise_op("round", "round", np.rint),
    elemwise_op("trunc", "trunc", np.trunc),
    elemwise_op("isnan", "isnan", np.isnan, FLOAT, "bool"),
    elemwise_op("isinf", "isinf", np.isinf, FLOAT, "bool"),
)
