"""Expressions as they are built from Python, and as they are shown."""

from collections.abc import Callable

import numpy as np
import pytest

from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Function, Tuple, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op, get_op
from relaybuild.ir.types import TensorType, TupleType


def test_variables_from_types_shapes_and_names_of_scalars() -> None:
    assert var("x", "int8").checked_type == TensorType((), "int8")
    assert var("x", (2, 3), "int8").checked_type == TensorType((2, 3), "int8")
    assert var("x", shape=(2,), dtype=np.float16).checked_type == TensorType((2,), "float16")  # type: ignore[arg-type]
    assert var("x", TupleType(())).checked_type == TupleType(())
    assert not var("x").has_type
    with pytest.raises(UserError, match="unknown element type 'int7'"):
        var("x", "int7")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1, "int32"),
        (2**31 - 1, "int32"),
        (2**31, "int64"),
        (-(2**31) - 1, "int64"),
        ([1, 2**40], "int64"),
        (1.5, "float32"),
        (True, "bool"),
        ([], "float32"),
        (np.float64(1), "float64"),
        (np.arange(3, dtype="uint8"), "uint8"),
    ],
)
def test_constants_of_pythons_values(value: object, dtype: str) -> None:
    made = const(value)
    assert made.dtype == dtype
    assert np.array_equal(made.data, np.asarray(value))


@pytest.mark.parametrize("value", ["a", None, 1j, 2**70, [[1], [1, 2]], object()])
def test_what_is_no_tensor_of_numbers_is_no_constant(value: object) -> None:
    with pytest.raises(UserError, match="constant of"):
        const(value)


def test_a_constant_that_its_dtype_does_not_hold() -> None:
    with pytest.raises(UserError, match="no constant of int8 can be made of 300"):
        const(300, "int8")
    with pytest.raises(UserError, match="unknown element type 'int7'"):
        const(3, "int7")


def test_expressions_are_shown_as_text() -> None:
    x = var("x", (3,))
    shared = call_op("log", [x])
    assert str(x) == "%x"
    assert str(const(3)) == "3"
    assert str(Tuple([shared, shared])) == "%0 = log(%x);\n(%0, %0)"
    assert str(Call(Var("f"), [x])) == "%f(%x)"
    assert str(Function([x], shared)) == "fn (%x: Tensor[(3,), float32]) {\n  log(%x)\n}"
    assert str(call_op("add", [x, const(np.zeros(3, "float32"))])) == "add(%x, meta[relay.Constant][0])"


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda x: Tuple([x, 1]), "found 1 among the fields of a tuple, expected an expression"),
        (lambda x: Call(get_op("add"), [x, 1]), "found 1 among the arguments of a call, expected an expression"),
        (lambda x: Call("add", [x, x]), "'add' is called, expected an operator"),
        (lambda x: Function(["x"], x), "found 'x' among the parameters of a function"),
        (lambda x: IRModule({1: Function([x], x)}), "named by 1, expected a string or a GlobalVar"),
    ],
)
def test_what_is_no_expression_is_named(build: Callable[[Var], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(var("x", (3,)))


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        ({"axis": "a"}, "'nn.softmax' got axis='a', expected int"),
        ({"axis": (1, 2)}, r"'nn.softmax' got axis=\(1, 2\), expected int"),
        ({"axis": 1.5}, "'nn.softmax' got axis=1.5, expected int"),
    ],
)
def test_attributes_of_another_kind(attrs: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        get_op("nn.softmax").make_attrs(attrs)


def test_numpys_numbers_are_attributes() -> None:
    assert get_op("nn.softmax").make_attrs({"axis": np.int64(0)}) == get_op("nn.softmax").make_attrs({"axis": 0})
