"""Which calls are replaced by what they call, and which functions remain."""

from __future__ import annotations

import numpy as np
import pytest

from relaybuild.ir.expr import Call, Function, GlobalVar, RefCreate
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.parser import parse
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.passes.inline import Inline

ONE = "def @main(%x: int32) {{ @f(%x) + 1 }} def @f(%y: int32{attrs}) -> int32 {{ @g(%y) * 2 }}"
LEAF = " def @g(%z: int32{attrs}) -> int32 {{ %z + 3 }}"


def inlined(text: str, **options: object) -> IRModule:
    mod = parse(text)
    after = Inline(**options)(mod)  # type: ignore[arg-type]
    verify_module(after, "typed")
    if "main" in mod and len(mod["main"].params) == 1:
        x = np.array(2, "int32")
        np.testing.assert_array_equal(interpret(after, x), interpret(mod, x))
    return after


def calls(mod: IRModule, name: str = "main") -> list[str]:
    nodes = post_order(mod[name])
    return [node.op.name_hint for node in nodes if isinstance(node, Call) and isinstance(node.op, GlobalVar)]


def test_a_chain_with_a_marked_leaf() -> None:
    """IN01: the leaf goes into its caller, and is dropped; the caller stays."""
    after = inlined(ONE.format(attrs="") + LEAF.format(attrs=", Inline=1"))
    assert list(after) == ["f", "main"]
    assert calls(after) == ["f"]
    assert calls(after, "f") == []


def test_several_levels() -> None:
    """IN02: marked functions that call marked functions."""
    after = inlined(ONE.format(attrs=", Inline=1") + LEAF.format(attrs=", Inline=1"))
    assert list(after) == ["main"]
    assert calls(after) == []


def test_a_function_of_another_compiler_stays_whole() -> None:
    """IN03: it comes to stand where its name stood, with its attributes; what it calls is left to it."""
    attrs = ', Inline=1, Primitive=1, Compiler="ccompiler", global_symbol="f_0"'
    after = inlined(ONE.format(attrs=attrs) + LEAF.format(attrs=""))
    literals = [node for node in post_order(after["main"].body) if isinstance(node, Function)]
    assert [dict(node.attrs) for node in literals] == [
        {"Compiler": "ccompiler", "Inline": 1, "Primitive": 1, "global_symbol": "f_0"}
    ]
    assert list(after) == ["g", "main"]


@pytest.mark.parametrize("attrs", ["Inline=1", 'Inline=1, Primitive=1, Compiler="ccompiler", global_symbol="{}_0"'])
@pytest.mark.parametrize("called", [True, False])
def test_recursive_functions_stay(called: bool, attrs: str) -> None:
    """IN04-IN07: whether something else calls them or not, and whoever compiles them."""
    use = "@down(%x)" if called else "%x"
    after = inlined(
        f"def @main(%x: int32) {{ {use} }}"
        f"def @down(%n: int32, {attrs.format('down')}) -> int32 {{ if (%n < 1) {{ %n }} else {{ @other(%n - 1) }} }}"
        f"def @other(%n: int32, {attrs.format('other')}) -> int32 {{ @down(%n) }}"
    )
    assert list(after) == ["down", "main", "other"]
    assert calls(after, "down") == ["other"]


def test_a_function_that_is_handed_over() -> None:
    """IN08, IN09: a marked one becomes a closure where its name stood, another keeps its name."""
    after = inlined(
        """
        def @main(%x: int32) { @apply(@marked, @apply(@plain, %x)) }
        def @apply(%f: fn (int32) -> int32, %x: int32) -> int32 { %f(%x) }
        def @marked(%x: int32, Inline=1) -> int32 { %x + 1 }
        def @plain(%x: int32) -> int32 { %x * 2 }
        """
    )
    assert list(after) == ["apply", "main", "plain"]
    nodes = [node for node in post_order(after["main"].body) if isinstance(node, Call) and node.op_name == ""]
    first, second = nodes
    assert isinstance(first.args[0], GlobalVar)
    assert isinstance(second.args[0], Function)


def test_a_name_that_is_returned_without_being_called() -> None:
    """IN10, IN11: functions without arguments that give functions."""
    after = inlined(
        """
        def @main(%x: int32) { @choose()(%x) }
        def @choose(Inline=1) -> fn (int32) -> int32 { @inc }
        def @inc(%x: int32) -> int32 { %x + 1 }
        """
    )
    assert list(after) == ["inc", "main"]
    assert calls(after) == ["inc"]


def test_one_function_called_by_several() -> None:
    """IN12: each caller has a copy of its own."""
    after = inlined(
        """
        def @main(%x: int32) { @a(%x) + @b(%x) }
        def @a(%x: int32) -> int32 { @leaf(%x) }
        def @b(%x: int32) -> int32 { @leaf(%x) * @leaf(%x + 1) }
        def @leaf(%x: int32, Inline=1) -> int32 { let %y = %x + 1; %y * %y }
        """
    )
    assert list(after) == ["a", "b", "main"]
    assert calls(after, "b") == []


def test_a_marked_entry_stays() -> None:
    """IN13: nothing calls it."""
    text = "def @main(%x: int32, Inline=1) { @f(%x) } def @f(%x: int32, Inline=1) { %x + 1 }"
    assert list(inlined(text)) == ["main"]


