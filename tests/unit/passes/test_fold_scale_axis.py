"""Scales before and behind convolutions and products: where they move, and where they must stay."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.ir.expr import Call, Expr, Function, Tuple, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.structural import structural_digest
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.fold_scale_axis import BackwardFoldScaleAxis, FoldScaleAxis, ForwardFoldScaleAxis
from relaybuild.passes.infra import Pass, PassContext

RANDOM = np.random.default_rng(0)


def weight(*shape: int, negative: bool = False) -> Expr:
    values = RANDOM.random(shape) + 0.5
    return const((-values if negative else values).astype("float32"))


def module(result: Expr, *params: Expr) -> IRModule:
    return IRModule({"main": Function(list(params), result)})  # type: ignore[arg-type]


def data_multiplications(mod: IRModule) -> int:
    """How many multiplications depend on data."""
    depends: set[int] = {id(param) for param in mod["main"].params}
    count = 0
    for node in post_order(mod["main"].body):
        if any(id(child) in depends for child in node.children()):
            depends.add(id(node))
            count += isinstance(node, Call) and node.op_name == "multiply"
    return count


def folded(each: Pass, mod: IRModule) -> int:
    """Multiplications of data that are left; values must have stayed."""
    after = each(mod)
    verify_module(after, "typed")
    args = [RANDOM.normal(size=param.tensor_type.static_shape).astype("float32") for param in mod["main"].params]
    wanted, found = interpret(mod, *args), interpret(after, *args)
    pairs = zip(wanted, found) if isinstance(wanted, tuple) else [(wanted, found)]
    for a, b in pairs:
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-4)
    return data_multiplications(after)


X = (1, 4, 6, 6)


def test_forward_through_relu_and_bias() -> None:
    """FS01: the scale moves into the weight, the bias is divided by it."""
    x = var("x", X)
    y = relay.add(relay.nn.relu(relay.multiply(x, weight(4, 1, 1))), weight(4, 1, 1))
    assert folded(ForwardFoldScaleAxis(), module(relay.nn.conv2d(y, weight(3, 4, 3, 3)), x)) == 0


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_forward_into_two_depthwise_convolutions(layout: str) -> None:
    """FS02: both weights are scaled."""
    x = var("x", X if layout == "NCHW" else (1, 6, 6, 4))
    y = relay.nn.relu(relay.multiply(x, weight(4, 1, 1) if layout == "NCHW" else weight(4)))
    attrs = {"groups": 4, "data_layout": layout, "kernel_layout": "OIHW" if layout == "NCHW" else "HWOI"}
    shape = (4, 1, 3, 3) if layout == "NCHW" else (3, 3, 4, 1)
    both = [relay.nn.conv2d(y, weight(*shape), **attrs) for _ in range(2)]
    assert folded(ForwardFoldScaleAxis(), module(relay.add(*both), x)) == 0


def test_forward_stays_where_another_use_needs_the_scaled_value() -> None:
    """FS03: the scaled value is also added to the result."""
    x = var("x", X)
    y = relay.nn.leaky_relu(relay.multiply(x, weight(4, 1, 1)), alpha=0.1)
    conv = relay.nn.conv2d(y, weight(4, 4, 1, 1))
    assert folded(ForwardFoldScaleAxis(), module(relay.add(conv, y), x)) == 1


@pytest.mark.parametrize("kind", ["negative", "parameter"])
def test_forward_does_not_pass_relu_unless_positive(kind: str) -> None:
    """FS04: a negative scale, and one that is not known."""
    x, s = var("x", X), var("s", (4, 1, 1))
    scale = weight(4, 1, 1, negative=True) if kind == "negative" else s
    conv = relay.nn.conv2d(relay.nn.relu(relay.multiply(x, scale)), weight(4, 4, 1, 1))
    assert folded(ForwardFoldScaleAxis(), module(conv, x, s)) == 1


def test_forward_passes_lets() -> None:
    """FS05: a let in the way is seen through, where the variable has no other use."""
    x, a = var("x", X), var("a", X)
    body = relay.nn.conv2d(relay.nn.relu(a), weight(4, 4, 1, 1))
    assert folded(ForwardFoldScaleAxis(), module(relay.Let(a, relay.multiply(x, weight(4, 1, 1)), body), x)) == 0
    x, a = var("x", X), var("a", X)
    both = Tuple([relay.nn.conv2d(a, weight(4, 4, 1, 1)), a])
    assert folded(ForwardFoldScaleAxis(), module(relay.Let(a, relay.multiply(x, weight(4, 1, 1)), both), x)) == 1


def test_forward_negative_scale_without_relu() -> None:
    """FS06: folds."""
    x = var("x", X)
    conv = relay.nn.conv2d(relay.multiply(x, weight(4, 1, 1, negative=True)), weight(4, 4, 1, 1))
    assert folded(ForwardFoldScaleAxis(), module(conv, x)) == 0


def test_forward_into_dense() -> None:
    """FS07: the scale lies along the input units."""
    x = var("x", (3, 4))
    assert folded(ForwardFoldScaleAxis(), module(relay.nn.dense(relay.multiply(x, weight(4)), weight(5, 4)), x)) == 0


def test_backward_through_bias_and_relu() -> None:
    """FS08: weight and bias are scaled."""
    x = var("x", X)
    y = relay.nn.relu(relay.add(relay.nn.conv2d(x, weight(3, 4, 3, 3)), weight(3, 1, 1)))
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(y, weight(3, 1, 1)), x)) == 0


def test_backward_into_two_convolutions_that_are_added() -> None:
    """FS09: both weights are scaled."""
    x = var("x", X)
    both = [relay.nn.relu(relay.nn.conv2d(x, weight(3, 4, 3, 3))) for _ in range(2)]
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(relay.add(*both), weight(3, 1, 1)), x)) == 0


def test_constant_scales_and_weights_become_one_convolution() -> None:
    """FS10: after FoldConstant nothing else is left."""
    x = var("x", X)
    mod = module(relay.multiply(relay.nn.conv2d(x, weight(3, 4, 3, 3)), weight(3, 1, 1)), x)
    with PassContext(opt_level=3):
        after = FoldConstant()(FoldScaleAxis()(mod))
    assert [node.op_name for node in post_order(after["main"].body) if isinstance(node, Call)] == ["nn.conv2d"]


def test_every_weight_is_scaled_once() -> None:
    """FS11: a scaled convolution read by two that are scaled as well."""
    x = var("x", X)
    first = relay.multiply(relay.nn.conv2d(x, weight(4, 4, 1, 1)), weight(4, 1, 1))
    both = [relay.multiply(relay.nn.conv2d(first, weight(4, 4, 1, 1)), weight(4, 1, 1)) for _ in range(2)]
    assert folded(BackwardFoldScaleAxis(), module(relay.add(*both), x)) == 0


def test_backward_stays_where_axes_differ_or_the_value_is_used() -> None:
    """FS12: a scale along another axis than the channels; a convolution that is also an output."""
    x = var("x", X)
    conv = relay.nn.conv2d(x, weight(6, 4, 1, 1))
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(conv, weight(6)), x)) == 1
    assert folded(BackwardFoldScaleAxis(), module(Tuple([relay.multiply(conv, weight(6, 1, 1)), conv]), x)) == 1
    added = relay.multiply(relay.add(conv, conv), weight(6, 1, 1))
    assert folded(BackwardFoldScaleAxis(), module(added, x)) == 1


def test_backward_does_not_pass_relu_unless_positive() -> None:
    """FS13: a negative scale; one that may not be looked at."""
    x = var("x", X)
    relu = relay.nn.relu(relay.nn.conv2d(x, weight(3, 4, 1, 1)))
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(relu, weight(3, 1, 1, negative=True)), x)) == 1
    mod = module(relay.multiply(relu, weight(3, 1, 1)), x)
    assert folded(BackwardFoldScaleAxis(read_weights=False), mod) == 1
    assert folded(BackwardFoldScaleAxis(read_weights=True), mod) == 0


def test_backward_negative_scale_without_relu() -> None:
    """FS14: folds."""
    x = var("x", X)
    conv = relay.nn.conv2d(x, weight(3, 4, 1, 1))
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(conv, weight(3, 1, 1, negative=True)), x)) == 0


def test_backward_into_dense() -> None:
    """FS15: through bias and relu."""
    x = var("x", (3, 4))
    y = relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, weight(5, 4)), weight(5), axis=-1))
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(y, weight(5)), x)) == 0


def test_backward_through_bias_add_and_reshape() -> None:
    """FS16: the axis is followed through a reshape."""
    x = var("x", X)
    y = relay.nn.bias_add(relay.nn.conv2d(x, weight(3, 4, 3, 3)), weight(3))
    flat = relay.reshape(y, newshape=(1, 3, 16))
    assert folded(BackwardFoldScaleAxis(), module(relay.multiply(flat, weight(3, 1)), x)) == 0


def test_no_weight_is_looked_at_where_that_is_not_allowed() -> None:
    """Programs that differ in weights alone stay equal in structure."""

    def program(negative: bool) -> IRModule:
        x = var("x", X)
        relu = relay.nn.relu(relay.nn.conv2d(x, weight(3, 4, 1, 1)))
        return module(relay.multiply(relu, weight(3, 1, 1, negative=negative)), x)

    one, two = (FoldScaleAxis(read_weights=False)(program(negative)) for negative in (False, True))
    assert structural_digest(one) == structural_digest(two)


def test_nothing_is_divided_by_what_may_be_zero() -> None:
    """A bias in front of a product is divided by constants that are not near zero, of either sign."""
    x = var("x", X)
    for scale, left in (
        (weight(4, 1, 1, negative=True), 0),
        (relay.exp(weight(4, 1, 1)), 1),
        (const(np.zeros((4, 1, 1), "float32")), 1),
    ):
        shifted = relay.add(relay.multiply(x, scale), weight(4, 1, 1))
        mod = module(relay.nn.conv2d(shifted, weight(4, 4, 1, 1)), x)
        assert folded(ForwardFoldScaleAxis(), mod) == left


def test_integers_are_not_divided() -> None:
    """A bias of integers cannot be divided by the scale."""
    x = var("x", (2, 4), "int32")
    scaled = relay.add(relay.multiply(x, const(2, "int32")), const([1, 2, 3, 4], "int32"))
    mod = module(relay.nn.dense(scaled, const(np.ones((3, 4), "int32"))), x)
    assert ForwardFoldScaleAxis()(mod) is mod


def test_long_chains_stay_linear() -> None:
    """5,000 scales, each behind 5,000 additions in all; a search is given up after a bounded number of nodes."""
    x = var("x", (1, 4))
    y: Expr = relay.nn.dense(x, weight(4, 4))
    for _ in range(5_000):
        y = relay.add(relay.multiply(relay.tanh(y), weight(4)), weight(4))
    FoldScaleAxis()(module(y, x))
