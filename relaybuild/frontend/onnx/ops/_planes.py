"""Windows over three spatial axes by windows over two: planes along the first axis are a batch, and the planes that a
window covers are channels side by side. Converts no operator itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.ops._geometry import Window
from relaybuild.ir.expr import Expr

OVER_TWO = (1, 2)
"""The axes of a window that planes have themselves."""


@dataclass(frozen=True)
class Planes:
    """Data of (batch, depth, channels, height, width)."""

    node: Node
    data: Expr

    @staticmethod
    def of(node: Node, data: Expr) -> Planes:
        """Those of data of (batch, channels, depth, height, width)."""
        return Planes(node, node.transpose(data, (0, 2, 1, 3, 4)))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.tensor_type.static_shape

    def mapped(self, function: Callable[[Expr], Expr]) -> Planes:
        """What a function makes of the planes as a batch, (planes, channels, height, width)."""
        batch, depth, *plane = self.shape
        result = function(self.node.reshape(self.data, (batch * depth, *plane)))
        return Planes(self.node, self.node.reshape(result, (batch, depth, *result.tensor_type.static_shape[1:])))

    def along_depth(self, function: Callable[[Expr], Expr]) -> Planes:
        """What a function makes of the planes as rows, (batch, 1, depth, elements of a plane)."""
        batch, depth, *plane = self.shape
        elements = plane[0] * plane[1] * plane[2]
        result = function(self.node.reshape(self.data, (batch, 1, depth, elements)))
        count = result.tensor_type.static_shape[2]
        return Planes(self.node, self.node.reshape(result, (batch, count, *plane)))

    def padded(self, before: int, after: int) -> Planes:
        """With so many planes of zeros before and behind."""
        if not before and not after:
            return self
        widths = tuple((before, after) if axis == 1 else (0, 0) for axis in range(5))
        return Planes(self.node, self.node.call("nn.pad", self.data, pad_width=widths))

    def spread(self, step: int) -> Planes:
        """With planes of zeros between, so that one is at every step."""
        batch, depth, *plane = self.shape
        if step == 1 or depth == 1:
            return self
        widths = tuple((0, step - 1) if axis == 2 else (0, 0) for axis in range(6))
        grown = self.node.call("nn.pad", self.node.expand_dims(self.data, 2), pad_width=widths)
        return Planes(self.node, self.node.reshape(grown, (batch, depth * step, *plane)))._every(0, depth * step - 1, 1)

    def stacked(self, begins: Sequence[int], step: int, count: int, groups: int) -> Planes:
        """`count` planes whose channels are those of the planes at each of `begins` and every `step` behind it; those
        of one group of channels stay together."""
        batch, _depth, channels, *plane = self.shape
        parts = [
            self.node.reshape(
                self._every(begin, begin + step * (count - 1), step).data,
                (batch * count * groups, channels // groups, *plane),
            )
            for begin in begins
        ]
        joined = parts[0] if len(parts) == 1 else self.node.call_tuple("concatenate", parts, axis=1)
        return Planes(self.node, self.node.reshape(joined, (batch, count, channels * len(parts), *plane)))

    def _every(self, first: int, last: int, step: int) -> Planes:
        if (first, last, step) == (0, self.shape[1] - 1, 1):
            return self
        bounds = {"begin": (first,), "end": (last + 1,), "strides": (step,), "axes": (1,)}
        return Planes(self.node, self.node.call("strided_slice", self.data, **bounds))

    def restored(self) -> Expr:
        """The data as (batch, channels, depth, height, width)."""
        return self.node.transpose(self.data, (0, 2, 1, 3, 4))


def convolved(node: Node, window: Window, groups: int, finish: Callable[[Expr], Expr]) -> Expr:
    """The convolution of input 0 with input 1, of (out, in / groups, depth, height, width); `finish` is done to it as
    long as it is a batch of planes."""
    planes, weight = Planes.of(node, node.get(0)), node.get(1)
    outputs, part, size, *kernel = weight.tensor_type.static_shape
    depth, (before, after) = planes.shape[1], window.along(0).pads
    count = (depth + before + after - window.reach[0] - 1) // window.strides[0] + 1
    if count < 1 or part * groups != planes.shape[2]:
        raise node.fail(f"data of shape {node.shape(0)} does not fit the weight of shape {node.shape(1)}")
    begins = [at * window.dilations[0] for at in range(size)]
    stacked = planes.padded(before, after).stacked(begins, window.strides[0], count, groups)
    flat = node.reshape(node.transpose(weight, (0, 2, 1, 3, 4)), (outputs, size * part, *kernel))
    over = window.along(*OVER_TWO)

    def convolve(data: Expr) -> Expr:
        geometry = {"strides": over.strides, "padding": over.pads, "dilation": over.dilations}
        return finish(node.call("nn.conv2d", data, flat, groups=groups, **geometry))

    return stacked.mapped(convolve).restored()


def transposed(node: Node, window: Window, extra: tuple[int, ...], groups: int, finish: Callable[[Expr], Expr]) -> Expr:
    """The same of the transposed convolution with input 1, of (in, out / groups, depth, height, width), whose output
    has `extra` elements at the end of each axis."""
    planes, weight = Planes.of(node, node.get(0)), node.get(1)
    inputs, outputs, size, *kernel = weight.tensor_type.static_shape
    before, after = window.along(0).pads
    (step, *_), (dilation, *_), (reach, *_) = window.strides, window.dilations, window.reach
    count = (planes.shape[1] - 1) * step + extra[0] + reach + 1 - before - after
    if count < 1 or inputs != planes.shape[2] or inputs % groups:
        raise node.fail(f"data of shape {node.shape(0)} does not fit the weight of shape {node.shape(1)}")
    begins = [before + reach - at * dilation for at in range(size)]
    stacked = planes.spread(step).padded(reach, reach + extra[0]).stacked(begins, 1, count, groups)
    grouped = node.reshape(weight, (groups, inputs // groups, outputs, size, *kernel))
    flat = node.reshape(node.transpose(grouped, (0, 3, 1, 2, 4, 5)), (inputs * size, outputs, *kernel))
    over = window.along(*OVER_TWO)

    def convolve(data: Expr) -> Expr:
        geometry = {"strides": over.strides, "padding": over.pads, "dilation": over.dilations}
        more = {"output_padding": extra[1:], "groups": groups}
        return finish(node.call("nn.conv2d_transpose", data, flat, **geometry, **more))

    return stacked.mapped(convolve).restored()


def pooled(node: Node, data: Expr, window: Window, pool: Callable[[Expr, Window], Expr]) -> Expr:
    """A pool over three axes, by one over planes and one over their elements."""
    first, over = window.along(0), window.along(*OVER_TWO)
    by_rows = Window(
        (*first.kernel, 1), (*first.strides, 1), (*first.dilations, 1), (first.pads[0], 0, first.pads[1], 0)
    )
    planes = Planes.of(node, data).mapped(lambda batch: pool(batch, over))
    return planes.along_depth(lambda rows: pool(rows, by_rows)).restored()