def test_callers_are_not_inlined_because_their_leaves_are() -> None:
    """IN14, IN15: without a mark a function stays."""
    text = ONE.format(attrs="") + LEAF.format(attrs="")
    mod = parse(text)
    assert Inline()(mod) is mod
    assert calls(inlined(text.replace("%z: int32", "%z: int32, Inline=1"))) == ["f"]


def test_a_leaf_of_another_compiler_goes_into_a_caller_that_stays() -> None:
    """IN16: the leaf keeps its attributes where it comes to stand."""
    after = inlined(ONE.format(attrs="") + LEAF.format(attrs=', Inline=1, Compiler="ccompiler", global_symbol="g_0"'))
    assert list(after) == ["f", "main"]
    assert calls(after) == ["f"]
    (literal,) = [node for node in post_order(after["f"].body) if isinstance(node, Function)]
    assert dict(literal.attrs) == {"Compiler": "ccompiler", "Inline": 1, "global_symbol": "g_0"}


def test_effects_of_arguments_happen_once_and_first() -> None:
    after = inlined(
        """
        def @main(%x: int32) {
          let %r = ref(%x);
          let %a = @twice(@bump(%r), ref_read(%r));
          (%a, ref_read(%r))
        }
        def @bump(%r: Ref[int32], Inline=1) -> int32 { let %w = ref_write(%r, ref_read(%r) + 1); ref_read(%r) }
        def @twice(%a: int32, %b: int32, Inline=1) -> int32 { if (%b < 0) { 0 } else { %a + %a } }
        """
    )
    assert list(after) == ["main"]


def test_each_copy_makes_a_reference_of_its_own() -> None:
    after = inlined(
        """
        def @main(%x: int32) {
          let %r = @fresh();
          let %s = @fresh();
          let %w = ref_write(%r, %x);
          ref_read(%r) + ref_read(%s)
        }
        def @fresh(Inline=1) -> Ref[int32] { ref(7) }
        """
    )
    assert sum(isinstance(node, RefCreate) for node in post_order(after["main"])) == 2


def test_polymorphic_functions_are_copied_at_the_types_of_a_call() -> None:
    mod = parse(
        """
        def @main(%x: int32, %y: Tensor[(3,), float32]) { (@pair(%x), @pair(%y)) }
        def @pair[A](%a: A, Inline=1) -> (A, A) { let %b: A = %a; (%a, %b) }
        """
    )
    after = Inline()(mod)
    verify_module(after, "typed")
    assert str(after["main"].body.checked_type) == str(mod["main"].body.checked_type)
    assert "A" not in str(after)


def test_arguments_that_closures_need_are_not_computed_at_each_call() -> None:
    after = inlined(
        """
        def @main(%x: int32) { let %f = @adder(%x * 3); %f(%f(%x)) }
        def @adder(%a: int32, Inline=1) -> fn (int32) -> int32 { fn (%b: int32) -> int32 { %a + %b } }
        """
    )
    assert "let %a: int32 = multiply(%x, 3);" in str(after)


def test_what_is_called_once() -> None:
    """Closures, functions applied where they are written, and functions of the module; higher-order ones too."""
    after = inlined(
        """
        def @main(%x: int32) {
          let %twice = fn (%f: fn (int32) -> int32, %y: int32) { %f(%y * 2) };
          let %g = fn (%z: int32) { %z + %x };
          @once(%twice(%g, fn (%w: int32) { %w - 1 }(%x)))
        }
        def @once(%y: int32) -> int32 { %y * %y }
        """,
        once=True,
    )
    assert list(after) == ["main"]
    assert not [node for node in post_order(after["main"].body) if isinstance(node, Function)]


def test_what_is_called_twice_or_by_itself_stays() -> None:
    mod = parse(
        """
        def @main(%x: int32) {
          let %f = fn (%y: int32) { %y + 1 };
          let %loop = fn (%i: int32) -> int32 { if (%i < 1) { %i } else { %loop(%i - 1) } };
          %f(%f(%loop(%x))) + @twice(%x) + @twice(%x)
        }
        def @twice(%x: int32) -> int32 { %x * 2 }
        """
    )
    assert structural_equal(Inline(once=True)(mod), mod)


def test_a_closure_over_outer_nodes_called_at_another_extent() -> None:
    """The nodes that it takes from outside are not copied with it."""
    mod = parse(
        """
        def @main(%x: Tensor[(3,), float32]) {
          %0 = exp(sum(%x));
          let %f = fn (%y: Tensor[(n,), float32]) { let %z = %y * %0; %z + %0 };
          (%f(%x), %0)
        }
        """
    )
    after = Inline(once=True)(mod)
    verify_module(after, "typed")
    assert sum(isinstance(node, Call) and node.op_name == "exp" for node in post_order(after["main"])) == 1
    x = np.arange(3, dtype="float32")
    np.testing.assert_allclose(interpret(after, x)[0], interpret(mod, x)[0])


def test_long_chains_of_calls() -> None:
    count = 1_000
    functions = [f"def @f{n}(%x: int32, Inline=1) -> int32 {{ @f{n + 1}(%x) + 1 }}" for n in range(count)]
    text = f"def @main(%x: int32) {{ @f0(%x) }} def @f{count}(%x: int32, Inline=1) -> int32 {{ %x }}"
    text += "".join(functions)
    marked = text.replace(", Inline=1", "")
    after = Inline(once=True)(parse(marked))
    assert list(after) == ["main"]
    assert interpret(after, np.array(0, "int32")) == count
