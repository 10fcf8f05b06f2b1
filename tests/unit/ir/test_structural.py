"""What counts as the same program, and what its digest depends on."""

import numpy as np
import pytest

from relaybuild.ir.expr import Constant, Expr, Function, Let, Tuple, Var, const, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_digest, structural_equal, weight_slots
from relaybuild.ir.types import TensorType


def function(text: str) -> Function:
    return parse(f"def @main(%x: float32, %y: float32) {{ {text} }}")["main"]


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("%x", "%y", False),
        ("add(%x, %y)", "add(%y, %x)", False),
        ("let %a = %x; %a", "let %b = %x; %b", True),
        ("let %a = %x; %a", "let %b: float32 = %x; %b", False),
        ("fn (%a: int32) { %a }", "fn (%b: int32) { %b }", True),
        ("fn (%a: int32) { %a }", "fn (%b: int64) { %b }", False),
        ("fn (%a: int32) { 1 }", "fn (%a: int32) -> int32 { 1 }", False),
        ("fn (%a: int32, Inline=1) { 1 }", "fn (%a: int32, Inline=True) { 1 }", False),
        ("(1f, 1f)", "%0 = 1f; (%0, %0)", True),
        ("(log(%x), log(%x))", "%0 = log(%x); (%0, %0)", False),
        ("(%x, (%y,))", "((%x, %y),)", False),
        ("(%x, %y).0", "(%x, %y).1", False),
        ("0f", "-0f", False),
        ("nanf", "-nanf", True),
        ("1f", "1f64", False),
        ("clip(%x, a_min=0.0)", "clip(%x, a_max=0.0)", False),
        ("if (True) { %x } else { %y }", "if (True) { %y } else { %x }", False),
    ],
)
def test_equality_and_digest_agree(a: str, b: str, equal: bool) -> None:
    assert structural_equal(function(a), function(b)) is equal
    assert (structural_digest(function(a)) == structural_digest(function(b))) is equal


def weighted(data: np.ndarray) -> Function:
    x = var("x", data.shape, data.dtype.name)
    return Function([x], call_op("add", [x, const(data)]))


def test_a_retrained_model_keeps_its_digest() -> None:
    a, b = weighted(np.zeros(3, "float32")), weighted(np.ones(3, "float32"))
    assert structural_digest(a) == structural_digest(b)
    assert structural_digest(a, include_weights=True) != structural_digest(b, include_weights=True)
    assert not structural_equal(a, b)
    assert structural_digest(a) != structural_digest(weighted(np.zeros(4, "float32")))


def test_structure_counts() -> None:
    assert structural_digest(weighted(np.zeros(3, "int64"))) != structural_digest(weighted(np.ones(3, "int64")))


def test_weights_are_told_apart_by_identity() -> None:
    w, v = const(np.ones(2, "float32")), const(np.ones(2, "float32"))
    assert structural_digest(Tuple([w, w])) != structural_digest(Tuple([w, v]))
    assert weight_slots(Tuple([w, v, w])) == [w, v]


def test_weights_shared_between_functions_count() -> None:
    w, v = const(np.ones(2, "float32")), const(np.ones(2, "float32"))
    f, g, h = Function([], w), Function([], w), Function([], v)
    assert structural_digest(IRModule({"f": f, "g": g})) != structural_digest(IRModule({"f": f, "g": h}))


def test_names_of_functions_and_attributes_of_modules_count() -> None:
    f = Function([], const(1))
    digests = {
        structural_digest(mod)
        for mod in (
            IRModule({"f": f}),
            IRModule({"g": f}),
            IRModule({"f": f}, {"a": 1}),
            IRModule({"f": f}, {"a": "1"}),
        )
    }
    assert len(digests) == 4


def test_nan_in_weights_equals_nan() -> None:
    a, b = np.array([0, np.nan], "float32"), np.array([0, -np.nan], "float32")
    assert structural_equal(Constant(a), Constant(b))
    assert not structural_equal(Constant(a), Constant(np.array([-0.0, np.nan], "float32")))


def test_the_digest_is_stable_between_releases() -> None:
    text = "def @main(%x: Tensor[(3,), float32]) { let %y = log(%x); (clip(%y, a_max=1.0), %y, 2i64) }"
    assert structural_digest(parse(text)) == structural_digest(parse(text.replace("%y", "%other")))


def test_long_chains() -> None:
    x = var("x", (3,))
    y: Expr = x
    for _ in range(20_000):
        v = Var("v", TensorType((3,)))
        y = Let(v, call_op("add", [x, x]), y)
    assert len(structural_digest(y)) == 64
