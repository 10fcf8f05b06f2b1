"""FirstOrderGradient: types, values, and what is computed how often."""

from __future__ import annotations

import time

import numpy as np
import pytest

from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Function
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.first_order_gradient import FirstOrderGradient, gradient
from relaybuild.passes.infer_type import InferType

X = np.asarray([1.0, -2.0, 3.0], "float32")


def _gradient(text: str) -> IRModule:
    found = FirstOrderGradient()(parse(text))
    verify_module(found)
    return found


def _calls(mod: IRModule, name: str) -> int:
    return sum(isinstance(node, Call) and node.op_name == name for node in post_order(mod["main"]))


def _check_against_differences(mod: IRModule, *args: np.ndarray) -> None:
    """Float64 arguments: each gradient against central differences of the sum of all results."""
    value, grads = interpret(FirstOrderGradient()(mod), *args)
    plain = interpret(mod, *args)
    for found, wanted in zip(_leaves(value), _leaves(plain)):
        np.testing.assert_array_equal(found, wanted)
    for position, grad in enumerate(grads):
        for index in np.ndindex(args[position].shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = [np.array(arg) for arg in args]
                moved[position][index] += step
                sides.append(sum(float(np.sum(leaf)) for leaf in _leaves(interpret(mod, *moved))))
            assert grad[index] == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-5, abs=1e-6)


def _leaves(value: object) -> list[np.ndarray]:
    if isinstance(value, (tuple, list)):
        return [leaf for field in value for leaf in _leaves(field)]
    return [np.asarray(value)]


def test_identity_has_a_gradient_of_ones() -> None:
    """GR01, GR02: the type is fn(T) -> (T, (T,)), and the gradient one everywhere."""
    mod = _gradient("def @main(%x: Tensor[(3,), float32]) { %x }")
    kind = "Tensor[(3,), float32]"
    assert str(mod["main"].checked_type) == f"fn({kind}) -> ({kind}, ({kind},))"
    value, (grad,) = interpret(mod, X)
    np.testing.assert_array_equal(value, X)
    np.testing.assert_array_equal(grad, np.ones(3, "float32"))


def test_rectifier() -> None:
    """GR03: the type holds, and elements below zero get nothing."""
    mod = _gradient("def @main(%x: Tensor[(3,), float32]) { nn.relu(%x) }")
    _, (grad,) = interpret(mod, X)
    np.testing.assert_array_equal(grad, [1, 0, 1])


def test_value_used_twice() -> None:
    """GR04: x + x has gradient 2."""
    _, (grad,) = interpret(_gradient("def @main(%x: Tensor[(3,), float32]) { %x + %x }"), X)
    np.testing.assert_array_equal(grad, [2, 2, 2])


def test_lets() -> None:
    """GR06: let y = x + x; y + y has gradient 4."""
    mod = _gradient("def @main(%x: Tensor[(3,), float32]) { let %y = %x + %x; %y + %y }")
    value, (grad,) = interpret(mod, X)
    np.testing.assert_array_equal(value, 4 * X)
    np.testing.assert_array_equal(grad, [4, 4, 4])


def test_difference_of_a_value_and_itself() -> None:
    """GR07: x - x has gradient 0."""
    _, (grad,) = interpret(_gradient("def @main(%x: Tensor[(3,), float32]) { %x - %x }"), X)
    np.testing.assert_array_equal(grad, [0, 0, 0])


@pytest.mark.parametrize(("op", "sign"), [("add", 1), ("subtract", -1)])
def test_broadcast_arguments_get_sums(op: str, sign: int) -> None:
    """GR08, GR09: gradients are summed along the axes that were repeated."""
    text = f"def @main(%a: Tensor[(3, 4, 1), float32], %b: Tensor[(1, 5), float32]) {{ {op}(%a, %b) }}"
    a, b = np.ones((3, 4, 1), "float32"), np.ones((1, 5), "float32")
    _, (to_a, to_b) = interpret(_gradient(text), a, b)
    np.testing.assert_array_equal(to_a, np.full((3, 4, 1), 5, "float32"))
    np.testing.assert_array_equal(to_b, np.full((1, 5), sign * 12, "float32"))


def test_fields_of_a_tuple_parameter() -> None:
    """GR10, GR11, GR13: a tuple's gradient is a tuple."""
    field = "Tensor[(3,), float32]"
    mod = _gradient(f"def @main(%t: ({field}, {field}, {field})) {{ %t.0 + %t.1 - %t.2 }}")
    _, (grads,) = interpret(mod, (X, X, X))
    for grad, sign in zip(grads, (1, 1, -1)):
        np.testing.assert_array_equal(grad, np.full(3, sign, "float32"))


