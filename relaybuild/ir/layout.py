"""Layouts: names for the axes of tensors, and how a tensor is stored when axes are permuted or split into blocks.

A layout's text names each axis by a capital letter; `16c` is a block of 16 that was split off axis `C`, and of several
blocks of one axis the leftmost varies slowest: `NCHW`, `NHWC`, `NCHW16c`, `OIHW16i64o2i`. Blocks divide an extent
exactly. Knows nothing of expressions, and no operator by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import lru_cache
from math import prod
from typing import Any, TypeAlias

from numpy.typing import NDArray

from relaybuild.dataclass import dataclass
from relaybuild.ir.types import Extent, TensorType

LayoutAxes: TypeAlias = "tuple[tuple[str, int], ...]"
"""(letter, factor) of each axis; the factor is 0 for a capital letter, which stands for what the blocks leave."""


@lru_cache(maxsize=1024)
def parse_layout(text: str) -> LayoutAxes:
    """The axes that a layout's text names, in upper case; raises ValueError for a text that is no layout."""
    axes: list[tuple[str, int]] = []
    digits = ""
    for letter in text:
        if letter.isdigit():
            digits += letter
            continue
        if not letter.isascii() or not letter.isalpha() or letter.isupper() == bool(digits.strip("0")):
            raise ValueError(f"'{text}' is no layout: '{letter}' is neither an axis nor a block")
        axes.append((letter.upper(), int(digits or 0)))
        digits = ""
    capitals = [letter for letter, factor in axes if not factor]
    if digits or len(set(capitals)) != len(capitals) or {letter for letter, _ in axes} != set(capitals):
        raise ValueError(f"'{text}' is no layout: each axis must stand in it once as a capital letter")
    return tuple(axes)


def plain_letters(text: str) -> str:
    """The layout without its blocks: `NCHW` of `NCHW16c`."""
    return "".join(letter for letter, factor in parse_layout(text) if not factor)


def is_plain(text: str) -> bool:
    """Whether no axis is split."""
    return text.isalpha()


@dataclass(frozen=True)
class Layout:
    """How a tensor is stored: (axis, factor) of each stored axis, where factor 0 is what the blocks of the axis leave.

    `letters` name the axes where a text is wanted, and do not count in comparisons.
    """

    axes: tuple[tuple[int, int], ...]
    letters: str = field(default="", compare=False)

    @staticmethod
    def plain(rank: int, letters: str = "") -> Layout:
        """The layout of a tensor that is stored as it is."""
        return Layout(tuple((axis, 0) for axis in range(rank)), letters or default_letters(rank))

    @staticmethod
    def between(letters: str, text: str) -> Layout:
        """How a tensor whose axes are called `letters` is stored in the layout `text`; ValueError where axes differ."""
        axes = parse_layout(text)
        if sorted(letters) != sorted(plain_letters(text)) or not is_plain(letters):
            raise ValueError(f"'{text}' has not the axes of '{letters}'")
        return Layout(tuple((letters.index(letter), factor) for letter, factor in axes), letters)

    @property
    def rank(self) -> int:
        """How many axes the tensor has."""
        return sum(1 for _, factor in self.axes if not factor)

    @property
    def is_plain(self) -> bool:
        return all(axis == place and not factor for place, (axis, factor) in enumerate(self.axes))

    def text(self, letters: str = "") -> str:
        """The layout in letters, by default its own."""
        names = letters or self.letters
        return "".join(f"{factor}{names[axis].lower()}" if factor else names[axis] for axis, factor in self.axes)

    def factor(self, axis: int) -> int:
        """The product of an axis' blocks, 1 if it is not split."""
        return prod(factor for each, factor in self.axes if each == axis and factor)

    def is_split(self, axis: int) -> bool:
        return any(each == axis and factor for each, factor in self.axes)

    def places(self, axis: int) -> tuple[int, ...]:
        """Where the parts of an axis stand among the stored ones."""
        return tuple(place for place, (each, _) in enumerate(self.axes) if each == axis)

    def outer(self, axis: int) -> int:
        """Where that part of an axis stands which its blocks leave."""
        return self.axes.index((axis, 0))

    def fits(self, shape: Sequence[Extent]) -> bool:
        """Whether a shape has as many axes, and blocks divide their extents."""
        return len(shape) == self.rank and all(
            not self.is_split(axis) or (isinstance(extent, int) and extent % self.factor(axis) == 0)
            for axis, extent in enumerate(shape)
        )

    def stored_shape(self, shape: Sequence[Extent]) -> tuple[Extent, ...]:
        """The shape of what is stored, for a shape that fits."""
        return tuple(factor or _quotient(shape[axis], self.factor(axis)) for axis, factor in self.axes)

    def logical_shape(self, stored: Sequence[Extent]) -> tuple[Extent, ...]:
        """The shape of the tensor, from that of what is stored."""
        return tuple(_product(stored[self.outer(axis)], self.factor(axis)) for axis in range(self.rank))

    def without(self, removed: Sequence[int]) -> Layout:
        """The layout of the tensor without some of its axes."""
        kept = [axis for axis in range(self.rank) if axis not in removed]
        number = {axis: position for position, axis in enumerate(kept)}
        axes = tuple((number[axis], factor) for axis, factor in self.axes if axis in number)
        return Layout(axes, "".join(self.letters[axis] for axis in kept))

    def permuted(self, order: Sequence[int]) -> Layout:
        """The layout of the same storage when axis `order[i]` is called axis i."""
        number = {axis: position for position, axis in enumerate(order)}
        axes = tuple((number[axis], factor) for axis, factor in self.axes)
        return Layout(axes, "".join(self.letters[axis] for axis in order))

    def with_unit_blocks(self, axes: Sequence[int]) -> Layout:
        """The same stored axes with blocks of 1 along some axes, whose extents are 1."""
        return Layout(
            tuple((axis, 1 if factor and axis in axes else factor) for axis, factor in self.axes), self.letters
        )


