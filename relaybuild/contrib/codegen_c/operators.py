"""What an element of each operator's result is, as a C expression over elements of its operands; knows no loop.

In the templates `{a}` and `{b}` are the operands' elements, `T` their type, `U` the unsigned type of its width, `F` the
suffix of the functions of `<math.h>` for it, and `N` its name in the names of helpers. Integers wrap around, and so are
computed as unsigned ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call
from relaybuild.ir.ops.clip import ClipAttrs
from relaybuild.partition.c_values import c_number

_WORDS: Mapping[str, Mapping[str, str]] = {
    "float32": {"T": "float", "F": "f"},
    "float64": {"T": "double", "F": ""},
    "int32": {"T": "int32_t", "U": "uint32_t", "N": "i32"},
    "int64": {"T": "int64_t", "U": "uint64_t", "N": "i64"},
}

DTYPES = tuple(_WORDS)
"""The element types that are taken."""


@dataclass(frozen=True)
class Rule:
    """One operator: its expression for floating point, for integers ("" where it takes none), and the C function that
    the latter calls.
    """

    floats: str
    integers: str = ""
    helper: str = ""

    def refusal(self, call: Call) -> str:
        """Why a call over element types that are taken is not, or "" where it is."""
        return "" if self.integers or _is_float(call) else f"found {_dtype(call)}, expected float32 or float64"

    def expression(self, call: Call) -> str:
        """The C expression of one element."""
        return _worded(self.floats if _is_float(call) else self.integers, _dtype(call))

    def declaration(self, call: Call) -> str:
        """The C function that the expression calls, or ""."""
        return "" if _is_float(call) else _worded(self.helper, _dtype(call))


class Clip(Rule):
    """`clip`, whose limits are attributes."""

    def refusal(self, call: Call) -> str:
        """A limit that is no number has no place in an order."""
        return "found a limit that is NaN" if any(map(math.isnan, _limits(call))) else ""

    def expression(self, call: Call) -> str:
        """The element within its limits; where these cross, the upper one wins."""
        dtype = _dtype(call)
        low, high = _limits(call)
        least = c_number(_saturated(low, dtype), dtype)
        crossed = c_number(_saturated(min(low, high), dtype), dtype)
        most = c_number(_saturated(high, dtype), dtype)
        return f"{{a}} < {least} ? {crossed} : {{a}} > {most} ? {most} : {{a}}"


def _limits(call: Call) -> tuple[float, float]:
    attrs = call.attrs
    assert isinstance(attrs, ClipAttrs)
    low = -math.inf if attrs.a_min is None else attrs.a_min
    return low, math.inf if attrs.a_max is None else attrs.a_max


def _saturated(value: float, dtype: str) -> float | int:
    if dtype.startswith("float"):
        return value
    info = np.iinfo(dtype)
    return int(min(max(value, int(info.min)), int(info.max)))


_DIVIDE = """\
/* Rounds towards zero; 0 where the divisor is 0. */
static inline T divide_N(T a, T b) {
  return b == 0 ? 0 : b == -1 ? (T)(0 - (U)a) : a / b;
}"""

_POWER = """\
/* Of a negative exponent, the reciprocal rounded towards zero. */
static inline T power_N(T a, T b) {
  if (b < 0) {
    return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  }
  U result = 1;
  U factor = (U)a;
  for (T rest = b; rest; rest >>= 1) {
    result *= rest & 1 ? factor : 1;
    factor *= factor;
  }
  return (T)result;
}"""

_RULES: Mapping[str, Rule] = {
    "add": Rule("{a} + {b}", "(T)((U){a} + (U){b})"),
    "subtract": Rule("{a} - {b}", "(T)((U){a} - (U){b})"),
    "multiply": Rule("{a} * {b}", "(T)((U){a} * (U){b})"),
    "divide": Rule("{a} / {b}", "divide_N({a}, {b})", _DIVIDE),
    "power": Rule("powF({a}, {b})", "power_N({a}, {b})", _POWER),
    # A NaN on either side is the result.
    "maximum": Rule("({a} > {b}) | ({a} != {a}) ? {a} : {b}", "{a} > {b} ? {a} : {b}"),
    "minimum": Rule("({a} < {b}) | ({a} != {a}) ? {a} : {b}", "{a} < {b} ? {a} : {b}"),
    "nn.relu": Rule("{a} < 0 ? 0 : {a}", "{a} < 0 ? 0 : {a}"),
    "clip": Clip("{a}", "{a}"),
    "negative": Rule("-{a}", "(T)(0 - (U){a})"),
    "abs": Rule("fabsF({a})", "{a} < 0 ? (T)(0 - (U){a}) : {a}"),
    "exp": Rule("expF({a})"),
    "log": Rule("logF({a})"),
    "sqrt": Rule("sqrtF({a})"),
    "tanh": Rule("tanhF({a})"),
    "sigmoid": Rule("1 / (1 + expF(-{a}))"),
    "floor": Rule("floorF({a})"),
    "ceil": Rule("ceilF({a})"),
}


def find_rule(op_name: str) -> Rule | None:
    """The rule of an operator, or None."""
    return _RULES.get(op_name)


def _worded(template: str, dtype: str) -> str:
    words = _WORDS[dtype]
    return re.sub(r"\b[TU]\b|(?<=[a-z])F(?=\()|(?<=_)N\b", lambda match: words[match[0]], template)


def _dtype(call: Call) -> str:
    return call.tensor_type.dtype


def _is_float(call: Call) -> bool:
    return _dtype(call).startswith("float")