def test_unused_fields_and_parameters_get_zeros() -> None:
    text = "def @main(%t: (Tensor[(3,), float32], int64), %u: Tensor[(2,), float32]) { %t.0 }"
    _, ((to_field, to_int), to_unused) = interpret(_gradient(text), (X, np.int64(4)), np.ones(2, "float32"))
    np.testing.assert_array_equal(to_field, [1, 1, 1])
    assert to_int.dtype == np.int64
    assert to_int == 0
    np.testing.assert_array_equal(to_unused, [0, 0])


def test_second_order() -> None:
    """GR16: the gradient of the gradient of x * x is 2 (beside the 2x of its value)."""
    once = gradient(parse("def @main(%x: Tensor[(3,), float32]) { %x * %x }")["main"])
    mod = InferType()(IRModule({"main": once}))
    only_gradient = parse(
        "def @main(%x: Tensor[(3,), float32]) { @once(%x).1.0 }\n" + str(mod).replace("@main", "@once")
    )
    value, (grad,) = interpret(FirstOrderGradient()(only_gradient), X)
    np.testing.assert_array_equal(value, 2 * X)
    np.testing.assert_array_equal(grad, [2, 2, 2])


def test_branches() -> None:
    """GR17: the gradient of an If takes the same branch."""
    text = """def @main(%c: bool, %x: Tensor[(3,), float32], %y: Tensor[(3,), float32]) {
      %0 = %x * %y;
      %1 = if (%c) { %0 * %x } else { sin(%0) + exp(%y) };
      %1 * %x
    }"""
    mod = parse(text.replace("float32", "float64"))
    x, y = X.astype(np.float64), np.asarray([0.5, -1.0, 0.25])
    for condition in (True, False):
        value, (_, to_x, to_y) = interpret(FirstOrderGradient()(mod), np.asarray(condition), x, y)
        if condition:
            expected = (x * y * x * x, 3 * x * x * y, x**3)
        else:
            inner, cosine = np.sin(x * y) + np.exp(y), np.cos(x * y)
            expected = (inner * x, inner + x * cosine * y, x * (cosine * x + np.exp(y)))
        for found, wanted in zip((value, to_x, to_y), expected):
            np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_nested_branches_and_what_stands_between() -> None:
    text = """def @main(%x: Tensor[(3,), float64], %y: Tensor[(3,), float64]) {
      let %s = sum(%x);
      %0 = if (less(%s, 1f64)) { %x } else {
        %1 = %x * %y;
        if (less(%s, 10f64)) { let %t = %1 * %1; %t + %x } else { %1 }
      };
      (%0 * %y, sum(%0))
    }"""
    mod = parse(text)
    for scale in (0.1, 1.5, 9.0):
        _check_against_differences(mod, np.asarray([1.0, 2.0, 0.5]) * scale, np.asarray([0.5, -1.0, 0.25]))


def test_a_branch_that_is_not_taken_is_not_computed_for_the_gradient() -> None:
    text = """def @main(%c: bool, %x: Tensor[(3,), float32]) {
      if (%c) { exp(log(%x) * %x) } else { %x }
    }"""
    mod = _gradient(text)
    value, (_, grad) = interpret(mod, np.asarray(False), X)
    np.testing.assert_array_equal(value, X)
    np.testing.assert_array_equal(grad, [1, 1, 1])
    # once for the value, once for the gradient, each inside its own If
    assert _calls(mod, "log") == 2


def test_tuple_results_add_up() -> None:
    """GR18: the gradient of a function that returns a tuple is the sum over its fields."""
    _, (grad,) = interpret(_gradient("def @main(%x: Tensor[(3,), float32]) { (%x + %x, %x - 1f, %x) }"), X)
    np.testing.assert_array_equal(grad, [4, 4, 4])


def test_concatenation_gives_each_part_its_own() -> None:
    """GR19: each field of a concatenate gets its slice."""
    text = """def @main(%a: Tensor[(2, 2), float32], %b: Tensor[(2, 3), float32], %w: Tensor[(2, 5), float32]) {
      concatenate((%a, %b), axis=1) * %w
    }"""
    weights = np.arange(10, dtype="float32").reshape(2, 5)
    _, (to_a, to_b, _) = interpret(_gradient(text), np.ones((2, 2), "float32"), np.ones((2, 3), "float32"), weights)
    np.testing.assert_array_equal(to_a, weights[:, :2])
    np.testing.assert_array_equal(to_b, weights[:, 2:])


@pytest.mark.parametrize("result", ["%0", "(%0, %0)"])
def test_nothing_is_computed_twice(result: str) -> None:
    """GR20, GR21: one product forward and two backward, whatever is made of the result."""
    text = f"""def @main(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 3), float32]) {{
      %0 = nn.dense(%x, %w);
      {result}
    }}"""
    mod = _gradient(text)
    assert _calls(mod, "nn.dense") == 3