def default_letters(rank: int) -> str:
    """Names for axes that no operator has named."""
    return "NCHW" if rank == 4 else "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:rank]


def store(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """An array as the layout stores it."""
    split: list[int] = []
    order = {}
    for axis, extent in enumerate(array.shape):
        for place in sorted(layout.places(axis), key=lambda place: bool(layout.axes[place][1])):
            order[place] = len(split)
            split.append(layout.axes[place][1] or extent // layout.factor(axis))
    stored: NDArray[Any] = array.reshape(split).transpose([order[place] for place in range(len(split))])
    return stored


def unstore(array: NDArray[Any], layout: Layout) -> NDArray[Any]:
    """The array that the layout stores as `array`."""
    order = [
        place
        for axis in range(layout.rank)
        for place in sorted(layout.places(axis), key=lambda place: bool(layout.axes[place][1]))
    ]
    shape = [extent for extent in layout.logical_shape(array.shape) if isinstance(extent, int)]
    plain: NDArray[Any] = array.transpose(order).reshape(shape)
    return plain


@dataclass(frozen=True)
class LayoutCall:
    """A call that may follow its arguments: its attributes, and of each tensor (the fields of tuples one by one) the
    type as the program has it and the layout in which it is stored."""

    attrs: Any
    types: tuple[TensorType, ...]
    layouts: tuple[Layout, ...]
    results: tuple[TensorType, ...]


@dataclass(frozen=True)
class LayoutChoice:
    """How a call is carried out on stored tensors: in which layout it takes each argument and gives each result.

    An argument's layout may have more axes than the argument, which then gets axes of extent 1 in front. Without
    `attrs` the result is the argument's storage itself.
    """

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    attrs: Any


FollowLayout: TypeAlias = Callable[[LayoutCall], "LayoutChoice | None"]
"""How a call follows the layouts of its arguments; None where it needs them plain."""


@dataclass(frozen=True)
class LayoutAttrs:
    """For operators whose attributes name layouts: which attributes they are, and those of the result's.

    `inputs` names one attribute per argument; `output` is that of the result, whose text "" means the first input's.
    """

    inputs: tuple[str, ...]
    output: str = ""

    def layouts(self, attrs: Any) -> tuple[str, ...]:
        """The layouts of the arguments, and last that of the result."""
        inputs = tuple(str(getattr(attrs, name)) for name in self.inputs)
        result = str(getattr(attrs, self.output)) if self.output else ""
        return (*inputs, result or inputs[0])


def keep_layout(call: LayoutCall) -> LayoutChoice | None:
    """For operators of one argument that treat all elements alike."""
    return LayoutChoice(call.layouts, call.layouts * len(call.results), call.attrs)


def broadcast_layout(call: LayoutCall) -> LayoutChoice | None:
    """For operators over broadcast arguments: all are brought to the layout of one that has the result's shape."""
    shape = call.results[0].shape
    found = [layout for kind, layout in zip(call.types, call.layouts) if not layout.is_plain and kind.shape == shape]
    if not found:
        return None
    inputs = tuple(_broadcast_operand(kind.shape, found[0]) for kind in call.types)
    return LayoutChoice(inputs, (found[0],), call.attrs)


def _broadcast_operand(shape: tuple[Extent, ...], layout: Layout) -> Layout:
    if all(extent == 1 for extent in shape):
        return Layout.plain(len(shape))
    full = (*(1,) * (layout.rank - len(shape)), *shape)
    return layout.with_unit_blocks([axis for axis, extent in enumerate(full) if extent == 1])


def _quotient(extent: Extent, factor: int) -> Extent:
    return extent if factor == 1 or not isinstance(extent, int) else extent // factor


def _product(extent: Extent, factor: int) -> Extent:
    return extent if factor == 1 or not isinstance(extent, int) else extent * factor
