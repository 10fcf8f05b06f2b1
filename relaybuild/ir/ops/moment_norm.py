"""Normalisation by the data's own mean and variance: `nn.layer_norm`, `nn.instance_norm`, `nn.group_norm`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._shapes import (
    FLOAT,
    Array,
    along_axis,
    expect_dtype,
    expect_extent,
    expect_positive,
    expect_rank,
    expect_same_dtype,
    expect_tensors,
    normalize_axis,
    number,
    wide,
)
from relaybuild.ir.types import TensorType, Type

ARGUMENTS = ("data", "gamma", "beta")


@dataclass(frozen=True)
class InstanceNormAttrs(Attrs):
    """`axis`: of the channels; `center` adds beta, `scale` multiplies by gamma."""

    axis: int = 1
    epsilon: float = 1e-5
    center: bool = True
    scale: bool = True


@dataclass(frozen=True)
class LayerNormAttrs(InstanceNormAttrs):
    """`axis`: along which the moments are taken, and gamma and beta run."""

    axis: int = -1


@dataclass(frozen=True)
class GroupNormAttrs(InstanceNormAttrs):
    """`num_groups`: into how many groups of equal size the channels fall."""

    num_groups: int = 1


def infer_type(types: Sequence[Type], attrs: InstanceNormAttrs) -> Type:
    """The type of the data; gamma and beta are vectors of the axis' extent."""
    _expect_vectors(types, attrs.axis)
    return types[0]


def infer_instance_type(types: Sequence[Type], attrs: InstanceNormAttrs) -> Type:
    """The type of the data, whose first axis is the batch; gamma and beta are vectors of the channels' extent."""
    _expect_channels(_expect_vectors(types, attrs.axis), attrs.axis)
    return types[0]


def infer_group_type(types: Sequence[Type], attrs: GroupNormAttrs) -> Type:
    """The type of the data, whose channels divide into the groups."""
    data = _expect_vectors(types, attrs.axis)
    _expect_channels(data, attrs.axis)
    expect_positive("num_groups", (attrs.num_groups,))
    channels = number(data.shape[attrs.axis], "the number of channels")
    if channels % attrs.num_groups:
        raise TypeMismatch(f"expected channels a multiple of num_groups {attrs.num_groups}, found {channels}")
    return types[0]


def _expect_vectors(types: Sequence[Type], axis: int) -> TensorType:
    data, *vectors = expect_tensors(types)
    expect_dtype(data, FLOAT, "data")
    expect_same_dtype((data, *vectors))
    channels = data.shape[normalize_axis(axis, data.rank)]
    for name, vector in zip(ARGUMENTS[1:], vectors):
        expect_rank(vector, 1, name)
        expect_extent(vector.shape[0], channels, f"the extent of {name}")
    return data


def _expect_channels(data: TensorType, axis: int) -> None:
    if axis % data.rank == 0:
        raise TypeMismatch("expected an axis of channels behind the batch, found axis 0")


def evaluate_layer(values: Sequence[Array], attrs: LayerNormAttrs) -> Array:
    """Moments along the axis."""
    return _normalized(values, attrs, (attrs.axis % values[0].ndim,))


def evaluate_instance(values: Sequence[Array], attrs: InstanceNormAttrs) -> Array:
    """Moments of each channel of each image."""
    data = values[0]
    kept = (0, attrs.axis % data.ndim)
    return _normalized(values, attrs, tuple(axis for axis in range(data.ndim) if axis not in kept))


def evaluate_group(values: Sequence[Array], attrs: GroupNormAttrs) -> Array:
    """Moments of each group of channels of each image."""
    data = values[0]
    axis = attrs.axis % data.ndim
    shape = data.shape
    grouped = data.reshape(*shape[:axis], attrs.num_groups, -1, *shape[axis + 1 :]) if data.size else data
    axes = tuple(position for position in range(1, grouped.ndim) if position != axis)
    normal = _standardized(grouped, axes, attrs.epsilon).reshape(shape)
    return _affine(normal, values, attrs)


def _normalized(values: Sequence[Array], attrs: InstanceNormAttrs, axes: tuple[int, ...]) -> Array:
    return _affine(_standardized(values[0], axes, attrs.epsilon), values, attrs)


def _standardized(data: Array, axes: tuple[int, ...], epsilon: float) -> Array:
    data = data.astype(wide(data.dtype), copy=False)
    centered = data - data.mean(axes, keepdims=True)
    return np.asarray(centered / np.sqrt((centered * centered).mean(axes, keepdims=True) + epsilon))


def _affine(normal: Array, values: Sequence[Array], attrs: InstanceNormAttrs) -> Array:
    data, gamma, beta = values
    axis = attrs.axis % data.ndim
    if attrs.scale:
        normal = normal * along_axis(gamma, axis, data.ndim)
    if attrs.center:
        normal = normal + along_axis(beta, axis, data.ndim)
    return normal.astype(data.dtype, copy=False)


OPS = (
    Op("nn.layer_norm", 3, infer_type, evaluate_layer, OpKind.REDUCE, LayerNormAttrs, arg_names=ARGUMENTS),
    Op(
        "nn.instance_norm",
        3,
        infer_instance_type,
        evaluate_instance,
        OpKind.REDUCE,
        InstanceNormAttrs,
        arg_names=ARGUMENTS,
    ),
    Op("nn.group_norm", 3, infer_group_type, evaluate_group, OpKind.REDUCE, GroupNormAttrs, arg_names=ARGUMENTS),
)
