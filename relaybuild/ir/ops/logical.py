"""Logic over bool tensors."""

from __future__ import annotations

import numpy as np

from relaybuild.ir.ops._families import broadcast_op, elemwise_op
from relaybuild.ir.ops._shapes import BOOL

OPS = (
    broadcast_op("logical_and", "and", np.logical_and, BOOL, commutative=True),
    broadcast_op("logical_or", "or", np.logical_or, BOOL, commutative=True),
    broadcast_op("logical_xor", "xor", np.logical_xor, BOOL, commutative=True),
    elemwise_op("logical_not", "not", np.logical_not, BOOL),
)
