"""Inputs that a seed determines, here as in the test program, and what a model gives for them; compiles nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.runtime.spec import TensorSpec

Array = NDArray[Any]


def can_record(specs: Iterable[TensorSpec]) -> bool:
    """Whether the test program knows the numbers of these tensors."""
    return not any(spec.dtype == "bfloat16" for spec in specs)


def drawn_input(spec: TensorSpec, number: int) -> Array:
    """Input number `number`: reals in [-1, 1), bytes of all values, other integers 0 or 1; what is drawn is exact."""
    dtype = np.dtype(spec.dtype)
    index = np.arange(1, int(np.prod(spec.shape, dtype=np.int64)) + 1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = np.uint64(number + 1) * np.uint64(0xD1B54A32D192ED03) + index * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    if dtype == np.float16:
        values = (x >> np.uint64(53)).astype(np.float64) / 1024.0 - 1.0
    elif np.issubdtype(dtype, np.floating):
        values = (x >> np.uint64(40)).astype(np.float64) / 8388608.0 - 1.0
    else:
        values = x >> np.uint64(56 if dtype == np.uint8 else 63)
    drawn: Array = values.astype(dtype).reshape(spec.shape)
    return drawn


def recorded_outputs(module: IRModule, inputs: Sequence[TensorSpec]) -> bytes:
    """The outputs of `main` for the inputs drawn, one after another, as the interpreter computes them."""
    arrays = iter([drawn_input(spec, number) for number, spec in enumerate(inputs)])
    arguments = [_argument(param.checked_type, arrays) for param in module["main"].params]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in _tensors(interpret(module, *arguments)))


def _argument(kind: Type, arrays: Any) -> Any:
    if isinstance(kind, TupleType):
        return tuple(_argument(each, arrays) for each in kind.fields)
    assert isinstance(kind, TensorType)
    return next(arrays)


def _tensors(value: Any) -> list[Array]:
    if isinstance(value, (tuple, list)):
        return [tensor for each in value for tensor in _tensors(each)]
    return [np.asarray(value)]
