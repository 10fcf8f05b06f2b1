"""Loops over a tensor whose operands are broadcast to its shape; knows nothing of what is computed in them."""

from __future__ import annotations

from collections.abc import Sequence

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Axis:
    """One loop: its extent, and by how many elements each operand goes on in a step, 0 where it is broadcast."""

    extent: int
    strides: tuple[int, ...]


def loop_axes(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[Axis]:
    """As few loops as possible, outer ones first, over a row-major tensor and operands of shapes that broadcast to it.

    The first stride of an axis is the tensor's own, the others are the operands'. Extents of one need no loop, and
    neighbours along which everything lies without gaps, or is broadcast, are one loop: operands of one shape take a
    single loop whatever their rank.
    """
    strides = [_strides(each, len(shape)) for each in (shape, *operands)]
    axes: list[Axis] = []
    for number, extent in enumerate(shape):
        axis = Axis(extent, tuple(each[number] for each in strides))
        if extent == 1:
            continue
        if axes and all(outer == inner * extent for outer, inner in zip(axes[-1].strides, axis.strides)):
            axes[-1] = Axis(axes[-1].extent * extent, axis.strides)
        else:
            axes.append(axis)
    return axes


def _strides(shape: Sequence[int], rank: int) -> list[int]:
    """Of a row-major tensor seen as one of a higher rank."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(0 if extent == 1 else step)
        step *= extent
    strides += [0] * (rank - len(shape))
    return strides[::-1]


def loop_nest(axes: Sequence[Axis], names: Sequence[str], statement: str) -> list[str]:
    """Lines of C that run a statement for every element.

    `names` are those of the tensor and its operands; in the statement `{name}` stands for the element of each.
    """
    if any(axis.extent == 0 for axis in axes):
        return [f"(void){name};" for name in names]
    counters = [f"i{number}" for number in range(len(axes))]
    elements = {name: f"{name}[{_index(axes, counters, place)}]" for place, name in enumerate(names)}
    lines = [
        f"{'  ' * depth}for (int64_t {counter} = 0; {counter} < {axis.extent}; ++{counter}) {{"
        for depth, (axis, counter) in enumerate(zip(axes, counters))
    ]
    lines.append("  " * len(axes) + statement.format(**elements))
    return [*lines, *("  " * depth + "}" for depth in reversed(range(len(axes))))]


def _index(axes: Sequence[Axis], counters: Sequence[str], place: int) -> str:
    terms = [
        counter if axis.strides[place] == 1 else f"{counter} * {axis.strides[place]}"
        for axis, counter in zip(axes, counters)
        if axis.strides[place]
    ]
    return " + ".join(terms) or "0"
