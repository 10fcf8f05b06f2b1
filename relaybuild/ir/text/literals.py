"""Numbers, small tensors and attribute values as text, and numbers back from it; knows nothing of expressions' shape.

A literal is digits, `inf` or `nan`, and a suffix for its type; without one, whole numbers are int32, or int64 where
they have to be, and others float32. NaN has one spelling: sign and payload of a NaN are no part of a program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.expr import Constant
from relaybuild.ir.structural import attr_value
from relaybuild.ir.text.names import attr_name_text

_MAX_DIGITS = 1000
_NUMBER = re.compile(
    r"([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|inf|nan)(bf16|f64|f32|f16|f|i64|i32|i16|i8|i|u64|u32|u16|u8)?\Z"
)
_DTYPES = {
    **{f"f{width}": f"float{width}" for width in (16, 32, 64)},
    **{f"i{width}": f"int{width}" for width in (8, 16, 32, 64)},
    **{f"u{width}": f"uint{width}" for width in (8, 16, 32, 64)},
    "bf16": "bfloat16",
    "f": "float32",
    "i": "int32",
}
_SUFFIXES = {dtype: suffix for suffix, dtype in _DTYPES.items()} | {"int32": "", "bool": ""}


def is_float(dtype: str) -> bool:
    """Whether a dtype is floating point."""
    return dtype.startswith(("float", "bfloat"))


def split_number(text: str) -> tuple[str, str]:
    """The digits of a literal and its suffix; raises ValueError for what is no number."""
    if len(text) > _MAX_DIGITS:
        raise ValueError(f"a number of {len(text)} digits, expected at most {_MAX_DIGITS}")
    match = _NUMBER.match(text)
    if match is None:
        raise ValueError(
            f"'{text}' is no number: expected digits, and one of the suffixes {', '.join(_DTYPES)} or none"
        )
    return match[1], match[2] or ""


def literal(text: str, negative: bool) -> NDArray[Any]:
    """The scalar a literal denotes; raises ValueError for what is no number or out of range of its type."""
    number, suffix = split_number(text)
    if suffix:
        return element(number, _DTYPES[suffix], negative, text)
    if not number.isdigit():
        return element(number, "float32", negative, text)
    value = -int(number) if negative else int(number)
    return element(number, "int32" if -(2**31) <= value < 2**31 else "int64", negative, text)


def element(number: str, dtype: str, negative: bool, shown: str) -> NDArray[Any]:
    """A number of a given type; `shown` is how the text has it. Raises ValueError."""
    value: float | int
    if is_float(dtype):
        value = float(number)
    elif number.isdigit():
        value = int(number)
    else:
        raise ValueError(f"'{shown}' is not an integer, expected one of type {dtype}")
    value = -value if negative else value
    if not _fits(value, number, dtype):
        raise ValueError(f"{'-' if negative else ''}{shown} is out of range for {dtype}")
    return np.asarray(value, dtype=numpy_dtype(dtype))


def attr_number(text: str) -> int | float:
    """A number as an attribute, a Python int or float; raises ValueError for what is no number."""
    number, suffix = split_number(text)
    return int(number) if number.isdigit() and not is_float(_DTYPES.get(suffix, "")) else float(number)


def scalar_text(constant: Constant) -> str:
    """A rank-0 constant as a literal: `42`, `42i64`, `-0f`, `inff`, `True`."""
    return element_text(constant.data[()], constant.dtype) + _SUFFIXES[constant.dtype]


def element_text(value: Any, dtype: str) -> str:
    """One element of a tensor whose type stands elsewhere: `42`, `-0`, `inf`."""
    if dtype == "bool":
        return str(bool(value))
    if not is_float(dtype):
        return str(int(value))
    text = str(value)
    if text == "nan":
        return text
    return text[:-2] if text.endswith(".0") else text


def attr_text(value: object) -> str:
    """An attribute's value: `3`, `0.5`, `True`, `None`, `"NCHW"`, `[1, 2]`; any depth of lists."""
    plain = attr_value(value)
    if not isinstance(plain, tuple):
        return _leaf_text(plain)
    parts: list[str] = []
    stack: list[object] = [plain]
    while stack:
        top = stack.pop()
        if isinstance(top, _Piece):
            parts.append(top.text)
        elif isinstance(top, tuple):
            inner = [piece for item in top for piece in (_COMMA, item)][1:]
            stack.extend(reversed([_Piece("["), *inner, _Piece("]")]))
        else:
            parts.append(_leaf_text(top))
    return "".join(parts)


def attr_items(attrs: Mapping[str, object]) -> list[str]:
    """`name=value` by name."""
    return [f"{attr_name_text(name)}={attr_text(attrs[name])}" for name in sorted(attrs)]


class _Piece:
    """Text among attribute values that are still to be written."""

    def __init__(self, text: str) -> None:
        self.text = text


_COMMA = _Piece(", ")


def _leaf_text(value: object) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _fits(value: float | int, number: str, dtype: str) -> bool:
    if isinstance(value, int):
        limits = np.iinfo(dtype)
        return int(limits.min) <= value <= int(limits.max)
    return number in ("inf", "nan") or abs(value) <= _largest(dtype)


def _largest(dtype: str) -> float:
    """The largest number of the type, or what it is printed as, which may be rounded up."""
    if dtype == "bfloat16":
        return float.fromhex("0x1.fep127")
    largest = np.finfo(dtype).max
    return max(float(largest), float(str(largest)))
