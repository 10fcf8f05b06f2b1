"""What the cblas backend takes: products of matrices, alone or with a bias; knows no C."""

from __future__ import annotations

from relaybuild.contrib.cblas.products import product_of
from relaybuild.ir.expr import Call
from relaybuild.ir.types import TensorType
from relaybuild.partition.pattern_parts import taken, with_bias
from relaybuild.partition.pattern_table import Entry, PatternTable

TAG = "cblas"

DTYPES = ("float32", "float64")

_LARGEST = 2**31 - 1
"""Extents are passed as numbers of 32 bits, which every build of a BLAS takes."""

_OPERATORS = {"nn.dense": "dense", "nn.matmul": "matmul"}


def supports(call: Call) -> bool | str:
    """Whether the backend takes a typed call of an operator, or why not."""
    if call.op_name not in _OPERATORS:
        return False
    for kind in (*(each.checked_type for each in call.args), call.checked_type):
        if not isinstance(kind, TensorType) or not kind.is_static:
            return f"found {kind}, expected tensors whose shapes are numbers"
    dtypes = {call.tensor_type.dtype, *(each.tensor_type.dtype for each in call.args)}
    if len(dtypes) > 1 or not dtypes <= {*DTYPES}:
        return f"found {' and '.join(sorted(dtypes))}, expected {' or '.join(DTYPES)}"
    product = product_of(call)
    largest = max(product.rows, product.columns, product.inner)
    if largest > _LARGEST:
        return f"found an extent of {largest}, expected at most {_LARGEST}"
    return True


PATTERNS: PatternTable = tuple(
    Entry(f"{TAG}.{name}_bias", with_bias(taken(op_name, supports), axis=-1)) for op_name, name in _OPERATORS.items()
)
