"""FoldConstant: what is computed now, what is left, and what a branch decided leaves."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.expr import Constant, Expr, Function, Let, Tuple, TupleGetItem, Var, const, var
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.visitor import post_order
from relaybuild.passes.fold_constant import FoldConstant
from relaybuild.passes.fold_scale_axis import FoldScaleAxis
from relaybuild.passes.infra import PassContext, Sequential
from relaybuild.passes.simplify_inference import SimplifyInference
from relaybuild.target import Target

WEIGHT = np.arange(6, dtype="float32").reshape(2, 3)


def folded(*body: Expr, params: tuple[Var, ...] = ()) -> Expr:
    return FoldConstant()(IRModule({"main": Function(params, *body)}))["main"].body


def value(expr: Expr) -> np.ndarray:
    assert isinstance(expr, Constant)
    return expr.data


def operators(mod: IRModule) -> list[str]:
    return [node.op_name for node in post_order(mod["main"]) if hasattr(node, "op_name")]


@pytest.mark.parametrize("axis", [0, 1])
def test_parts_that_are_joined(axis: int) -> None:
    """FC01, FC07: a concatenation of constants is a constant."""
    found = folded(call_op("concatenate", [Tuple([const(WEIGHT), const(WEIGHT + 1)])], axis=axis))
    np.testing.assert_array_equal(value(found), np.concatenate([WEIGHT, WEIGHT + 1], axis))


@pytest.mark.parametrize("target", [None, "c", "x86-64-v3"])
def test_arithmetic_under_any_target(target: str | None) -> None:
    """FC02: constants are folded, what depends on a parameter is not, whatever the current target is."""
    x = var("x", (2, 3))
    total = call_op("add", [call_op("multiply", [const(WEIGHT), const(2, "float32")]), const(WEIGHT)])
    body = call_op("add", [x, total])
    if target is None:
        found = folded(body, params=(x,))
    else:
        with Target.parse(target):
            found = folded(body, params=(x,))
    assert structural_equal(Function([x], found), Function([x], call_op("add", [x, const(WEIGHT * 3)])))


def test_a_constant_bound_by_a_let() -> None:
    """FC04: the uses of a let-bound constant are folded as well."""
    x, bound = var("x", (2, 3)), Var("t")
    mod = FoldConstant()(
        IRModule.from_expr(
            Function([x], Let(bound, const(WEIGHT), call_op("add", [call_op("add", [bound, bound]), x])))
        )
    )
    sums = [node for node in post_order(mod["main"]) if isinstance(node, Constant)]
    assert any(np.array_equal(each.data, WEIGHT * 2) for each in sums)
    assert operators(mod) == ["add"]


def test_a_field_of_a_tuple_of_constants() -> None:
    """FC06: a projection takes the field."""
    found = folded(TupleGetItem(Tuple([const(1.0), const(WEIGHT)]), 1))
    np.testing.assert_array_equal(value(found), WEIGHT)


@pytest.mark.parametrize(("condition", "kept"), [("True", "exp"), ("False", "log")])
def test_a_decided_branch(condition: str, kept: str) -> None:
    """FC08: a constant condition leaves the branch that it takes."""
    mod = parse(f"def @main(%x: float32) {{ if ({condition}) {{ exp(%x) }} else {{ log(%x) }} }}")
    assert operators(FoldConstant()(mod)) == [kept]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_shape_of_a_static_type(dtype: str) -> None:
    """FC09: shape_of becomes the shape in the wanted dtype."""
    found = folded(call_op("shape_of", [x := var("x", (2, 3))], dtype=dtype), params=(x,))
    np.testing.assert_array_equal(value(found), [2, 3])
    assert value(found).dtype == dtype


def test_a_normalised_convolution_of_constants_is_a_convolution_and_an_addition() -> None:
    """FC11: batch norm, scale and weights of constants leave nothing else."""
    random = np.random.default_rng(0)
    x = var("x", (1, 3, 5, 5))
    conv = call_op("nn.conv2d", [x, const(random.normal(size=(4, 3, 3, 3)).astype("float32"))])
    moments = [const(random.uniform(0.5, 1, 4).astype("float32")) for _ in range(4)]
    mod = IRModule({"main": Function([x], TupleGetItem(call_op("nn.batch_norm", [conv, *moments]), 0))})
    with PassContext(opt_level=3):
        found = Sequential([SimplifyInference(), FoldConstant(), FoldScaleAxis(), FoldConstant()])(mod)
    assert operators(found) == ["nn.conv2d", "add"]
    data = random.normal(size=(1, 3, 5, 5)).astype("float32")
    np.testing.assert_allclose(interpret(found, data), interpret(mod, data), rtol=1e-5, atol=1e-5)


def test_dropout_is_what_it_drops_nothing_of() -> None:
    """FC12: at inference a dropout is its argument, so that of a constant is folded."""
    np.testing.assert_array_equal(value(folded(call_op("nn.dropout", [const(WEIGHT)]))), WEIGHT)