def test_functions_called_by_name() -> None:
    """GR22: double(double(x)) has gradient 4; the functions called stay as they are."""
    text = """
    def @double(%x: Tensor[(3,), float32]) -> Tensor[(3,), float32] { %x + %x }
    def @main(%x: Tensor[(3,), float32]) { @double(@double(%x)) }
    """
    mod = parse(text)
    found = FirstOrderGradient()(mod)
    value, (grad,) = interpret(found, X)
    np.testing.assert_array_equal(value, 4 * X)
    np.testing.assert_array_equal(grad, [4, 4, 4])
    assert str(found["double"]) == str(mod["double"])


def test_closures() -> None:
    text = """def @main(%x: Tensor[(3,), float32]) {
      let %f = fn (%y: Tensor[(3,), float32]) { let %z = %y * %x; %z + %y };
      %f(%f(%x))
    }"""
    # f(y) = y x + y, so f(f(x)) = x³ + 2x² + x
    value, (grad,) = interpret(_gradient(text), X)
    np.testing.assert_allclose(value, X**3 + 2 * X**2 + X)
    np.testing.assert_allclose(grad, 3 * X**2 + 4 * X + 1)


def test_the_input_is_not_changed() -> None:
    mod = parse("def @main(%x: Tensor[(3,), float32]) { nn.relu(%x) }")
    text = mod.astext()
    FirstOrderGradient()(mod)
    assert mod.astext() == text


def test_a_long_chain_takes_linear_time_and_no_recursion() -> None:
    from relaybuild.ir.expr import var

    x = var("x", (4,))
    body = x
    for _ in range(20_000):
        body = body + x
    _, (grad,) = interpret(IRModule({"main": gradient(Function([x], body))}), np.ones(4, "float32"))
    np.testing.assert_array_equal(grad, np.full(4, 20_001, "float32"))


_WITH_FUNCTIONS = {
    "chosen in a condition": """
        def @main(%x: float64) {
          let %v = exp(%x);
          let %f = fn (%y: float64) { let %z = %y + %v; %z * %z };
          let %g = fn (%y: float64) { %f(%y) - %v };
          let %h = if (less(%x, 0.1f64)) { %f } else { %g };
          if (less(%h(%x), 3f64)) { %x * %x } else { %f(%x) }
        }""",
    "made and handed on": """
        def @make(%a: float64) { let %b = %a * %a; fn (%y: float64) { %y * %b } }
        def @twice(%f: fn(float64) -> float64, %x: float64) { %f(%f(%x)) }
        def @main(%x: float64) {
          let %f = @make(%x);
          let %g = @make(sin(%x));
          let %n = fn (%k: fn(float64) -> float64) { fn (%y: float64) { @twice(%k, %y) + %x } };
          @twice(%n(%f), %x) + @twice(%n(%n(%g)), %x)
        }""",
    "polymorphic": """
        def @id[A](%a: A) -> A { %a }
        def @main(%x: float64) {
          let %f = @id(fn (%y: float64) { %y * %x });
          let %t = @id((%x, %f(%x)));
          %t.0 * %t.1 + (if (less(%x, 0f64)) { let %q = exp(%x); %q * %q } else { @id(%f)(%x) })
        }""",
    "over a shared node": """
        def @main(%x: float64) {
          %0 = exp(%x);
          %1 = fn (%y: float64) { %y * %0 };
          (%1(%x) + %1(%0)) * %0
        }""",
}


@pytest.mark.parametrize("at", [0.3, -0.7, 0.9])
@pytest.mark.parametrize("name", _WITH_FUNCTIONS)
def test_functions_as_values(name: str, at: float) -> None:
    mod = InferType()(parse(_WITH_FUNCTIONS[name]))
    verify_module(FirstOrderGradient()(mod), "typed")
    _check_against_differences(mod, np.asarray(at))


def test_a_long_chain_of_functions_takes_linear_time() -> None:
    functions = "\n".join(f"def @f{n}(%x: float32) {{ @f{n - 1}(%x + %x * 0f) }}" for n in range(1, 1500))
    mod = InferType()(
        parse(f"def @f0(%x: float32) {{ exp(%x) }}\n{functions}\ndef @main(%x: float32) {{ @f1499(%x) }}")
    )
    start = time.process_time()
    found = FirstOrderGradient()(mod)
    assert time.process_time() - start < 5
    assert _calls(found, "exp") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "def @main(%x: float32) { let %f: fn(float32) -> float32 = fn (%y: float32) { %f(%y) }; %f(%x) }",
            "'%f' calls itself: there is no first-order gradient of a recursive function",
        ),
        (
            "def @main(%x: float32) -> float32 { if (less(%x, 1f)) { %x } else { @main(%x - 1f) } }",
            "'@main' calls itself: there is no first-order gradient of a recursive function",
        ),
        (
            "def @main(%x: float32) { let %r = ref(%x); ref_read(%r) }",
            "found a reference, expected values only: there is no gradient through it",
        ),
    ],
)
def test_what_has_no_gradient_is_named(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        FirstOrderGradient()(parse(text))
