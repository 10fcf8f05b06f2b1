"""`reshape` and `nn.batch_flatten`: the same elements in row-major order under another shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from relaybuild.dataclass import dataclass
from relaybuild.ir.op import Attrs, Op, OpKind, TypeMismatch
from relaybuild.ir.ops._indexing import reshape_index
from relaybuild.ir.ops._shapes import Array, as_ints, expect_tensor
from relaybuild.ir.scalar import Accessor, ComputeCall, Index, Scalar, ScalarAlgebra
from relaybuild.ir.types import Dim, Extent, TensorType, Type


@dataclass(frozen=True)
class ReshapeAttrs(Attrs):
    """`newshape`: 0 keeps the extent of that position, one -1 takes what is left."""

    newshape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "newshape", as_ints(self.newshape))


def infer_reshape_type(types: Sequence[Type], attrs: ReshapeAttrs) -> Type:
    """The resolved shape, of as many elements; a symbolic extent must be kept, or be all that -1 takes."""
    data = expect_tensor(types[0])
    return TensorType(resolve_shape(data.shape, attrs.newshape), data.dtype)


def resolve_shape(shape: Sequence[Extent], newshape: Sequence[int]) -> tuple[Extent, ...]:
    """The new shape with 0 and -1 replaced."""
    if any(extent < -1 for extent in newshape) or newshape.count(-1) > 1:
        raise TypeMismatch(f"expected extents, 0, and at most one -1 in 'newshape', found {tuple(newshape)}")
    result = [_kept_extent(shape, newshape, axis) if extent == 0 else extent for axis, extent in enumerate(newshape)]
    left = _dims(shape)
    for dim in _dims(result):
        left.remove(dim)
    count, known = _number(shape), _number([extent for extent in result if extent != -1])
    if -1 in newshape:
        result[newshape.index(-1)] = _remaining_extent(shape, newshape, left, count, known)
    elif left or count != known:
        raise TypeMismatch(f"expected as many elements as {_shown(shape)} has in 'newshape', found {tuple(newshape)}")
    return tuple(result)


def _kept_extent(shape: Sequence[Extent], newshape: Sequence[int], axis: int) -> Extent:
    if axis < len(shape):
        return shape[axis]
    raise TypeMismatch(f"expected an extent to keep at position {axis} of 'newshape', found only {len(shape)} axes")


def _remaining_extent(
    shape: Sequence[Extent], newshape: Sequence[int], left: list[Dim], count: int, known: int
) -> Extent:
    if len(left) == 1 and count == known:
        return left[0]
    if left or (count % known if known else count):
        raise TypeMismatch(f"expected a multiple of {known} elements for 'newshape' {tuple(newshape)}: {_shown(shape)}")
    return count // known if known else 0


def _dims(shape: Sequence[Extent]) -> list[Dim]:
    return [extent for extent in shape if isinstance(extent, Dim)]


def _number(shape: Sequence[Extent]) -> int:
    return prod(extent for extent in shape if isinstance(extent, int))


def _shown(shape: Sequence[Extent]) -> str:
    return f"({', '.join(map(str, shape))})"


def infer_flatten_type(types: Sequence[Type], attrs: Attrs) -> Type:
    """(N, everything else)."""
    data = expect_tensor(types[0])
    if data.rank < 1:
        raise TypeMismatch("expected data of rank 1 or more, found a scalar")
    dims = _dims(data.shape[1:])
    if dims and (len(dims) > 1 or _number(data.shape[1:]) != 1):
        raise TypeMismatch(f"expected numbers behind the batch, found the symbolic extent '{dims[0]}'")
    return TensorType((data.shape[0], dims[0] if dims else _number(data.shape[1:])), data.dtype)


def evaluate_reshape(values: Sequence[Array], attrs: ReshapeAttrs) -> Array:
    """The array reshaped."""
    shape = resolve_shape(values[0].shape, attrs.newshape)
    return values[0].reshape([extent for extent in shape if isinstance(extent, int)])


def evaluate_flatten(values: Sequence[Array], attrs: Attrs) -> Array:
    """The array as a matrix."""
    data = values[0]
    return data.reshape(data.shape[0], prod(data.shape[1:]))


def compute(s: ScalarAlgebra, args: Sequence[Accessor], index: Sequence[Index], call: ComputeCall) -> Scalar:
    """The element of the same row-major position."""
    return args[0](reshape_index(index, call.arg_types[0].shape, call.out_type.shape))


OPS = (
    Op("reshape", 1, infer_reshape_type, evaluate_reshape, OpKind.INJECTIVE, ReshapeAttrs, compute, ("data",)),
    Op(
        "nn.batch_flatten",
        1,
        infer_flatten_type,
        evaluate_flatten,
        OpKind.INJECTIVE,
        compute=compute,
        arg_names=("data",),
    ),
)
