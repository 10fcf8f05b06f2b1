"""What code programs become: what is computed where, once or twice, shared or not, and what has none."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiling import generated, kernel_calls, program_text

from relaybuild.errors import UnsupportedError
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, If, TupleGetItem, const, var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType

FLAT = "def @main(%c: bool, %x: Tensor[(8,), float32]) -> Tensor[(8,), float32] "


def procedures(text: str) -> list[str]:
    """The names of the functions, in order."""
    return re.findall(r"^/\* @(.*) \*/$", text, re.MULTILINE)


def test_a_node_that_both_branches_use_is_computed_once_before_them() -> None:
    code = generated(FLAT + "{ %1 = exp(%x); if (%c) { negative(%1) } else { abs(%1) } }")
    assert kernel_calls(code, "exp") == 1
    text = program_text(code)
    assert text.index("/* exp */") < text.index("if (*") < text.index("negative") < text.index("abs")


def test_a_node_that_one_branch_uses_is_computed_in_it() -> None:
    code = generated(FLAT + "{ %1 = exp(%x); if (%c) { negative(%1) } else { %x } }")
    text = program_text(code)
    assert text.index("if (*") < text.index("exp") < text.index("else")
    assert kernel_calls(code, "exp") == 1


def test_a_let_is_computed_where_it_stands() -> None:
    code = generated(FLAT + "{ let %v = exp(%x); if (%c) { negative(%v) } else { %v } }", passes=False)
    text = program_text(code)
    assert text.index("exp") < text.index("if (*")
    assert kernel_calls(code, "exp") == 1


def test_a_node_used_before_in_and_behind_a_branch_is_computed_once() -> None:
    code = generated(FLAT + "{ %1 = exp(%x); %2 = if (%c) { tanh(%1) } else { %1 }; add(%2, %1) }")
    assert kernel_calls(code, "exp") == 1


def test_a_branch_writes_where_its_result_is_wanted() -> None:
    code = generated(FLAT + "{ if (%c) { exp(%x) } else { tanh(%x) } }")
    assert kernel_calls(code, "copy") == 0
    assert kernel_calls(code, "exp") == kernel_calls(code, "tanh") == 1


def test_what_stands_between_branches_is_one_kernel() -> None:
    code = generated(FLAT + "{ %1 = if (%c) { exp(%x) } else { %x }; tanh(add(multiply(%1, %x), %x)) }")
    assert kernel_calls(code, "tanh") == 1
    assert "/* multiply, add, tanh */" in program_text(code)


def test_a_decided_branch_leaves_no_trace() -> None:
    code = generated("def @main(%x: float32) -> float32 { if (True) { exp(%x) } else { log(%x) } }", passes=False)
    assert "if (" not in program_text(code)
    assert (kernel_calls(code, "exp"), kernel_calls(code, "log")) == (1, 0)


def test_a_function_called_twice_is_one_procedure_and_one_called_once_none() -> None:
    text = """
    def @main(%x: float32) -> float32 { add(@f(@f(%x)), @g(%x)) }
    def @f(%x: float32) -> float32 { exp(tanh(%x)) }
    def @g(%x: float32) -> float32 { log(%x) }
    def @unused(%x: float32) -> float32 { sqrt(%x) }
    """
    code = generated(text, passes=False)
    assert procedures(program_text(code)) == ["main", "f"]
    assert program_text(code).count("rb_call(") == 2
    assert (kernel_calls(code, "exp"), kernel_calls(code, "sqrt")) == (1, 0)


def test_a_function_is_a_procedure_for_each_function_that_it_gets() -> None:
    text = """
    def @main(%x: float32) -> float32 {
      let %f = fn(%a: float32) -> float32 { exp(%a) };
      let %g = fn(%a: float32) -> float32 { multiply(%a, %x) };
      add(add(@twice(%f, %x), @twice(%f, 1f)), @twice(%g, %x))
    }
    def @twice(%f: fn(float32) -> float32, %x: float32) -> float32 { %f(%f(%x)) }
    """
    found = procedures(program_text(generated(text, passes=False)))
    assert [re.sub(r"_\d+$", "", name) for name in found] == ["main", "twice", "f", "twice", "f"]


def test_a_captured_value_is_computed_once_where_a_let_says_so() -> None:
    text = """
    def @main(%x: float32, %y: float32) -> float32 {
      let %l = log(%x);
      let %f = fn(%z: float32) -> float32 { add(%z, %l) };
      %f(%f(%y))
    }
    """
    code = generated(text, passes=False)
    assert kernel_calls(code, "log") == 1
    assert program_text(code).index("/* log */") < program_text(code).index("rb_call(")


def test_a_branch_on_a_function_that_both_sides_are_is_no_choice() -> None:
    text = """
    def @main(%c: bool, %x: float32) -> float32 {
      let %f = fn(%a: float32) -> float32 { exp(%a) };
      %1 = if (%c) { (%f, 1f) } else { (%f, %x) };
      %2 = %1.0;
      %2(%1.1)
    }
    """
    assert kernel_calls(generated(text, passes=False), "exp") == 1


def test_a_call_at_the_end_starts_over_and_keeps_what_does_not_change() -> None:
    text = program_text(
        generated(
            """
    def @main(%n: int32, %x: Tensor[(4000,), float32], %y: float32) -> Tensor[(4000,), float32] {
      if (less(%n, 1)) { %x } else { @main(subtract(%n, 1), multiply(%x, %y), %y) }
    }
    """
        )
    )
    assert "rb_call(" not in text
    assert text.count("rb_copy(") == 2
    assert "frame->inputs[2]" in text
    assert "memcpy" in text
    assert ".makes_calls" not in text


def test_a_chain_of_sums_behind_a_branch_is_one_kernel_of_as_many_sums() -> None:
    x, c = var("x", TensorType((32,), "float32")), var("c", TensorType((), "bool"))
    value: Expr = If(c, call_op("exp", [x]), x)
    for _ in range(64):
        value = call_op("add", [value, value])
    code = generated(infer_types(IRModule({"main": Function([c, x], value)})))
    kernels = [unit.text for unit in code.units if unit.hot]
    assert [len(re.findall(r"\b(v\d*) \+ \1\b", text)) for text in kernels if " + v" in text].count(64) == 1


def test_weights_of_several_functions_are_one_table() -> None:
    r = np.random.default_rng(0)
    kind = TensorType((2, 4), "float32")
    weight = const(r.normal(size=(4, 4)).astype("float32"))
    x, y, c = var("x", kind), var("y", kind), var("c", TensorType((), "bool"))
    shared = GlobalVar("shared")
    body = If(c, call_op("nn.dense", [y, weight]), call_op("nn.dense", [call_op("tanh", [y]), weight]))
    twice = Call(shared, [Call(shared, [x, c]), c])
    module = IRModule({"main": Function([x, c], twice), "shared": Function([y, c], body, kind)})
    code = generated(infer_types(module), "x86-64-v3")
    assert len(code.weight_offsets) == 1
    assert kernel_calls(code, "nn.dense") == 2


RETURNS = "def @main(%x: float32) -> fn(float32) -> float32 { fn(%a: float32) -> float32 { add(%a, %x) } }"
GROWS = """
def @main(%n: int32, %x: float32) -> float32 { @grow(fn(%a: float32) -> float32 { exp(%a) }, %n, %x) }
def @grow(%f: fn(float32) -> float32, %n: int32, %x: float32) -> float32 {
  if (less(%n, 1)) { %f(%x) } else { @grow(fn(%a: float32) -> float32 { %f(%f(%a)) }, subtract(%n, 1), %x) }
}
"""
RECURSIVE = """
def @main(%n: int32, %x: float32) -> float32 { let %f = @make(%n); %f(%x) }
def @make(%n: int32) -> fn(float32) -> float32 {
  if (less(%n, 1)) { fn(%a: float32) -> float32 { %a } } else { @make(subtract(%n, 1)) }
}
"""

REFERENCE = "def @main(%x: float32) -> float32 { let %r = ref(%x); ref_read(%r) }"
DATA = """
type List[A] { Cons(A, List[A]), Nil }
def @main(%x: float32) -> float32 {
  match (Cons(%x, Nil)) { Cons(%head, _) => %head, Nil => %x }
}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(RETURNS, r":2:\d+: a function that is returned to the caller", id="returned"),
        pytest.param(GROWS, r":5:\d+: this recursion calls itself with ever new functions", id="growing"),
        pytest.param(RECURSIVE, r":5:\d+: a recursive function that returns a function", id="recursive"),
        pytest.param(REFERENCE, r":2:\d+: a reference has no native code", id="reference"),
        pytest.param(DATA, r":5:\d+: a value of a data type, made by 'Nil'", id="data"),
    ],
)
def test_what_has_no_native_code_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        generated(text, passes=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "def @main(%x: Tensor[(2, n), float32]) -> Tensor[(2, n), float32] { exp(%x) }",
            r":2:\d+: '%x' has type Tensor\[\(2, n\), float32\], whose dimension 1 \('n'\) is not known .*--shape",
            id="parameter",
        ),
        pytest.param(
            """
            def @f(%n: int32, %x: Tensor[(?,), float32]) -> Tensor[(?,), float32] {
              if (less(%n, 1)) { %x } else { @f(subtract(%n, 1), exp(%x)) }
            }
            def @main(%n: int32, %x: Tensor[(2,), float32]) -> float32 { sum(@f(%n, %x)) }""",
            r":4:\d+: '%result' has type Tensor\[\(\?,\), float32\], whose dimension 0 is not known",
            id="recursion",
        ),
        pytest.param(
            "def @main(%x: Tensor[(6,), float32], %s: Tensor[(2,), int64]) { dyn.reshape(%x, %s) }",
            r":2:\d+: the result of 'dyn.reshape' has type .* dimension 0 is not known",
            id="operator",
        ),
        pytest.param(
            """
            def @pick(%c: bool, %x: Tensor[(?,), float32], %y: Tensor[(?,), float32]) -> float32 {
              %1 = if (%c) { %x } else { %y };
              sum(%1)
            }
            def @main(%c: bool, %x: Tensor[(2,), float32], %y: Tensor[(4,), float32]) -> float32 {
              @pick(%c, %x, %y)
            }""",
            r":4:\d+: the branches of this conditional give Tensor\[\(2,\), float32\] and Tensor\[\(4,\), float32\]",
            id="branches",
        ),
    ],
)
def test_a_dimension_that_is_no_number_is_named(text: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        generated(text, passes=False)


def test_a_field_is_read_where_its_operator_is_computed() -> None:
    x, c = var("x", TensorType((4, 6), "float32")), var("c", TensorType((), "bool"))
    parts = call_op("split", [x], indices_or_sections=2, axis=1)
    first, second = TupleGetItem(parts, 0), TupleGetItem(parts, 1)
    body = call_op("add", [If(c, call_op("exp", [first]), first), second])
    code = generated(infer_types(IRModule({"main": Function([c, x], body)})))
    assert kernel_calls(code, "exp") == 1


def test_what_no_one_needs_of_a_branch_is_not_computed() -> None:
    code = generated(
        """
        def @main(%c: bool, %x: float32) -> float32 {
          %1 = if (%c) { (exp(%x), log(%x)) } else { (%x, sin(%x)) };
          %1.0
        }
        """
    )
    assert [kernel_calls(code, name) for name in ("exp", "log", "sin")] == [1, 0, 0]


def test_a_call_of_a_chosen_function_is_a_choice_between_calls() -> None:
    code = generated(
        """
        def @main(%c: bool, %x: float32) -> float32 {
          let %f = if (%c) { fn(%a: float32) -> float32 { exp(%a) } } else { fn(%a: float32) -> float32 { sin(%a) } };
          %f(%f(%x))
        }
        """
    )
    assert [kernel_calls(code, name) for name in ("exp", "sin")] == [1, 1]
    assert program_text(code).count("rb_call(") == 4


def test_choices_of_choices_without_end_are_refused_with_their_place() -> None:
    text = "def @f(%x: float32) -> float32 { exp(%x) }\ndef @g(%x: float32) -> float32 { sin(%x) }\n"
    text += "def @main(%c: bool, %x: float32) -> float32 {\nlet %f0 = @f;\n"
    text += "".join(f"let %f{n + 1} = if (%c) {{ %f{n} }} else {{ @g }};\n" for n in range(3000))
    with pytest.raises(UnsupportedError, match=r":106:\d+: more than 100 conditionals"):
        generated(text + "%f3000(%x) }", passes=False)


def test_a_function_with_open_dimensions_returns_what_its_call_knows() -> None:
    code = generated(
        """
        def @f(%x: Tensor[(?, 3), float32]) -> Tensor[(?, 3), float32] { exp(%x) }
        def @main(%x: Tensor[(2, 3), float32]) { (@f(%x), @f(negative(%x))) }
        """
    )
    assert [kind.static_shape for kind in code.results] == [(2, 3), (2, 3)]
