"""Fourier transforms of a length that is known, as products with a matrix; and mel filters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaybuild.frontend.onnx.node import Node
from relaybuild.frontend.onnx.registry import converter
from relaybuild.ir.expr import Expr

_MOST_ELEMENTS = 1 << 24
"""Of the matrix, which is a weight of the library."""


@converter("DFT", since=17)
def dft(node: Node) -> Expr:
    """(..., signal, ..., 1 or 2) along an axis to (..., frequencies, ..., 2); with `onesided`, an inverse is real."""
    rank = node.rank(0)
    if node.opset < 20:
        along = node.int_attr("axis", 1)
    else:
        along = -2 if node.find(2) is None else int(node.scalar(2, "axis"))
    axis = node.axis(along, rank)
    if rank < 2 or axis == rank - 1:
        raise node.fail("axis is the last one, which holds real and imaginary parts")
    order = (*(other for other in range(rank) if other not in (axis, rank - 1)), axis, rank - 1)
    data = node.transpose(node.get(0), order)
    is_half, is_inverse = node.flag("onesided"), node.flag("inverse")
    found = data.tensor_type.static_shape
    length = 2 * (found[-2] - 1) if is_half and is_inverse else found[-2]
    if node.find(1) is not None:
        length = int(node.scalar(1, "dft_length"))
    result = _transformed(node, data, length, is_half, is_inverse)
    return node.transpose(result, tuple(order.index(place) for place in range(rank)))


@converter("STFT", since=17)
def stft(node: Node) -> Expr:
    """(batch, signal, 1 or 2) to (batch, frames, frequencies, 2)."""
    if node.rank(0) != 3 or (node.find(2) is not None and node.rank(2) != 1):
        raise node.fail(f"the signal has rank {node.rank(0)}, expected 3, and a window rank 1")
    _, length, parts = node.shape(0)
    step, window = int(node.scalar(1, "frame_step")), node.find(2)
    if node.find(3) is not None:
        size = int(node.scalar(3, "frame_length"))
    elif window is not None:
        size = node.shape(2)[0]
    else:
        raise node.fail("neither 'window' nor 'frame_length' is given")
    if step < 1 or not 0 < size <= length:
        raise node.fail(f"frames of {size} every {step} do not fit a signal of {length}")
    places = np.arange(0, length - size + 1, step)[:, np.newaxis] + np.arange(size)
    frames = node.call("take", node.get(0), node.const(places, "int64"), axis=1)
    if window is not None:
        frames = node.call("multiply", frames, node.reshape(window, (size, 1)))
    return _transformed(node, frames, size, node.flag("onesided", True) and parts == 1, False)


@converter("MelWeightMatrix", since=17)
def mel_weight_matrix(node: Node) -> Expr:
    """Triangles over the bins of a spectrum, as the standard defines them."""
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    count, length, rate, low, high = (node.scalar(index, name) for index, name in enumerate(names))
    count, bins = int(count), int(length) // 2 + 1
    if count < 1 or length < 1 or rate <= 0 or min(low, high) < 0:
        raise node.fail(f"{count} filters of {length} samples from {low} to {high} Hz at a rate of {rate} Hz")
    ends = 2595 * np.log10(1 + np.array([low, high]) / 700)
    mels = np.arange(count + 2) * ((ends[1] - ends[0]) / (count + 2)) + ends[0]
    edges = ((int(length) + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    if not 0 <= edges[0] <= edges[-1] < bins:
        raise node.fail(f"filters from {low} to {high} Hz do not fit a spectrum of {bins} bins at a rate of {rate} Hz")
    matrix = np.zeros((bins, count))
    for column, (left, middle, right) in enumerate(zip(edges, edges[1:], edges[2:])):
        if middle == left:
            matrix[middle, column] = 1
        else:
            rising = np.arange(left, middle + 1)
            matrix[rising, column] = (rising - left) / (middle - left)
        falling = np.arange(middle, right)
        matrix[falling, column] = (right - falling) / max(right - middle, 1)
    return node.const(matrix, node.dtype_attr("output_datatype", "float32"))


def _transformed(node: Node, data: Expr, length: int, is_half: bool, is_inverse: bool) -> Expr:
    """The transform of (..., elements, parts), cut or filled up with zeros to `length`."""
    *rest, count, parts = data.tensor_type.static_shape
    used = min(count, length // 2 + 1 if is_half and is_inverse else length)
    if parts not in (1, 2) or length < 1 or (is_half and parts != (2 if is_inverse else 1)):
        raise node.fail(f"a transform of length {length} of data whose last two axes are {count} and {parts}")
    if 4 * length * length > _MOST_ELEMENTS:
        raise node.unsupported(f"a Fourier transform of length {length}")
    if used < count:
        rank = len(rest) + 2
        data = node.call("strided_slice", data, begin=(0,), end=(used,), strides=(1,), axes=(rank - 2,))
    matrix = _matrix(length, used, parts, is_half, is_inverse)
    rows = node.reshape(data, (*rest, used * parts))
    product = node.call("nn.matmul", rows, node.const(matrix, data.tensor_type.dtype))
    results = 1 if is_half and is_inverse else 2
    return node.reshape(product, (*rest, matrix.shape[1] // results, results))


def _matrix(length: int, used: int, parts: int, is_half: bool, is_inverse: bool) -> NDArray[Any]:
    """(used * parts, frequencies * results): what both parts of each element add to those of the result."""
    frequencies = length // 2 + 1 if is_half and not is_inverse else length
    turns = np.outer(np.arange(used), np.arange(frequencies)) % length / length
    factors = np.exp((2j if is_inverse else -2j) * np.pi * turns) / (length if is_inverse else 1)
    if is_half and is_inverse:
        # what is left out is the conjugate of what stands on the other side
        twice = np.where((np.arange(used) == 0) | (2 * np.arange(used) == length), 1, 2)
        factors = factors * twice[:, np.newaxis]
    by_part = np.stack([factors, 1j * factors], axis=1)[:, :parts].reshape(used * parts, frequencies)
    results = [by_part.real] if is_half and is_inverse else [by_part.real, by_part.imag]
    return np.stack(results, axis=2).reshape(used * parts, frequencies * len(results))
