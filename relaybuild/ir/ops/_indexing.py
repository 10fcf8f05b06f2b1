"""Index arithmetic shared by the compute rules of shape operators; knows neither operators nor an algebra's insides."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.ir.scalar import Index, ScalarAlgebra
from relaybuild.ir.types import Dim, Extent


def linearize(index: Sequence[Index], extents: Sequence[int]) -> Index:
    """The row-major position of an index; axes of extent 1 add nothing."""
    position: Index = 0
    stride = 1
    for value, extent in zip(reversed(index), reversed(extents)):
        if extent != 1:
            term = value * stride if stride != 1 else value
            position = term if stride == 1 else term + position
        stride *= extent
    return position


def delinearize(position: Index, extents: Sequence[int]) -> list[Index]:
    """The index of a row-major position, with `//` only behind the first axis and `%` only before the last."""
    index: list[Index] = [0] * len(extents)
    axes = [axis for axis, extent in enumerate(extents) if extent != 1]
    stride = 1
    for axis in reversed(axes):
        value = position // stride if stride != 1 else position
        index[axis] = value % extents[axis] if axis != axes[0] else value
        stride *= extents[axis]
    return index


def reshape_index(index: Sequence[Index], from_shape: Sequence[Extent], to_shape: Sequence[Extent]) -> list[Index]:
    """The element of `from_shape` at `index` of `to_shape`, both row-major over the same elements.

    The shapes are matched group by group, so that axes both have in common, and axes of extent 1, cost no arithmetic.
    Symbolic extents may stand only where they match. Raises ValueError elsewhere.
    """
    source: list[Index] = [0] * len(from_shape)
    if 0 in to_shape:
        return source
    old = new = 0
    while old < len(from_shape) and new < len(to_shape):
        if from_shape[old] == to_shape[new]:
            source[old] = index[new]
            old, new = old + 1, new + 1
        elif from_shape[old] == 1:
            old += 1
        elif to_shape[new] == 1:
            new += 1
        else:
            old_end, new_end = _group_end(from_shape, old, to_shape, new)
            position = linearize(index[new:new_end], _static(to_shape[new:new_end]))
            source[old:old_end] = delinearize(position, _static(from_shape[old:old_end]))
            old, new = old_end, new_end
    return source


def _group_end(a: Sequence[Extent], a_end: int, b: Sequence[Extent], b_end: int) -> tuple[int, int]:
    a_product = b_product = 1
    while a_product != b_product or a_product == 1:
        if a_product <= b_product:
            a_product *= _static(a[a_end : a_end + 1])[0]
            a_end += 1
        else:
            b_product *= _static(b[b_end : b_end + 1])[0]
            b_end += 1
    return a_end, b_end


def _static(extents: Sequence[Extent]) -> list[int]:
    if any(isinstance(extent, Dim) for extent in extents):
        raise ValueError(f"extents {tuple(map(str, extents))} are symbolic and do not match")
    return [extent for extent in extents if isinstance(extent, int)]


def clamp_index(s: ScalarAlgebra, index: Index, extent: int) -> Index:
    """The index limited to 0 … extent-1."""
    value = s.index_value(index, "int64")
    limited = s.binary("min", s.binary("max", value, s.const(0, "int64")), s.const(extent - 1, "int64"))
    return s.to_index(limited)
