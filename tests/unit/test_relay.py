"""The names Relay users know."""

import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.structural import structural_equal


def test_operators_take_attributes_by_place_and_by_name() -> None:
    x = relay.var("x", shape=(2, 3))
    assert relay.nn.softmax(x, 0).attrs.axis == 0
    assert relay.nn.softmax(x, axis=1).attrs.axis == 1
    assert relay.reshape(x, (3, 2)).checked_type == relay.TensorType((3, 2), "float32")
    assert relay.clip(x, 0.0, a_max=6.0).attrs.a_max == 6.0


def test_numbers_and_lists_are_expressions() -> None:
    x = relay.var("x", shape=(2, 3), dtype="float64")
    assert relay.add(x, 1).args[1].checked_type == relay.TensorType((), "float64")
    assert relay.concatenate([x, x], axis=0).checked_type == relay.TensorType((4, 3), "float64")
    assert structural_equal(relay.add(x, 1), x + 1)


def test_arguments_by_name() -> None:
    data, weight = relay.var("d", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    call = relay.nn.conv2d(data, weight=weight, padding=(1, 1))
    assert call.checked_type == relay.TensorType((1, 4, 8, 8), "float32")


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="no 'no_such'"):
        _ = relay.no_such
    with pytest.raises(AttributeError, match="no 'NoSuch'; its passes are"):
        _ = relay.transform.NoSuch
    with pytest.raises(UserError, match="no attribute 'axes'; did you mean 'axis'"):
        relay.nn.softmax(relay.var("x", shape=(2,)), axes=0)


def test_a_module_under_construction() -> None:
    mod = relay.Module()
    x = relay.var("x", shape=(2,))
    mod[relay.GlobalVar("f")] = relay.Function([x], x)
    mod.update({"a": relay.Function([x], relay.abs(x))})
    assert list(mod) == ["a", "f"]
    assert structural_equal(relay.fromtext(mod.astext()), mod)
