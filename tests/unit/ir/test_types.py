"""Types as values."""

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_digest, structural_equal
from relaybuild.ir.types import (
    ANY,
    Dim,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
    is_complete,
    scalar_type,
    type_children,
    type_with_children,
)

INT = scalar_type("int32")
A = TypeVar("A")
LIST = GlobalTypeVar("List")
COMPOUND = [TupleType((INT, A)), FuncType((INT, A), A, (A,)), TypeCall(LIST, (INT,)), RefType(INT)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TensorType((2, ANY, Dim("n"))), "Tensor[(2, ?, n), float32]"),
        (TupleType((INT,)), "(int32,)"),
        (FuncType((A,), RefType(A), (A,)), "fn[A](A) -> Ref[A]"),
        (TypeCall(LIST, (INT, A)), "List[int32, A]"),
        (TypeCall(LIST), "List"),
        (LIST, "List"),
        (TupleType((IncompleteType(), INT)), "(_, int32)"),
    ],
)
def test_text(kind: Type, text: str) -> None:
    assert str(kind) == text


def test_equality_is_by_content_but_for_holes() -> None:
    assert TypeCall(LIST, (INT,)) == TypeCall(GlobalTypeVar("List"), (INT,))
    assert RefType(INT) != RefType(A)
    hole = IncompleteType()
    assert RefType(hole) == RefType(hole)
    assert RefType(hole) != RefType(IncompleteType())


@pytest.mark.parametrize("kind", COMPOUND, ids=str)
def test_types_are_rebuilt_over_their_parts(kind: Type) -> None:
    assert type_with_children(kind, type_children(kind)) == kind
    hole = IncompleteType()
    holed = type_with_children(kind, [hole, *type_children(kind)[1:]])
    assert type_children(holed)[0] is hole
    assert is_complete(kind)
    assert not is_complete(holed)


def test_no_type_is_not_complete() -> None:
    assert not is_complete(None)
    assert is_complete(INT)


def test_numbers_of_a_static_tensor() -> None:
    assert TensorType((2, 3), "int16").num_elements == 6
    assert TensorType((2,), "bfloat16").itemsize == 2
    with pytest.raises(ValueError, match="symbolic"):
        _ = TensorType((ANY,)).num_elements


def _deep(leaf: Type, depth: int = 3000) -> Type:
    """A type of every kind, nested."""
    kind = leaf
    for _ in range(depth // 4):
        kind = FuncType((RefType(TupleType((kind,))),), TypeCall(GlobalTypeVar("List"), (kind,)))
    return kind


def test_deep_types_are_compared_hashed_and_shown() -> None:
    a, b = _deep(TensorType((3,))), _deep(TensorType((3,)))
    assert a == b
    assert hash(a) == hash(b)
    assert a != _deep(TensorType((4,)))
    nested: Type = TensorType(())
    for _ in range(3000):
        nested = TupleType((nested,))
    assert str(nested) == "(" * 3000 + "float32" + ",)" * 3000
    read = parse(f"def @f(%x: {nested}) {{ %x }}")["f"].params[0].checked_type
    assert structural_digest(nested) == structural_digest(read)
    assert not structural_equal(nested, TupleType((nested,)))


def test_sharing_is_no_part_of_a_type() -> None:
    inner = TupleType((TensorType((2,)),))
    shared, copied = TupleType((inner, inner)), TupleType((inner, TupleType((TensorType((2,)),))))
    assert shared == copied
    assert hash(shared) == hash(copied)


def test_tensor_types_take_what_numpy_has() -> None:
    made = TensorType((np.int64(2), "n", "?"), np.float16)  # type: ignore[arg-type]
    assert made == TensorType((2, Dim("n"), ANY), "float16")
    assert type(made.shape[0]) is int
    assert TensorType((), np.dtype("int8")).dtype == "int8"  # type: ignore[arg-type]


def test_tensor_types_of_what_is_no_type_are_rejected() -> None:
    with pytest.raises(UserError, match="unknown element type 'floaty', expected one of float16"):
        TensorType((1,), "floaty")
    with pytest.raises(UserError, match=r"found the extent 1\.5, expected a whole number"):
        TensorType((1.5,))  # type: ignore[arg-type]
