"""DeadCodeElimination: which lets and functions stay."""

from __future__ import annotations

import time

import pytest

from relaybuild.ir.expr import Function, Let, Tuple, TupleGetItem, var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.dead_code_elimination import DeadCodeElimination
from relaybuild.passes.infra import PassContext
from relaybuild.passes.to_a_normal_form import ToANormalForm


def check(before: str, after: str, **options: bool) -> None:
    found = DeadCodeElimination(**options)(parse(before))
    assert structural_equal(found, parse(after)), str(found)


def test_an_unused_binding_goes() -> None:
    """DC01: nothing is left of a dead let."""
    check("def @main(%x: float32) { let %a = exp(%x); %x }", "def @main(%x: float32) { %x }")


@pytest.mark.parametrize("inline", [False, True])
def test_a_binding_used_once(inline: bool) -> None:
    """DC02: stays, or is put where it is used if asked."""
    bound = "def @main(%x: float32) { let %a = exp(%x); let %b = log(%x); %a }"
    kept = "def @main(%x: float32) { let %a = exp(%x); %a }"
    check(bound, "def @main(%x: float32) { exp(%x) }" if inline else kept, inline_once=inline)


def test_bindings_within_bindings() -> None:
    """DC03: the dead one goes, the live one stays."""
    check(
        "def @main(%x: float32) { let %a = { let %d = exp(%x); let %l = log(%x); %l + %l }; %a + %a }",
        "def @main(%x: float32) { let %a = { let %l = log(%x); %l + %l }; %a + %a }",
    )


RECURSIVE = """
  let %f: fn(int32, float32) -> float32 = fn (%n: int32, %y: float32) -> float32 {
    if (%n < 1) { %y } else { %f(%n - 1, %y + %y) }
  };"""


def test_a_recursive_function_that_is_called() -> None:
    """DC04: it stays as it is."""
    text = f"def @main(%x: float32) {{ {RECURSIVE} %f(3, %x) }}"
    check(text, text)


def test_a_recursive_function_that_only_calls_itself() -> None:
    """DC05: it goes."""
    check(f"def @main(%x: float32) {{ {RECURSIVE} %x }}", "def @main(%x: float32) { %x }")


def test_a_sum_over_bindings() -> None:
    """DC06: what the sum does not need goes."""
    check(
        "def @main(%x: float32) { { let %a = exp(%x); let %b = log(%x); %b } + { let %c = %x; %c } }",
        "def @main(%x: float32) { { let %b = log(%x); %b } + { let %c = %x; %c } }",
    )


def test_a_field_of_a_tuple() -> None:
    """DC07: a tuple that is bound stays while a field of it is used."""
    text = "def @main(%x: float32) { let %t = (%x, exp(%x)); %t.0 }"
    check(text, text)


def test_a_binding_used_once_but_in_a_function() -> None:
    """DC08: a value is not moved into a function, which may compute it more than once."""
    text = """def @main(%x: float32) {
      let %a = exp(%x);
      let %f = fn (%y: float32) { %y + %a };
      (%f(%x), %f(%x))
    }"""
    check(text, text, inline_once=True)


@pytest.mark.parametrize("ignored", [False, True])
def test_what_has_an_effect(ignored: bool) -> None:
    """DC09: a cell that nothing reads stays, unless its effects are to be ignored."""
    text = "def @main(%x: float32) { let %r = ref(%x); let %w = ref_write(%r, exp(%x)); %x }"
    check(text, "def @main(%x: float32) { %x }" if ignored else text, ignore_impurity=ignored)


def test_a_call_of_what_has_an_effect() -> None:
    """DC10: the call stays though nothing uses its result."""
    text = """
    def @put(%r: Ref[float32], %x: float32) -> () { ref_write(%r, %x) }
    def @main(%x: float32) { let %r = ref(%x); let %w = @put(%r, exp(%x)); ref_read(%r) }
    """
    check(text, text)


def test_time_does_not_double_with_each_join() -> None:
    """DC12: a graph whose paths double at each of 2,000 joins takes time by its nodes."""
    x = var("x", (2,))
    value = x
    for _ in range(2000):
        split = Tuple([call_op("exp", [value]), call_op("log", [value])])
        value = call_op("add", [TupleGetItem(split, 0), TupleGetItem(split, 1)])
    mod = ToANormalForm()(IRModule({"main": Function([x], value)}))
    start = time.perf_counter()
    found = DeadCodeElimination()(mod)
    assert time.perf_counter() - start < 20
    assert structural_equal(found, mod)


def test_a_function_that_only_a_dead_binding_calls() -> None:
    """It goes in the same run."""
    found = DeadCodeElimination()(
        parse("def @f(%x: float32) { exp(%x) }\ndef @main(%x: float32) { let %a = @f(%x); %x }")
    )
    assert list(found.functions) == ["main"]


@pytest.mark.parametrize("limit", range(4))
def test_what_a_dead_value_binds_stays_while_the_value_does(limit: int) -> None:
    """However many changes are allowed, what comes out is a program."""
    mod = parse("def @main(%x: float32) { let %c = exp(%x); let %a = { let %d = tanh(%c); %d + %d }; %x }")
    with PassContext(max_rewrites=limit):
        found = DeadCodeElimination()(mod)
    verify_module(found, "typed")
    lets = [node for node in post_order(found["main"]) if isinstance(node, Let)]
    assert len(lets) == [3, 1, 0, 0][limit]


def test_a_function_that_nothing_reaches_goes_as_a_change() -> None:
    mod = parse("def @f(%x: float32) { exp(%x) }\ndef @main(%x: float32) { %x }")
    with PassContext(max_rewrites=0):
        assert DeadCodeElimination()(mod) is mod
