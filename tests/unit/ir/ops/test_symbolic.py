"""Symbolic extents pass through the type relations that do not need their numbers."""

from __future__ import annotations

import pytest

from relaybuild.ir.op import TypeMismatch, get_op
from relaybuild.ir.ops._shapes import broadcast_shapes, unify_extents
from relaybuild.ir.types import ANY, Dim, Extent, TensorType, TupleType, Type

N, M = Dim("n"), Dim("m")


def t(*shape: Extent, dtype: str = "float32") -> TensorType:
    return TensorType(shape, dtype)


@pytest.mark.parametrize(
    ("a", "b", "wanted"),
    [
        (3, 3, 3),
        (N, N, N),
        (ANY, 3, 3),
        (3, ANY, 3),
        (ANY, N, N),
        (ANY, ANY, ANY),
        (3, 4, None),
        (N, M, None),
        (N, 3, None),
    ],
)
def test_unify_extents(a: Extent, b: Extent, wanted: Extent | None) -> None:
    assert unify_extents(a, b) == wanted


def test_broadcast_of_symbolic_shapes() -> None:
    assert broadcast_shapes([(N, 1), (M,)]) == (N, M)
    assert broadcast_shapes([(1, 3), (N, ANY)]) == (N, 3)
    assert broadcast_shapes([(), (N,)]) == (N,)
    with pytest.raises(TypeMismatch, match="found n and m"):
        broadcast_shapes([(N,), (M,)])


@pytest.mark.parametrize(
    ("name", "types", "attrs", "wanted"),
    [
        ("add", [t(N, 3), t(3)], {}, t(N, 3)),
        ("nn.relu", [t(N, ANY)], {}, t(N, ANY)),
        ("nn.conv2d", [t(N, 3, 8, 8), t(4, 3, 3, 3)], {"padding": 1}, t(N, 4, 8, 8)),
        ("nn.max_pool2d", [t(N, 3, 8, 8)], {"pool_size": 2, "strides": 2}, t(N, 3, 4, 4)),
        ("nn.global_avg_pool2d", [t(N, 3, M, ANY)], {}, t(N, 3, 1, 1)),
        ("nn.dense", [t(N, M, 4), t(5, 4)], {}, t(N, M, 5)),
        ("nn.matmul", [t(N, M, 4), t(4, M)], {}, t(N, M, M)),
        ("nn.softmax", [t(N, 3)], {}, t(N, 3)),
        ("sum", [t(N, M, 3)], {"axis": 1}, t(N, 3)),
        ("reshape", [t(N, 3, 4)], {"newshape": (0, -1)}, t(N, 12)),
        ("reshape", [t(N, 3, 4)], {"newshape": (-1, 12)}, t(N, 12)),
        ("reshape", [t(N, M, 4)], {"newshape": (0, 0, 2, 2)}, t(N, M, 2, 2)),
        ("nn.batch_flatten", [t(N, 3, 4)], {}, t(N, 12)),
        ("transpose", [t(N, 3, M)], {"axes": (2, 0, 1)}, t(M, N, 3)),
        ("expand_dims", [t(N)], {"axis": 1}, t(N, 1)),
        ("squeeze", [t(N, 1)], {}, t(N)),
        ("concatenate", [TupleType((t(N, 3), t(N, 4)))], {"axis": 1}, t(N, 7)),
        ("strided_slice", [t(N, 7)], {"begin": (1,), "end": (5,), "axes": (1,)}, t(N, 4)),
        ("take", [t(9, 3), t(N, M, dtype="int64")], {"axis": 0}, t(N, M, 3)),
        ("nn.pad", [t(N, 4)], {"pad_width": ((0, 0), (1, 1))}, t(N, 6)),
        ("shape_of", [t(N, 4)], {}, t(2, dtype="int64")),
        ("broadcast_to", [t(1, 3)], {"shape": (2, 3)}, t(2, 3)),
    ],
)
def test_symbolic_extents_pass_through(name: str, types: list[Type], attrs: dict[str, object], wanted: Type) -> None:
    op = get_op(name)
    assert op.check(types, op.make_attrs(attrs), None) == wanted
