"""Python's operators over expressions."""

import pytest

from relaybuild.ir.expr import Call, Constant, Function, GlobalVar, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.op import get_op
from relaybuild.ir.structural import structural_equal

x = var("x", (3,), "float16")


@pytest.mark.parametrize(
    ("built", "name"),
    [
        (x + 1, "add"),
        (1 - x, "subtract"),
        (x * x, "multiply"),
        (2 / x, "divide"),
        (-x, "negative"),
        (x < 1, "less"),
        (x <= 1, "less_equal"),
        (x > 1, "greater"),
        (x >= 1, "greater_equal"),
        (x.equal(1), "equal"),
        (x.not_equal(1), "not_equal"),
    ],
)
def test_each_is_a_call(built: Call, name: str) -> None:
    assert built.op_name == name
    for arg in built.args:
        assert arg.tensor_type.dtype == "float16"


def test_equality_stays_identity() -> None:
    assert (x == x) is True
    assert (x == var("x", (3,), "float16")) is False


def test_values() -> None:
    assert interpret((const(7) - 2) * 3) == 15
    assert interpret((const(2.5)).astype("int32")) == 2


def test_calls() -> None:
    f = Function([x], x)
    assert f(x).checked_type == x.checked_type
    assert GlobalVar("g")(x, 1).children()[2].tensor_type.dtype == "int32"
    called = get_op("clip")(x, a_min=0.0, a_max=1.0)
    assert called.op_name == "clip"
    assert structural_equal(get_op("log")(x), get_op("log")(x))


def test_fields() -> None:
    pair = Tuple([x, const(1)])
    second = pair[1]
    assert isinstance(second, TupleGetItem)
    assert second.tensor_type.dtype == "int32"
    assert pair[-1].index == 1
    a, b = pair
    assert (a.index, b.index) == (0, 1)
    with pytest.raises(TypeError, match="a Var that is not known to be a tuple"):
        list(Var("p"))
    assert isinstance(Var("p")[2], TupleGetItem)
    with pytest.raises(TypeError, match="a Constant that is not known to be a tuple"):
        const(1)[-1]
    assert isinstance(const(1), Constant)
