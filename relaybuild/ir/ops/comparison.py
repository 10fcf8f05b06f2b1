"""Comparisons of two broadcast tensors of one dtype; the result is bool."""

from __future__ import annotations

import numpy as np

from relaybuild.ir.ops._families import broadcast_op
from relaybuild.ir.ops._shapes import ANY_DTYPE, NUMERIC

OPS = (
    broadcast_op("equal", "eq", np.equal, ANY_DTYPE, "bool", commutative=True),
    broadcast_op("not_equal", "ne", np.not_equal, ANY_DTYPE, "bool", commutative=True),
    broadcast_op("less", "lt", np.less, NUMERIC, "bool"),
    broadcast_op("less_equal", "le", np.less_equal, NUMERIC, "bool"),
    broadcast_op("greater", "gt", np.greater, NUMERIC, "bool"),
    broadcast_op("greater_equal", "ge", np.greater_equal, NUMERIC, "bool"),
)
