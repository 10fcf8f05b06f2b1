"""Shape and dtype rules that several operators share; knows no operator.

Functions raise TypeMismatch with what was found and what was expected. Symbolic extents pass through wherever a rule
does not need their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.ir.op import TypeMismatch
from relaybuild.ir.types import ANY, DTYPES, Dim, Extent, TensorType, TupleType, Type

Array: TypeAlias = NDArray[Any]

FLOAT = frozenset(("float16", "float32", "float64", "bfloat16"))
INTEGER = frozenset(dtype for dtype in DTYPES if dtype.startswith(("int", "uint")))
NUMERIC = FLOAT | INTEGER
BOOL = frozenset(("bool",))
ANY_DTYPE = frozenset(DTYPES)


def as_ints(value: int | Sequence[int]) -> tuple[int, ...]:
    """An int as a tuple of one, a sequence as a tuple; numpy's integers become Python's."""
    return (int(value),) if isinstance(value, (int, np.integer)) else tuple(int(item) for item in value)


def as_pair(value: int | Sequence[int]) -> tuple[int, ...]:
    """An int (or a tuple of one) twice; a longer sequence as it is."""
    values = as_ints(value)
    return values * 2 if len(values) == 1 else values


def as_padding(value: int | Sequence[int]) -> tuple[int, ...]:
    """Padding as (top, left, bottom, right), from one number, (vertical, horizontal) or four."""
    values = as_pair(value)
    return values * 2 if len(values) == 2 else values


def expect_length(name: str, values: Sequence[object], length: int) -> None:
    """Raise unless the attribute has so many values."""
    if len(values) != length:
        raise TypeMismatch(f"expected {length} values in '{name}', found {len(values)}: {tuple(values)}")


def expect_tensor(found: Type, name: str = "argument") -> TensorType:
    """The type as a tensor's."""
    if not isinstance(found, TensorType):
        raise TypeMismatch(f"expected a tensor as {name}, found {found}")
    return found


def expect_tensors(types: Sequence[Type]) -> list[TensorType]:
    """All types as tensors'."""
    return [expect_tensor(found, f"argument {position}") for position, found in enumerate(types)]


def expect_fields(found: Type) -> list[TensorType]:
    """The fields of a non-empty tuple of tensors."""
    if not isinstance(found, TupleType) or not found.fields:
        raise TypeMismatch(f"expected a tuple of at least one tensor, found {found}")
    return [expect_tensor(field, f"field {position}") for position, field in enumerate(found.fields)]


def expect_rank(found: TensorType, rank: int, name: str) -> None:
    """Raise unless the tensor has that rank."""
    if found.rank != rank:
        raise TypeMismatch(f"expected {name} of rank {rank}, found rank {found.rank}")


def expect_dtype(found: TensorType, allowed: frozenset[str], name: str = "argument") -> None:
    """Raise unless the element type is one of the allowed."""
    if found.dtype not in allowed:
        raise TypeMismatch(f"expected {name} of dtype {' or '.join(sorted(allowed))}, found {found.dtype}")


def expect_same_dtype(types: Sequence[TensorType]) -> str:
    """The element type that all tensors share."""
    first = types[0].dtype
    for position, found in enumerate(types):
        if found.dtype != first:
            raise TypeMismatch(f"expected one dtype, found {first} and, at {position}, {found.dtype}: insert a cast")
    return first


def number(extent: Extent, name: str) -> int:
    """The extent as a number; a symbolic one is named in the error."""
    if isinstance(extent, Dim):
        raise TypeMismatch(f"expected a number as {name}, found the symbolic extent '{extent}'")
    return extent


def numbers(found: TensorType, name: str) -> tuple[int, ...]:
    """All extents as numbers."""
    return tuple(number(extent, f"extent {axis} of {name}") for axis, extent in enumerate(found.shape))


def unify_extents(a: Extent, b: Extent) -> Extent | None:
    """The extent that both are, an unknown one taking the other's value; None where they differ."""
    if a == b or b == ANY:
        return a
    return b if a == ANY else None


