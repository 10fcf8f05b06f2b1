"""`fast_exp`, `fast_tanh`, `fast_erf`, `nn.fast_softmax`: approximations by polynomials alone.

In single precision, but for float64, `fast_exp` is within 5e-5 of exp relative to it (its argument is limited to
[-87, 88]), `fast_tanh` within 5e-7 and `fast_erf` within 1e-6. The coefficients are least-squares fits, reweighted
towards an even relative error (Lawson's iteration).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.layout import keep_layout
from relaybuild.ir.op import Attrs, Op, OpKind, Precision, call_op
from relaybuild.ir.ops._shapes import FLOAT, Array, accumulator, expect_dtype, expect_tensor
from relaybuild.ir.ops.softmax import SoftmaxAttrs, softmax_op
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Type

_EXP = (1, 1.00000005, 0.500000464, 0.16666572, 0.0416605415, 0.00833705403, 0.00141148132, 0.000195517863)
_EXP_SQUARINGS = 7
_TANH_ABOVE = (
    0.999999993,
    0.130840122,
    0.00310395851,
    1.11543314e-05,
    -2.02253139e-08,
    5.27798749e-11,
    -8.48880189e-14,
)
_TANH_BELOW = (1, 0.464173393, 0.0244951876, 0.000254614851)
_ERF_ABOVE = (1.12837887, 0.310452223, 0.0669263155, 0.00839691316, 0.000300227518)
_ERF_BELOW = (1, 0.608456244, 0.162171813, 0.024382558, 0.00211565975, 1.75660698e-05)

_Formula: TypeAlias = "Callable[[_Arithmetic, Any], Any]"


class _Arithmetic:
    """Sums, products, quotients and limits of what is being computed: numpy's arrays, or an algebra's scalars."""

    def __init__(self, s: ScalarAlgebra | None, dtype: str) -> None:
        self._s = s
        self._dtype = dtype

    def const(self, value: float) -> Any:
        return np.dtype(self._dtype).type(value) if self._s is None else self._s.const(value, self._dtype)

    def add(self, a: Any, b: Any) -> Any:
        return a + b if self._s is None else self._s.binary("add", a, b)

    def mul(self, a: Any, b: Any) -> Any:
        return a * b if self._s is None else self._s.binary("mul", a, b)

    def div(self, a: Any, b: Any) -> Any:
        return a / b if self._s is None else self._s.binary("div", a, b)

    def clip(self, x: Any, low: float, high: float) -> Any:
        if self._s is None:
            return np.minimum(np.maximum(x, self.const(low)), self.const(high))
        return self._s.binary("min", self._s.binary("max", x, self.const(low)), self.const(high))

    def polynomial(self, x: Any, coefficients: Sequence[float]) -> Any:
        """Horner's scheme; the constant term comes first."""
        result = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.add(self.mul(result, x), self.const(coefficient))
        return result


def _exp(a: _Arithmetic, x: Any) -> Any:
    """The power of a polynomial: exp(x / 2**7) ** (2**7)."""
    x = a.mul(a.clip(x, -87.0, 88.0), a.const(0.5**_EXP_SQUARINGS))
    result = a.polynomial(x, _EXP)
    for _ in range(_EXP_SQUARINGS):
        result = a.mul(result, result)
    return result


def _odd_quotient(a: _Arithmetic, x: Any, limit: float, above: Sequence[float], below: Sequence[float]) -> Any:
    x = a.clip(x, -limit, limit)
    square = a.mul(x, x)
    return a.div(a.mul(x, a.polynomial(square, above)), a.polynomial(square, below))


def _tanh(a: _Arithmetic, x: Any) -> Any:
    return _odd_quotient(a, x, 9.0, _TANH_ABOVE, _TANH_BELOW)


def _erf(a: _Arithmetic, x: Any) -> Any:
    return _odd_quotient(a, x, 3.9, _ERF_ABOVE, _ERF_BELOW)


def infer_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """The type of the argument."""
    data = expect_tensor(types[0])
    expect_dtype(data, FLOAT)
    return data


def fast_op(name: str, formula: _Formula) -> Op:
    """An operator of one argument by a formula, which numpy and the algebra follow step by step."""

    def evaluate(values: Sequence[Array], attrs: Attrs) -> Array:
        work = "float64" if values[0].dtype == np.float64 else "float32"
        result = formula(_Arithmetic(None, work), values[0].astype(work, copy=False))
        return np.asarray(result).astype(values[0].dtype, copy=False)

    def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
        work = "float64" if call.out_type.dtype == "float64" else "float32"
        result = formula(_Arithmetic(s, work), s.cast(args[0](index), work))
        return s.cast(result, call.out_type.dtype)

    return Op(
        name,
        1,
        infer_type,
        evaluate,
        OpKind.ELEMWISE,
        compute=compute,
        arg_names=("data",),
        follow_layout=keep_layout,
        precision=Precision.NEVER,
    )


def evaluate_fast_softmax(values: Sequence[Array], attrs: SoftmaxAttrs) -> Array:
    """exp(x - max) / sum, with the approximate exponential function."""
    data = values[0].astype(accumulator(values[0].dtype), copy=False)
    shifted = data - data.max(attrs.axis, keepdims=True, initial=-np.inf)
    weights = _exp(_Arithmetic(None, data.dtype.name), shifted)
    return np.asarray(weights / weights.sum(attrs.axis, keepdims=True)).astype(values[0].dtype, copy=False)


def decompose_softmax(call: Call) -> Expr:
    """exp(x - max) / sum, with the approximate exponential function."""
    attrs: Any = call.attrs
    data, axis = call.args[0], (attrs.axis,)
    highest = call_op("max", [data], call.span, axis=axis, keepdims=True)
    weights = call_op("fast_exp", [call_op("subtract", [data, highest], call.span)], call.span)
    total = call_op("sum", [weights], call.span, axis=axis, keepdims=True)
    return call_op("divide", [weights, total], call.span)


OPS = (
    fast_op("fast_exp", _exp),
    fast_op("fast_tanh", _tanh),
    fast_op("fast_erf", _erf),
    softmax_op("nn.fast_softmax", evaluate_fast_softmax, decompose=decompose_softmax),
)
