"""Where windows lie along spatial axes; converts nothing."""

from __future__ import annotations

from relaybuild.dataclass import dataclass


@dataclass(frozen=True)
class Window:
    """Geometry per spatial axis; `pads` is begin of every axis, then end of every axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def to_2d(self) -> Window:
        """The window over two axes, of which the first has extent 1 where there was but one."""
        if len(self.kernel) == 2:
            return self
        begin, end = self.pads
        return Window((1, *self.kernel), (1, *self.strides), (1, *self.dilations), (0, begin, 0, end))

    def along(self, *axes: int) -> Window:
        """The window over some of the axes."""
        kernel, strides, dilations = (
            tuple(values[axis] for axis in axes) for values in (self.kernel, self.strides, self.dilations)
        )
        pads = tuple(self.pads[axis + end] for end in (0, len(self.kernel)) for axis in axes)
        return Window(kernel, strides, dilations, pads)

    @property
    def reach(self) -> tuple[int, ...]:
        """From the first to the last element that a window covers."""
        return tuple((size - 1) * dilation for size, dilation in zip(self.kernel, self.dilations))