def expect_extent(found: Extent, wanted: Extent, what: str) -> Extent:
    """The extent that both are; `what` names the found one."""
    unified = unify_extents(found, wanted)
    if unified is None:
        raise TypeMismatch(f"expected {what} {wanted}, found {found}")
    return unified


def normalize_axis(axis: int, rank: int, name: str = "axis") -> int:
    """A possibly negative axis as one of 0 … rank-1."""
    if not -rank <= axis < rank:
        raise TypeMismatch(f"expected '{name}' in [{-rank}, {rank}), found {axis}")
    return axis % rank


def normalize_axes(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Ascending axes without duplicates; None stands for all."""
    if axes is None:
        return tuple(range(rank))
    found = [normalize_axis(axis, rank) for axis in as_ints(axes)]
    if len(set(found)) != len(found):
        raise TypeMismatch(f"expected distinct axes, found {as_ints(axes)}")
    return tuple(sorted(found))


def broadcast_shapes(shapes: Sequence[Sequence[Extent]]) -> tuple[Extent, ...]:
    """The shape after numpy broadcasting."""
    first = tuple(shapes[0])
    if all(shape == first for shape in shapes):
        return first
    rank = max(len(shape) for shape in shapes)
    result: list[Extent] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            result[axis] = _broadcast_extents(result[axis], extent, axis - rank, shapes)
    return tuple(result)


def _broadcast_extents(a: Extent, b: Extent, axis: int, shapes: Sequence[Sequence[Extent]]) -> Extent:
    if b == 1:
        return a
    if a == 1:
        return b
    unified = unify_extents(a, b)
    if unified is None:
        shown = " and ".join(f"({', '.join(map(str, shape))})" for shape in shapes)
        raise TypeMismatch(
            f"shapes {shown} do not broadcast: expected equal extents (or 1) at {axis}, found {a} and {b}"
        )
    return unified


def window_extent(
    extent: int, window: int, stride: int, dilation: int, padding: tuple[int, int], ceil_mode: bool = False
) -> int:
    """How many places a sliding window has.

    With `ceil_mode` a last, incomplete window counts when it begins inside the data or the padding before it.
    """
    span = extent + sum(padding) - dilation * (window - 1) - 1
    if span < 0 and not (ceil_mode and span + stride > 0):
        raise TypeMismatch(
            f"expected at most {extent + sum(padding)} (extent {extent} and padding {sum(padding)}) as the window's "
            f"extent, found {dilation * (window - 1) + 1}"
        )
    if not ceil_mode:
        return span // stride + 1
    places = -(-span // stride) + 1
    return places - 1 if (places - 1) * stride >= extent + padding[0] else places


def transposed_window_extent(
    extent: int, window: int, stride: int, dilation: int, padding: tuple[int, int], output_padding: int
) -> int:
    """The extent of the data from whose windows `extent` places come."""
    result = (extent - 1) * stride - sum(padding) + dilation * (window - 1) + 1 + output_padding
    if result < 1:
        raise TypeMismatch(f"expected a positive output extent, found {result} (padding {padding})")
    return result


def expect_positive(name: str, values: Sequence[int]) -> None:
    """Raise unless all values are at least 1."""
    if any(value < 1 for value in values):
        raise TypeMismatch(f"expected positive values in '{name}', found {tuple(values)}")


def is_float(dtype: np.dtype[Any]) -> bool:
    """Whether the dtype is floating point; bfloat16 is a void kind to numpy."""
    return dtype.kind in "fV"


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which products of `dtype` are summed: float32 at least, integers as they are."""
    return np.promote_types(dtype, np.float32) if is_float(dtype) else dtype


def wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which long sums are taken: float64, integers as they are."""
    return np.dtype(np.float64) if is_float(dtype) else dtype


def along_axis(vector: Array, axis: int, rank: int) -> Array:
    """A rank-1 array reshaped to broadcast along one axis of a tensor of that rank."""
    return vector.reshape([-1 if position == axis else 1 for position in range(rank)])
