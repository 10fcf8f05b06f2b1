"""C text of element types, of numbers and of constant arrays, exact for every element type; knows no expression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.errors import UnsupportedError

_C_TYPES = {
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "bool": "uint8_t",
    **{f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_ROW = 8
"""Numbers in a line of an array."""


def c_type(dtype: str) -> str:
    """The C type that holds an element; of float16 and bfloat16, which C11 lacks, it holds the bits."""
    if dtype not in _C_TYPES:
        raise UnsupportedError(f"C has no type for the element type '{dtype}'")
    return _C_TYPES[dtype]


def c_number(value: Any, dtype: str) -> str:
    """An expression of the type `c_type(dtype)` that is exactly `value`, a number that is not NaN.

    Infinities are INFINITY, of `<math.h>`. For float16 and bfloat16 `value` is the bits.
    """
    if dtype in ("float32", "float64"):
        return _float_number(float(value), "f" if dtype == "float32" else "", dtype)
    number = int(value)
    signed_bits = {"int32": 32, "int64": 64}.get(dtype)
    if signed_bits and number == -(2 ** (signed_bits - 1)):
        # the positive number that C would negate does not fit
        return f"INT{signed_bits}_MIN"
    wide = {"int64": "INT64_C", "uint64": "UINT64_C"}.get(dtype)
    suffix = "u" if dtype == "uint32" else ""
    return f"{wide}({number})" if wide else f"{number}{suffix}"


def c_array(name: str, values: NDArray[Any]) -> tuple[list[str], str]:
    """Lines that define a static array of all elements in row-major order, and the expression of its first element's
    address.

    C has no empty arrays: the address of the first of no elements is NULL. NaNs keep sign and payload.
    """
    if not values.size:
        return [], "NULL"
    dtype = values.dtype.name
    flat = np.ascontiguousarray(values).reshape(-1)
    element = c_type(dtype)
    if dtype in ("float16", "bfloat16"):
        flat = flat.view(np.uint16)
    elif dtype in ("float32", "float64") and not np.isfinite(flat).all():
        bits = f"uint{8 * flat.dtype.itemsize}"
        lines = [
            "static const union {",
            f"  {bits}_t bits[{flat.size}];",
            f"  {element} values[{flat.size}];",
            f"}} {name} = {{{{",
            *_rows(flat.view(bits), bits),
            "}};",
        ]
        return lines, f"{name}.values"
    return [f"static const {element} {name}[{flat.size}] = {{", *_rows(flat, dtype), "};"], name


def _rows(flat: NDArray[Any], dtype: str) -> Iterator[str]:
    for start in range(0, flat.size, _ROW):
        yield f"    {', '.join(c_number(value, dtype) for value in flat[start : start + _ROW])},"


def _float_number(value: float, suffix: str, dtype: str) -> str:
    """The shortest decimal that reads back as this number of this type."""
    if np.isinf(value):
        return "-INFINITY" if value < 0 else "INFINITY"
    number = np.dtype(dtype).type(value)
    if value == 0 or 1e-4 <= abs(value) < 1e7:
        return np.format_float_positional(number, unique=True, trim="0") + suffix
    return np.format_float_scientific(number, unique=True, trim="-") + suffix
