"""Sample calls of every operator: seeded arguments and attributes; knows neither results nor who runs them.

`cases_of(name)` is what a runner iterates. A family registers one generator under all its names.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.types import TensorType, TupleType, Type

Array: TypeAlias = NDArray[Any]
Argument: TypeAlias = "Array | tuple[Array, ...]"
Sample: TypeAlias = tuple[list[Argument], dict[str, object]]
Generator: TypeAlias = Callable[[str, "Random"], Iterator[Sample]]

_generators: dict[str, Generator] = {}


@dataclass(frozen=True)
class Case:
    """One call of an operator: its arguments (a tuple of arrays for a tuple) and attributes."""

    op: str
    number: int
    args: tuple[Argument, ...]
    attrs: Mapping[str, object]

    @property
    def arg_types(self) -> tuple[Type, ...]:
        """The types of the arguments."""
        return tuple(type_of(arg) for arg in self.args)

    @property
    def tensors(self) -> tuple[Array, ...]:
        """The tensor arguments, fields of tuples one by one."""
        return tuple(tensor for arg in self.args for tensor in (arg if isinstance(arg, tuple) else (arg,)))

    def __str__(self) -> str:
        return f"{self.op}-{self.number}"


def type_of(value: Argument) -> Type:
    """The type of an array, or of a tuple of arrays."""
    if isinstance(value, tuple):
        return TupleType(tuple(type_of(field) for field in value))
    return TensorType(value.shape, value.dtype.name)


class Random:
    """Arrays from a seeded generator."""

    def __init__(self, seed: int) -> None:
        self.generator = np.random.default_rng(seed)

    def real(self, *shape: int, dtype: str = "float32") -> Array:
        """Values around 0, a few units wide."""
        return np.asarray(self.generator.normal(size=shape) * 2).astype(dtype)

    def between(self, low: float, high: float, *shape: int, dtype: str = "float32") -> Array:
        """Values in [low, high]; integers include both ends."""
        if np.dtype(dtype).kind in "iu":
            return np.asarray(self.generator.integers(int(low), int(high) + 1, shape)).astype(dtype)
        return np.asarray(self.generator.uniform(low, high, shape)).astype(dtype)

    def bits(self, *shape: int) -> Array:
        """Bools."""
        return np.asarray(self.generator.integers(0, 2, shape)).astype(bool)


def samples(*names: str) -> Callable[[Generator], Generator]:
    """Register a generator of samples for operators."""

    def register(generator: Generator) -> Generator:
        for name in names:
            assert name not in _generators, name
            _generators[name] = generator
        return generator

    return register


def names_with_cases() -> frozenset[str]:
    """The operators that have cases."""
    return frozenset(_generators)


def cases_of(name: str) -> list[Case]:
    """All cases of one operator, the same in every process."""
    generator = _generators.get(name)
    found = generator(name, Random(zlib.crc32(name.encode()))) if generator else iter(())
    return [Case(name, number, tuple(args), attrs) for number, (args, attrs) in enumerate(found)]


BROADCASTS = (((2, 3, 5), (2, 3, 5)), ((7, 1, 5), (3, 1)), ((), (4,)), ((1, 13), (13,)), ((), ()), ((0, 3), (1, 3)))
SHAPES = ((2, 3, 5), (17,), (), (1, 1, 31), (0, 3))


@samples("add", "subtract", "multiply", "maximum", "minimum", "less", "less_equal", "greater", "greater_equal")
def binary(name: str, r: Random) -> Iterator[Sample]:
    for left, right in BROADCASTS:
        yield [r.real(*left), r.real(*right)], {}
    for dtype in ("float64", "float16"):
        yield [r.real(3, 5, dtype=dtype), r.real(5, dtype=dtype)], {}
    for dtype in ("int64", "int32", "uint8"):
        yield [r.between(0, 9, 3, 5, dtype=dtype), r.between(0, 9, 3, 1, dtype=dtype)], {}
    special = np.asarray([np.nan, np.inf, -np.inf, 0.0, 1.5], "float32")
    yield [special.reshape(5, 1), special], {}


@samples("equal", "not_equal")
def equality(name: str, r: Random) -> Iterator[Sample]:
    for left, right in BROADCASTS:
        yield [r.between(0, 2, *left, dtype="int32"), r.between(0, 2, *right, dtype="int32")], {}
    yield [r.bits(3, 5), r.bits(5)], {}
    yield [np.asarray([np.nan, 1, 2], "float32"), np.asarray([np.nan, 1, 3], "float32")], {}


@samples("divide")
def quotient(name: str, r: Random) -> Iterator[Sample]:
    for left, right in BROADCASTS:
        yield [r.real(*left), r.between(0.5, 2, *right)], {}
    yield [r.real(3, 5), np.asarray([0, -1, 2, np.inf, 0.5], "float32")], {}
    yield from _signed_divisions(r)


@samples("mod", "floor_mod", "floor_divide")
def division(name: str, r: Random) -> Iterator[Sample]:
    yield [r.between(-9, 9, 2, 3, 5), r.between(0.5, 2, 5)], {}
    yield [r.between(-9, 9, 7, dtype="float64"), -r.between(0.5, 2, 7, dtype="float64")], {}
    yield from _signed_divisions(r)


def _signed_divisions(r: Random) -> Iterator[Sample]:
    for dtype in ("int8", "int32", "int64"):
        divisors = np.asarray([-3, -2, 1, 2, 5], dtype)
        yield [r.between(-9, 9, 11, 1, dtype=dtype), divisors], {}
    yield [r.between(0, 99, 4, 3, dtype="uint8"), r.between(1, 7, 3, dtype="uint8")], {}


@samples("power")
def power(name: str, r: Random) -> Iterator[Sample]:
    for left, right in BROADCASTS:
        yield [r.between(0.1, 3, *left), r.between(-2, 2, *right)], {}
    yield [r.real(5), np.asarray([2, 3, 0, 1, -1], "float32")], {}
    yield [r.between(-4, 4, 3, 5, dtype="int32"), r.between(0, 4, 5, dtype="int32")], {}


@samples("logical_and", "logical_or", "logical_xor")
def logic(name: str, r: Random) -> Iterator[Sample]:
    for left, right in BROADCASTS:
        yield [r.bits(*left), r.bits(*right)], {}


@samples("bitwise_and", "bitwise_or", "bitwise_xor")
def bit_logic(name: str, r: Random) -> Iterator[Sample]:
    for dtype in ("int8", "int32", "int64", "uint8"):
        low = 0 if dtype.startswith("u") else -100
        yield [r.between(low, 100, 3, 5, dtype=dtype), r.between(0, 100, 5, dtype=dtype)], {}
    yield [r.bits(3, 5), r.bits(5)], {}


@samples("left_shift", "right_shift")
def shifts(name: str, r: Random) -> Iterator[Sample]:
    yield [r.between(0, 255, 3, 5, dtype="uint8"), r.between(0, 7, 5, dtype="uint8")], {}
    low = 0 if name == "left_shift" else -1000
    for dtype in ("int32", "int64"):
        yield [r.between(low, 1000, 3, 5, dtype=dtype), r.between(0, 9, 3, 1, dtype=dtype)], {}


@samples("exp", "sigmoid", "erf", "tanh", "floor", "ceil", "round", "trunc", "sin", "cos", "atan", "asinh", "sinh")
@samples("cosh", "nn.dropout")
def unary_everywhere(name: str, r: Random) -> Iterator[Sample]:
    for shape in SHAPES:
        yield [r.real(*shape)], {}
    yield [r.real(5, dtype="float64")], {}
    yield [r.real(5, dtype="float16")], {}
    yield [np.asarray([0.0, -0.5, 0.5, 1.5, 2.5, -1.5, 1.0, -20.0, 20.0], "float32")], {}


@samples("log", "sqrt", "rsqrt", "asin", "acos", "tan", "acosh", "atanh")
def unary_on_interval(name: str, r: Random) -> Iterator[Sample]:
    low, high = {"asin": (-1, 1), "acos": (-1, 1), "tan": (-1, 1), "acosh": (1.1, 5), "atanh": (-0.9, 0.9)}.get(
        name, (0.1, 9)
    )
    for shape in SHAPES:
        yield [r.between(low, high, *shape)], {}
    yield [r.between(low, high, 5, dtype="float64")], {}


@samples("abs", "negative", "sign", "annotation.stop_fusion", "copy", "nn.relu", "zeros_like", "ones_like")
def unary_numeric(name: str, r: Random) -> Iterator[Sample]:
    for shape in SHAPES:
        yield [r.real(*shape)], {}
    for dtype in ("int8", "int64", "float64"):
        yield [r.between(-9, 9, 3, 5, dtype=dtype)], {}
    yield [r.between(0, 9, 7, dtype="uint8")], {}


@samples("annotation.compiler_begin", "annotation.compiler_end")
def annotations(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3)], {"compiler": "default"}
    yield [(r.real(4), r.bits(2))], {"compiler": "vendor"}


@samples("isnan", "isinf")
def unary_tests(name: str, r: Random) -> Iterator[Sample]:
    yield [np.asarray([[np.nan, 1.0], [np.inf, -np.inf]], "float32")], {}
    yield [r.real(5, dtype="float64")], {}


@samples("logical_not")
def logical_not(name: str, r: Random) -> Iterator[Sample]:
    yield [r.bits(3, 5)], {}
    yield [r.bits()], {}


@samples("bitwise_not")
def bitwise_not(name: str, r: Random) -> Iterator[Sample]:
    for dtype in ("int8", "int64", "uint8", "uint32"):
        yield [r.between(0, 100, 3, 5, dtype=dtype)], {}
    yield [r.bits(7)], {}


@samples("nn.leaky_relu")
def leaky_relu(name: str, r: Random) -> Iterator[Sample]:
    for shape in SHAPES:
        yield [r.real(*shape)], {"alpha": 0.1}
    yield [r.real(5, dtype="float64")], {}


@samples("nn.prelu", "nn.bias_add")
def channel_vector(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 4, 5), r.real(3)], {}
    yield [r.real(2, 3, 5), r.real(5)], {"axis": -1}
    yield [r.real(7, 1), r.real(1)], {"axis": 1}


@samples("clip")
def clip(name: str, r: Random) -> Iterator[Sample]:
    for shape in SHAPES:
        yield [r.real(*shape)], {"a_min": -1.0, "a_max": 1.5}
    yield [r.real(7)], {"a_min": 0.0}
    yield [r.real(7)], {"a_max": 0.25}
    yield [r.real(7)], {}
    yield [np.asarray([np.nan, np.inf, -np.inf], "float32")], {"a_min": 0.0, "a_max": 6.0}
    yield [r.between(-100, 100, 7, dtype="int8")], {"a_min": -1e9, "a_max": 6.0}
    yield [r.between(0, 255, 7, dtype="uint8")], {"a_min": float("-inf"), "a_max": 100}


@samples("cast")
def cast(name: str, r: Random) -> Iterator[Sample]:
    for dtype in ("float16", "float32", "float64", "int8", "int32", "int64", "bool"):
        yield [r.real(3, 5)], {"dtype": dtype}
        yield [r.between(-9, 9, 5, dtype="int64")], {"dtype": dtype}
        yield [r.bits(5)], {"dtype": dtype}
    yield [r.between(0, 255, 5, dtype="uint8")], {"dtype": "float32"}


@samples("where")
def where(name: str, r: Random) -> Iterator[Sample]:
    yield [r.bits(2, 3, 5), r.real(2, 3, 5), r.real(2, 3, 5)], {}
    yield [r.bits(3, 1), r.real(5), r.real()], {}
    yield [r.bits(), r.between(0, 9, 4, dtype="int64"), r.between(0, 9, 4, dtype="int64")], {}


@samples("nn.conv2d")
def conv2d(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(1, 3, 8, 7), r.real(5, 3, 3, 3)], {"padding": 1}
    yield [r.real(2, 4, 5, 6), r.real(7, 4, 1, 1)], {}
    yield [r.real(1, 3, 11, 13), r.real(4, 3, 5, 3)], {"strides": 2, "padding": (2, 1, 1, 0)}
    yield [r.real(1, 6, 7, 7), r.real(6, 1, 3, 3)], {"groups": 6, "padding": 1, "strides": (2, 1)}
    yield [r.real(1, 4, 7, 7), r.real(8, 1, 3, 3)], {"groups": 4, "padding": 1}
    yield [r.real(1, 6, 7, 5), r.real(9, 2, 3, 2)], {"groups": 3, "dilation": (2, 3)}
    yield [r.real(1, 5, 1, 9), r.real(3, 5, 1, 3)], {"padding": (0, 1), "strides": (1, 2)}
    yield [r.real(1, 2, 3, 3, dtype="float64"), r.real(2, 2, 3, 3, dtype="float64")], {}
    yield (
        [r.between(-9, 9, 1, 3, 5, 5, dtype="int8"), r.between(-9, 9, 2, 3, 3, 3, dtype="int8")],
        {"out_dtype": "int32"},
    )
    yield (
        [r.real(1, 6, 7, 4), r.real(3, 3, 4, 5)],
        {
            "data_layout": "NHWC",
            "kernel_layout": "HWIO",
            "padding": 1,
            "strides": (2, 1),
        },
    )
    blocked = {"data_layout": "NCHW4c", "kernel_layout": "OIHW4i2o", "padding": 1}
    yield [r.real(1, 2, 5, 6, 4), r.real(4, 2, 3, 3, 4, 2)], blocked
    yield [r.real(1, 2, 5, 6, 4), r.real(3, 2, 3, 3, 4, 2)], {**blocked, "out_layout": "NHWC"}
    depthwise = {"data_layout": "NCHW4c", "kernel_layout": "OIHW1i4o", "padding": 1, "groups": 8}
    yield [r.real(1, 2, 5, 6, 4), r.real(2, 1, 3, 3, 1, 4)], depthwise


@samples("nn.conv2d_transpose")
def conv2d_transpose(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(1, 3, 4, 5), r.real(3, 2, 3, 3)], {}
    yield [r.real(2, 4, 5, 3), r.real(4, 3, 2, 2)], {"strides": 2}
    yield [r.real(1, 4, 5, 5), r.real(4, 3, 3, 3)], {"strides": 2, "padding": 1, "output_padding": 1}
    yield [r.real(1, 4, 4, 3), r.real(4, 1, 4, 3)], {"groups": 2, "strides": (3, 1), "padding": (1, 0, 2, 1)}
    yield [r.real(1, 2, 3, 3), r.real(2, 2, 2, 3)], {"dilation": (2, 3), "strides": (1, 2)}
    yield [r.real(1, 1, 2, 2), r.real(1, 1, 1, 1)], {"strides": 3, "output_padding": (2, 1)}


@samples("nn.dense")
def dense(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 7), r.real(5, 7)], {}
    yield [r.real(2, 3, 4), r.real(1, 4)], {}
    yield [r.real(13), r.real(3, 13)], {}
    yield [r.real(1, 1), r.real(1, 1)], {}
    yield [r.real(2, 5, dtype="float64"), r.real(3, 5, dtype="float64")], {}
    yield [r.real(4, 6), r.real(2, 6)], {"units": 2}
    yield [r.between(-9, 9, 3, 7, dtype="int8"), r.between(-9, 9, 4, 7, dtype="int8")], {"out_dtype": "int32"}


@samples("nn.contrib_dense_pack")
def dense_pack(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 5), r.real(3, 5, 16)], {}
    yield [r.real(2, 3, 8), r.real(3, 2, 4, 4)], {"weight_layout": "NC4c4n"}


@samples("nn.matmul")
def matmul(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 7), r.real(7, 5)], {}
    yield [r.real(2, 3, 4, 5), r.real(3, 5, 2)], {}
    yield [r.real(4, 1, 2, 3), r.real(5, 3, 2)], {}
    yield [r.real(2, 5, 3), r.real(2, 5, 4)], {"transpose_a": True}
    yield [r.real(2, 3, 5), r.real(1, 4, 5)], {"transpose_b": True}
    yield [r.real(1, 3), r.real(1, 3)], {"transpose_a": True}
    yield [r.between(-9, 9, 3, 4, dtype="int64"), r.between(-9, 9, 4, 2, dtype="int64")], {}


@samples("nn.batch_norm")
def batch_norm(name: str, r: Random) -> Iterator[Sample]:
    def statistics(channels: int) -> list[Argument]:
        return [r.real(channels), r.real(channels), r.real(channels), r.between(0.1, 3, channels)]

    yield [r.real(2, 3, 4, 5), *statistics(3)], {}
    yield [r.real(5, 7), *statistics(7)], {"axis": -1, "epsilon": 1e-3}
    yield [r.real(2, 3, 5), *statistics(3)], {"center": False, "scale": False}


@samples("nn.layer_norm", "nn.instance_norm")
def moment_norm(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5), r.real(3), r.real(3)], {"axis": 1}
    yield [r.real(2, 3, 4, 5), r.real(5), r.real(5)], {"axis": -1, "epsilon": 1e-3}
    yield [r.real(2, 3, 5), r.real(3), r.real(3)], {"axis": 1, "center": False, "scale": False}


@samples("nn.group_norm")
def group_norm(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 6, 3, 5), r.real(6), r.real(6)], {"num_groups": 3}
    yield [r.real(2, 3, 4), r.real(4), r.real(4)], {"num_groups": 2, "axis": 2}
    yield [r.real(1, 4), r.real(4), r.real(4)], {"num_groups": 1, "epsilon": 1e-3}


@samples("nn.l2_normalize")
def l2_normalize(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {"axis": 1}
    yield [r.real(2, 3, 5)], {"axis": (-1, 0), "eps": 0.1}
    yield [r.real(7)], {}


@samples("nn.lrn")
def lrn(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 7, 3, 5)], {"size": 3, "alpha": 0.1, "bias": 1.0}
    yield [r.real(1, 3, 2, 2)], {"size": 5, "alpha": 0.5, "beta": 0.5}
    yield [r.real(2, 5, 3, 2)], {"size": 4, "alpha": 0.2, "bias": 1.0}


@samples("nn.max_pool2d", "nn.avg_pool2d")
def pool2d(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 7, 8)], {"pool_size": 2, "strides": 2}
    yield [r.real(1, 2, 7, 9)], {"pool_size": 3, "strides": 2, "padding": 1}
    yield [r.real(1, 2, 7, 8)], {"pool_size": 3, "strides": 2, "padding": 1, "ceil_mode": True}
    yield [r.real(1, 2, 8, 5)], {"pool_size": (3, 2), "strides": 2, "ceil_mode": True}
    yield [r.real(1, 2, 6, 6)], {"pool_size": (2, 3), "padding": (1, 0, 0, 2)}
    yield [r.real(1, 2, 9, 9)], {"pool_size": (2, 3), "dilation": (3, 2), "strides": (1, 2), "padding": (0, 1, 1, 0)}
    yield [r.real(1, 1, 1, 1)], {"pool_size": 1}
    yield [r.real(1, 2, 2, 5)], {"pool_size": 3, "strides": 2, "ceil_mode": True}
    yield [r.real(1, 2, 4, 5)], {"pool_size": 2, "strides": 3, "padding": 1, "ceil_mode": True}
    if name == "nn.max_pool2d":
        yield [r.between(-9, 9, 1, 2, 5, 5, dtype="int8")], {"pool_size": 2, "padding": 1}
    else:
        counted = {"count_include_pad": True}
        yield [r.real(1, 2, 7, 9)], {"pool_size": 3, "strides": 2, "padding": 1, **counted}
        yield (
            [r.real(1, 2, 8, 8)],
            {"pool_size": 3, "strides": 2, "padding": (1, 0, 1, 0), "ceil_mode": True, **counted},
        )
    yield [r.real(1, 7, 8, 3)], {"pool_size": 3, "strides": 2, "padding": 1, "layout": "NHWC"}
    yield [r.real(1, 2, 7, 5, 4)], {"pool_size": (2, 3), "padding": (0, 1), "layout": "NCHW4c"}


@samples("nn.global_avg_pool2d", "nn.global_max_pool2d")
def global_pool2d(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5, 7)], {}
    yield [r.real(1, 17, 1, 1)], {}
    yield [r.real(2, 5, 7, 3)], {"layout": "NHWC"}
    yield [r.real(1, 3, 5, 2, 8)], {"layout": "NCHW8c"}


@samples("nn.adaptive_avg_pool2d")
def adaptive_pool2d(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(1, 3, 7, 11)], {"output_size": (3, 4)}
    yield [r.real(2, 2, 4, 6)], {"output_size": 2}
    yield [r.real(1, 1, 2, 3)], {"output_size": (4, 3)}


def _int64(*values: int) -> Array:
    return np.asarray(values, "int64")


@samples("dyn.reshape", "dyn.broadcast_to", "dyn.full", "dyn.tile", "dyn.squeeze")
def dynamic_shape(name: str, r: Random) -> Iterator[Sample]:
    shapes = {
        "dyn.reshape": ((2, 6), (3, -1)),
        "dyn.broadcast_to": ((3, 1), (2, 3, 4)),
        "dyn.full": ((), (2, 3)),
        "dyn.tile": ((2, 3), (2, 1, 3)),
        "dyn.squeeze": ((1, 3, 1), (0, 2)),
    }
    before, argument = shapes[name]
    yield [r.real(*before), _int64(*argument)], {}
    yield [r.between(-9, 9, *before, dtype="int32"), _int64(*argument).astype("int32")], {}


@samples("dyn.one_hot")
def dynamic_one_hot(name: str, r: Random) -> Iterator[Sample]:
    yield [r.between(0, 4, 2, 3, dtype="int32"), np.asarray(5, "int64")], {}
    yield [r.between(0, 4, 3, dtype="int64"), np.asarray(4, "int32")], {"axis": 0, "dtype": "int8", "off_value": 2.0}


@samples("dyn.strided_slice")
def dynamic_slice(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(5, 6, 2), _int64(1, -1), _int64(4, -5), _int64(2, -1)], {}


@samples("dyn.nn.pad")
def dynamic_pad(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 4), np.asarray([[1, 0], [2, 3]], "int64")], {"pad_value": 1.0}


@samples("dyn.image.resize2d")
def dynamic_resize(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(1, 2, 5, 7), _int64(10, 3)], {}
    yield [r.real(1, 5, 7, 2), _int64(10, 3)], {"layout": "NHWC", "method": "nearest_neighbor"}


@samples("fast_exp", "fast_tanh", "fast_erf")
def approximation(name: str, r: Random) -> Iterator[Sample]:
    for shape in SHAPES:
        yield [r.real(*shape)], {}
    yield [r.real(7, dtype="float64")], {}
    yield [r.real(7, dtype="float16")], {}
    yield [np.asarray([np.nan, np.inf, -np.inf, 0.0, -0.0, 100.0, -100.0], "float32")], {}


@samples("nn.softmax", "nn.log_softmax", "nn.fast_softmax")
def softmax(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 7)], {}
    yield [r.real(2, 3, 5)], {"axis": 1}
    yield [r.real(2, 3, 1) * 40], {"axis": 0}
    yield [r.real(5, dtype="float64")], {"axis": 0}


@samples("sum", "mean", "max", "min", "prod")
def reduction(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {"axis": 1}
    yield [r.real(2, 3, 5)], {"axis": (0, -1), "keepdims": True}
    yield [r.real(2, 3, 5)], {}
    yield [r.real(2, 3, 5)], {"axis": (1,), "exclude": True, "keepdims": True}
    yield [r.real(2, 3)], {"axis": ()}
    yield [r.real()], {}
    yield [r.between(-9, 9, 4, 5, dtype="int32")], {"axis": 0}
    yield [r.real(3, 4, dtype="float64")], {"axis": -1}
    if name != "mean":
        yield [r.real(3, 0)], {"axis": 1}


@samples("variance")
def variance(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {"axis": 1}
    yield [r.real(2, 3, 5)], {"axis": (0, 2), "keepdims": True}
    yield [r.real(11)], {}
    yield [r.real(2, 3, 5)], {"axis": (0, 2), "unbiased": True}
    yield [r.real(2, 1)], {"axis": 1, "unbiased": True}


@samples("all", "any")
def logical_reduction(name: str, r: Random) -> Iterator[Sample]:
    yield [r.bits(2, 3, 5)], {"axis": 1}
    yield [r.bits(3, 2)], {"axis": 0, "keepdims": True}
    yield [r.bits(2)], {}


@samples("argmax", "argmin")
def arg_reduction(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {"axis": 1}
    yield [r.real(2, 3, 5)], {"axis": -1, "keepdims": True}
    yield [r.between(0, 2, 4, 9, dtype="int32")], {"axis": 1}
    yield [r.between(0, 2, 4, 9, dtype="int32")], {"axis": 1, "select_last_index": True}
    yield [r.real(2, 3)], {}
    yield [r.real(2, 3)], {"keepdims": True}


@samples("reshape")
def reshape(name: str, r: Random) -> Iterator[Sample]:
    for shape, newshape in (
        ((2, 3, 5), (2, 3, 5)),
        ((2, 3, 5), (30,)),
        ((6, 35), (2, 3, 5, 7)),
        ((4, 6, 5), (8, 3, 5)),
        ((3, 4, 1, 6), (3, 8, 3)),
        ((2, 3, 4), (0, -1)),
        ((1, 3, 1, 5), (3, 1, 5, 1)),
        ((2, 6), (3, 4)),
        ((1,), ()),
        ((), (1, 1)),
        ((0, 3), (3, 0)),
        ((2, 12, 3), (2, 3, 4, 3)),
        ((2, 3, 4, 3), (2, 12, 3)),
        ((4, 1, 9), (2, 2, 3, 1, 3)),
    ):
        if newshape == (3, 0):
            yield [r.real(*shape)], {"newshape": (-1, 3)}
        else:
            yield [r.real(*shape)], {"newshape": newshape}


@samples("nn.batch_flatten")
def batch_flatten(name: str, r: Random) -> Iterator[Sample]:
    for shape in ((2, 3, 5), (3,), (1, 4, 1, 1), (2, 0, 3)):
        yield [r.real(*shape)], {}


@samples("transpose")
def transpose(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {"axes": (2, 0, 1)}
    yield [r.real(2, 3, 5)], {}
    yield [r.real(2, 3, 5, 7)], {"axes": (0, -1, 1, 2)}
    yield [r.real()], {}
    yield [r.bits(3, 4)], {"axes": (1, 0)}


@samples("squeeze")
def squeeze(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(1, 3, 1, 5)], {}
    yield [r.real(1, 3, 1, 5)], {"axis": -2}
    yield [r.real(1, 1)], {"axis": (0, 1)}


@samples("expand_dims")
def expand_dims(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 5)], {"axis": 1}
    yield [r.real(3, 5)], {"axis": -1, "num_newaxis": 2}
    yield [r.real()], {"axis": 0}


@samples("concatenate")
def concatenate(name: str, r: Random) -> Iterator[Sample]:
    yield [(r.real(2, 3, 5), r.real(2, 4, 5), r.real(2, 1, 5))], {"axis": 1}
    yield [(r.real(3), r.real(0), r.real(2))], {}
    yield [(r.real(2, 3),)], {"axis": -1}
    yield [(r.between(0, 9, 2, 1, dtype="int64"), r.between(0, 9, 2, 2, dtype="int64"))], {"axis": -1}


@samples("stack")
def stack(name: str, r: Random) -> Iterator[Sample]:
    yield [(r.real(3, 5), r.real(3, 5))], {"axis": 1}
    yield [(r.real(), r.real(), r.real())], {}
    yield [(r.real(3),)], {"axis": -1}


@samples("split")
def split(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 6, 5)], {"indices_or_sections": 3, "axis": 1}
    yield [r.real(2, 7)], {"indices_or_sections": (1, 4, 4), "axis": -1}


@samples("strided_slice")
def strided_slice(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(4, 5, 6)], {"begin": (1, 0, 2), "end": (3, 5, 6)}
    yield [r.real(7, 11)], {"begin": (6, -1), "end": (-100, 0), "strides": (-2, -3)}
    yield [r.real(7, 11)], {"begin": (-5,), "end": (2**31 - 1,), "axes": (1,)}
    yield [r.real(3, 7, 5)], {"begin": (0, 5), "end": (5, 1), "strides": (2, -1), "axes": (-1, 1)}
    yield [r.real(4, 5)], {"begin": (3,), "end": (3,)}
    yield [r.real(4, 1)], {"begin": (9,), "end": (-9,), "strides": (-1,)}


@samples("take")
def take(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(5, 3), r.between(0, 4, 2, 4, dtype="int64")], {"axis": 0}
    yield [r.real(2, 7, 3), r.between(0, 6, 3, dtype="int32")], {"axis": -2}
    yield [r.real(2, 7), r.between(-3, 9, 3, dtype="int64")], {"axis": 1, "mode": "clip"}
    yield [r.real(2, 7), r.between(-7, 9, 5, dtype="int64")], {"axis": 1, "mode": "wrap"}
    yield [r.real(2, 3, 5), r.between(0, 29, 2, 2, dtype="int64")], {}
    yield [r.real(300), r.between(0, 255, 5, dtype="uint8")], {"axis": 0, "mode": "fast"}
    yield [r.real(5, 2), r.between(0, 4, dtype="int64")], {"axis": 0}


@samples("gather")
def gather(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 5), r.between(0, 2, 2, 5, dtype="int64")], {"axis": 0}
    yield [r.real(3, 5, 4), r.between(-1, 5, 3, 7, 2, dtype="int32")], {"axis": 1}
    yield [r.real(6), r.between(0, 5, 9, dtype="int64")], {"axis": -1}


@samples("gather_nd")
def gather_nd(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 5, 4), r.between(0, 2, 6, 2, dtype="int64")], {}
    yield [r.real(3, 5), r.between(0, 2, 2, 3, 2, dtype="int32")], {}
    yield [r.real(2, 3, 5), r.between(0, 2, 2, 4, 1, dtype="int64")], {"batch_dims": 1}
    yield [r.real(2, 3, 5, 2), r.between(-1, 7, 2, 3, 2, dtype="int64")], {"batch_dims": 2}
    yield [r.real(4), r.between(0, 3, 1, dtype="int64")], {}


@samples("broadcast_to")
def broadcast_to(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 1)], {"shape": (2, 3, 5)}
    yield [r.real()], {"shape": (4,)}
    yield [r.real(1)], {"shape": (0, 3)}
    yield [r.bits(2, 3)], {"shape": (2, 3)}


@samples("tile")
def tile(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3)], {"reps": (2, 3)}
    yield [r.real(3, 1, 4)], {"reps": (5, 1)}
    yield [r.real(3)], {"reps": (2, 1, 2)}
    yield [r.real()], {"reps": (3,)}
    yield [r.real(2)], {"reps": 0}


@samples("repeat")
def repeat(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3)], {"repeats": 2, "axis": 1}
    yield [r.real(2, 3)], {"repeats": 3, "axis": -2}
    yield [r.real(2, 3)], {"repeats": 2}
    yield [r.real(4)], {"repeats": 1, "axis": 0}


@samples("reverse")
def reverse(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {"axis": 1}
    yield [r.real(2, 3, 5)], {"axis": (0, -1)}


@samples("nn.pad")
def pad(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 4)], {"pad_width": ((0, 0), (1, 2), (3, 0)), "pad_value": -1.5}
    yield [r.real(5, 4)], {"pad_width": ((-1, 2), (0, -2))}
    yield [r.real(3)], {"pad_width": ((2, 1),), "pad_value": float("-inf")}
    yield [r.between(0, 9, 2, 2, dtype="int64")], {"pad_width": ((1, 1), (0, 1)), "pad_value": 7.0}
    yield [r.bits(3)], {"pad_width": ((1, 1),), "pad_value": True}
    yield [r.real(2, 3, 4)], {"pad_width": ((0, 0), (4, 2), (1, 5)), "pad_mode": "edge"}
    yield [r.real(2, 5, 4)], {"pad_width": ((0, 0), (4, 2), (1, 3)), "pad_mode": "reflect"}
    yield [r.real(5, 6)], {"pad_width": ((-1, 2), (2, -1)), "pad_mode": "reflect"}
    yield [r.real(0, 2)], {"pad_width": ((1, 2), (0, 0)), "pad_value": 3.0}
    yield [r.real()], {"pad_width": ()}


@samples("nn.depth_to_space")
def depth_to_space(name: str, r: Random) -> Iterator[Sample]:
    for mode in ("DCR", "CRD"):
        yield [r.real(2, 12, 3, 5)], {"block_size": 2, "mode": mode}
        yield [r.real(1, 9, 1, 2)], {"block_size": 3, "mode": mode}


@samples("nn.space_to_depth")
def space_to_depth(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 4, 6)], {"block_size": 2}
    yield [r.real(1, 2, 3, 6)], {"block_size": 3}


@samples("layout_transform")
def layout_transform(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 8, 3, 5)], {"src_layout": "NCHW", "dst_layout": "NCHW4c"}
    yield [r.real(2, 2, 3, 5, 4)], {"src_layout": "NCHW4c", "dst_layout": "NCHW"}
    yield [r.real(2, 2, 3, 5, 4)], {"src_layout": "NCHW4c", "dst_layout": "NCHW2c"}
    yield [r.real(2, 2, 3, 5, 4)], {"src_layout": "NCHW4c", "dst_layout": "NHWC"}
    yield [r.real(2, 3, 5, 8)], {"src_layout": "NHWC", "dst_layout": "NCHW8c"}
    yield [r.real(12, 8, 3, 2)], {"src_layout": "OIHW", "dst_layout": "OIHW2i4o2i"}
    yield [r.real(3, 2, 3, 2, 2, 4, 2)], {"src_layout": "OIHW2i4o2i", "dst_layout": "HWIO"}
    yield [r.real(6, 4)], {"src_layout": "NC", "dst_layout": "NC3n"}
    yield [r.real(3, 1, 5)], {"src_layout": "ABC", "dst_layout": "ABC1b"}
    yield [r.real(3)], {"src_layout": "A", "dst_layout": "A"}


@samples("nn.space_to_batch_nd")
def space_to_batch(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 4, 6, 3)], {"block_shape": (2, 3), "paddings": ((0, 0), (0, 0))}
    yield [r.real(1, 5, 7)], {"block_shape": (3, 2), "paddings": ((1, 0), (0, 1)), "pad_value": 2.0}
    yield [r.between(-9, 9, 3, 2, 4, dtype="int32")], {"block_shape": (1, 2), "paddings": ((0, 0), (2, 0))}


@samples("nn.batch_to_space_nd")
def batch_to_space(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(12, 2, 2, 3)], {"block_shape": (2, 3), "crops": ((0, 0), (0, 0))}
    yield [r.real(6, 2, 4)], {"block_shape": (3, 2), "crops": ((1, 0), (0, 1))}
    yield [r.between(-9, 9, 6, 2, 3, dtype="int32")], {"block_shape": (1, 2), "crops": ((0, 0), (2, 0))}


@samples("one_hot")
def one_hot(name: str, r: Random) -> Iterator[Sample]:
    yield [r.between(0, 4, 3, dtype="int64")], {"depth": 5}
    yield [r.between(-2, 6, 2, 3, dtype="int32")], {"depth": 5, "axis": 1, "on_value": 2.5, "off_value": -1.0}
    yield [r.between(0, 2, dtype="int64")], {"depth": 3, "dtype": "int32", "axis": 0}
    yield [r.between(0, 3, 4, dtype="uint8")], {"depth": 300, "dtype": "bool", "axis": 0}


@samples("trilu")
def trilu(name: str, r: Random) -> Iterator[Sample]:
    for upper in (True, False):
        for k in (0, 2, -3):
            yield [r.real(2, 5, 4)], {"upper": upper, "k": k}
    yield [r.bits(3, 5)], {}


@samples("cumsum")
def cumsum(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 5)], {"axis": 1}
    yield [r.real(3, 5)], {"axis": 0, "exclusive": True}
    yield [r.real(2, 3, 5)], {"axis": -2, "reverse": True}
    yield [r.between(-9, 9, 7, dtype="int32")], {"axis": 0, "exclusive": True, "reverse": True}
    yield [r.real(2, 3)], {}
    yield [r.between(-9, 9, 130, 3, dtype="int64")], {"axis": 0, "exclusive": True}
    yield [r.between(-9, 9, 2, 200, dtype="int32")], {"axis": 1, "reverse": True}
    yield [r.between(-9, 9, 4500)], {"axis": 0}


@samples("full")
def full(name: str, r: Random) -> Iterator[Sample]:
    yield [], {"shape": (2, 3), "fill_value": 1.5}
    yield [], {"shape": (), "fill_value": 7, "dtype": "int64"}
    yield [], {"shape": (0, 2), "fill_value": True, "dtype": "bool"}


@samples("arange")
def arange(name: str, r: Random) -> Iterator[Sample]:
    yield [], {"stop": 5, "dtype": "int64"}
    yield [], {"start": 10, "stop": -3, "step": -3, "dtype": "int32"}
    yield [], {"start": 0.5, "stop": 2.0, "step": 0.25}
    yield [], {"start": 3, "stop": 3}


@samples("shape_of")
def shape_of(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(2, 3, 5)], {}
    yield [r.real()], {"dtype": "int32"}


@samples("image.resize2d")
def resize2d(name: str, r: Random) -> Iterator[Sample]:
    modes = ("asymmetric", "half_pixel", "half_pixel_symmetric", "align_corners", "pytorch_half_pixel")
    for mode in modes:
        for rounding in ("round", "floor", "ceil", "round_prefer_floor"):
            for size in ((10, 7), (3, 5)):
                attrs = {"method": "nearest_neighbor", "rounding_method": rounding, "size": size}
                yield [r.real(1, 2, 5, 7)], {**attrs, "coordinate_transformation_mode": mode}
        for method in ("linear", "cubic"):
            for size in ((10, 14), (3, 5), (1, 9)):
                yield [r.real(1, 2, 5, 7)], {"method": method, "size": size, "coordinate_transformation_mode": mode}
    yield [r.real(1, 2, 5, 7)], {"method": "cubic", "size": (8, 9), "cubic_alpha": -0.5, "cubic_exclude": 1}
    yield [r.real(1, 2, 5, 7)], {"method": "linear", "size": (6, 16), "scales": (1.3, 2.3)}
    yield [r.real(1, 2, 5, 7)], {"method": "nearest_neighbor", "size": (6, 16), "scales": (1.3, 2.3)}
    yield [r.real(1, 4, 6, 3)], {"method": "linear", "size": (8, 3), "layout": "NHWC"}
    yield [r.real(1, 2, 6, 3, 4)], {"method": "linear", "size": (8, 3), "layout": "NCHW4c"}
    yield [r.between(0, 255, 1, 1, 4, 4, dtype="uint8")], {"method": "nearest_neighbor", "size": 8}
    yield [r.real(1, 1, 3, 3, dtype="float64")], {"method": "linear", "size": 7}
    yield [r.real(1, 2, 5, 7)], {"size": (5, 14)}


@samples("topk")
def topk(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 7)], {"k": 3}
    yield [r.between(0, 3, 2, 9, 3, dtype="int32")], {"k": 4, "axis": 1, "is_ascend": True, "ret_type": "indices"}
    yield [r.between(0, 3, 9, dtype="uint8")], {"k": 0, "ret_type": "values"}


@samples("sort")
def sort(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 7)], {}
    yield [r.between(0, 3, 2, 9, dtype="int32")], {"axis": 0, "is_ascend": False}


@samples("argsort")
def argsort(name: str, r: Random) -> Iterator[Sample]:
    yield [r.real(3, 7)], {"axis": 0}
    yield [r.between(0, 3, 2, 9, dtype="int32")], {"is_ascend": False, "dtype": "int32"}


@samples("scatter_elements")
def scatter_elements(name: str, r: Random) -> Iterator[Sample]:
    for reduction in ("update", "add", "mul", "min", "max"):
        indices = np.argsort(r.real(2, 5), 1)[:, :3].astype(np.int64)
        yield [r.real(3, 5), indices, r.real(2, 3)], {"axis": 1, "reduction": reduction}
    yield [r.real(4, 2), r.between(-1, 5, 6, 2, dtype="int32"), r.real(6, 2)], {"axis": 0, "reduction": "add"}


@samples("scatter_nd")
def scatter_nd(name: str, r: Random) -> Iterator[Sample]:
    for mode in ("update", "add", "mul", "min", "max"):
        indices = np.argsort(r.real(15))[:4]
        yield [r.real(3, 5, 2), np.stack([indices // 5, indices % 5], -1), r.real(4, 2)], {"mode": mode}
    yield [r.real(4), r.between(-1, 4, 6, 1, dtype="int32"), r.real(6)], {"mode": "add"}
