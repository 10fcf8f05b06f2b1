"""Types as values."""

import pytest

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
