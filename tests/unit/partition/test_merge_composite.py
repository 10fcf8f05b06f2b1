"""Composite functions: what the patterns of a table take, in which order, and what they leave."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.pattern import (
    DFPattern,
    dominates,
    is_constant,
    is_expr,
    is_function,
    is_if,
    is_op,
    is_tuple,
    is_tuple_get_item,
    wildcard,
)
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import post_order
from relaybuild.partition.merge_composite import MergeComposite, unmerged
from relaybuild.partition.pattern_table import get_pattern_table, register_pattern_table
from relaybuild.passes.infra import PassContext, get_pass


def merged(mod: IRModule | Expr, *table: Any) -> IRModule:
    """What MergeComposite makes of a module: typed, well-formed, of the same meaning, and the same each time."""
    before = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    after = MergeComposite(table)(before)
    verify_module(after, "typed")
    assert str(MergeComposite(table)(before)) == str(after)
    random = np.random.default_rng(0)
    args = [random.random(param.tensor_type.static_shape).astype("float32") for param in before["main"].params]
    np.testing.assert_allclose(interpret(before, *args), interpret(after, *args), rtol=1e-5)
    return after


def unchanged(mod: IRModule | Expr, *table: Any) -> bool:
    before = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    return merged(before, *table) is before


def composites(mod: IRModule) -> Iterator[Call]:
    """The calls of composite functions, operands first."""
    for function in mod.functions.values():
        for node in post_order(function):
            if isinstance(node, Call) and isinstance(node.op, Function) and "Composite" in node.op.attrs:
                yield node


def attrs_of(call: Call) -> Mapping[str, object]:
    assert isinstance(call.op, Function)
    return call.op.attrs


def names(mod: IRModule) -> list[tuple[object, object]]:
    return [(attrs_of(call)["Composite"], attrs_of(call)["PartitionedFromPattern"]) for call in composites(mod)]


def reason(mod: IRModule, op: str, *table: Any) -> str:
    """Why the last call of an operator was not taken."""
    return [each.reason for each in unmerged(MergeComposite(table)(mod), table) if each.call.op_name == op][-1]


def add_relu() -> DFPattern:
    return is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))


def conv_bias_relu() -> DFPattern:
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    return is_op("nn.relu")(is_op("nn.bias_add")(conv, wildcard()))


def add_sub_mul() -> DFPattern:
    add = is_op("add")(wildcard(), wildcard())
    return is_op("multiply")(add, is_op("subtract")(wildcard(), wildcard()))


def inputs(*names: str, shape: tuple[int, ...] = (2, 3)) -> list[relay.Var]:
    return [relay.var(name, shape) for name in names]


class TestBehaviours:
    def test_two_calls_become_one_composite_function(self) -> None:
        """MC01: a match is one call of a function with its name and the operators it comes from."""
        a, b = inputs("a", "b")
        result = merged(relay.nn.relu(relay.add(a, b)), ("add_relu", add_relu()))
        x, y = inputs("x", "y")
        body = Function([x, y], relay.nn.relu(relay.add(x, y)))
        composite = body.with_attr("Composite", "add_relu").with_attr("PartitionedFromPattern", "add_nn.relu_")
        assert structural_equal(result, IRModule({"main": Function([a, b], Call(composite, [a, b]))}))

    def test_a_pattern_with_branches_is_found_twice(self) -> None:
        """MC02: a pattern with branches is found wherever it stands."""
        a, b = inputs("a", "b")
        inner = relay.multiply(relay.add(a, b), relay.subtract(a, b))
        c = relay.nn.relu(inner)
        outer = relay.multiply(relay.add(c, b), relay.subtract(c, b))
        result = merged(relay.nn.relu(outer), ("add_sub_mul", add_sub_mul()))
        assert names(result) == [("add_sub_mul", "add_subtract_multiply_")] * 2

    def test_a_node_used_twice_within_a_match_stays_one_node(self) -> None:
        """MC03: what is shared within a match is computed once."""
        a, b = inputs("a", "b")
        shared = wildcard()
        inner = is_op("add")(shared, wildcard())
        pattern = is_op("add")(inner, is_op("add")(shared, inner))
        one = relay.add(a, b)
        result = merged(relay.add(one, relay.add(a, one)), ("add_add_add", pattern))
        assert names(result) == [("add_add_add", "add_add_add_")]

    def test_patterns_of_a_table_are_all_applied(self) -> None:
        """MC04: several patterns of a table find their matches in one function."""
        data = relay.var("data", (1, 4, 5, 5))
        kernel, bias = relay.var("kernel", (4, 4, 3, 3)), relay.var("bias", (4,))
        conv = relay.nn.bias_add(relay.nn.conv2d(data, kernel, padding=(1, 1)), bias)
        result = merged(
            relay.nn.relu(relay.add(relay.nn.relu(conv), data)),
            ("conv_bias_relu", conv_bias_relu()),
            ("add_relu", add_relu()),
        )
        assert names(result) == [
            ("conv_bias_relu", "nn.conv2d_nn.bias_add_nn.relu_"),
            ("add_relu", "add_nn.relu_"),
        ]

    def test_an_optional_part_shows_in_the_operators_only(self) -> None:
        """MC05: with and without an optional operator the name is one, the operators are not."""
        data, kernel = relay.var("data", (1, 4, 5, 5)), relay.var("kernel", (4, 4, 3, 3))
        pattern = is_op("nn.conv2d")(wildcard(), wildcard()).optional(is_op("nn.relu"))
        first = relay.nn.relu(relay.nn.conv2d(data, kernel, padding=(1, 1)))
        second = relay.tanh(relay.nn.conv2d(first, kernel, padding=(1, 1)))
        assert names(merged(second, ("conv", pattern))) == [("conv", "nn.conv2d_nn.relu_"), ("conv", "nn.conv2d_")]

    @pytest.mark.parametrize("order", ["ABC", "CBA", "BAC", "BCA"])
    def test_the_order_of_the_table_is_the_priority(self, order: str) -> None:
        """MC06: of patterns that overlap the first in the table takes what it matches."""
        a, b = inputs("a", "b")
        patterns = {
            "A": is_op("nn.relu")(is_op("abs")(is_op("add")(wildcard(), wildcard()))),
            "B": is_op("abs")(is_op("add")(wildcard(), wildcard())),
            "C": is_op("nn.relu")(is_op("abs")(wildcard())),
        }
        result = merged(relay.nn.relu(relay.abs(relay.add(a, b))), *((name, patterns[name]) for name in order))
        assert [name for name, _ in names(result)] == [order[0]]

    def test_matches_side_by_side_are_functions_of_their_own(self) -> None:
        """MC07: two matches of the same operands are two functions that do not depend on each other."""
        a, b = inputs("a", "b")
        both = relay.nn.relu(relay.add(a, b)), relay.nn.relu(relay.add(a, b))
        result = merged(relay.multiply(*both), ("add_relu", add_relu()))
        first, second = composites(result)
        assert first.args == second.args == result["main"].params
        assert first.op is not second.op

    def test_operands_that_the_pattern_wants_equal_are(self) -> None:
        """MC08: a pattern over two inputs does not match four; what it leaves is for the next."""
        a, b, c, d = inputs("a", "b", "c", "d")
        x, y = wildcard(), wildcard()
        sums = is_op("add")(x, y), is_op("subtract")(x, y)
        table = ("add_sub_mul", is_op("multiply")(*sums)), ("add_relu", add_relu())
        same = relay.multiply(relay.add(a, b), relay.subtract(a, b))
        assert [name for name, _ in names(merged(same, *table))] == ["add_sub_mul"]
        four = relay.multiply(relay.nn.relu(relay.add(a, b)), relay.nn.relu(relay.add(c, d)))
        other = relay.multiply(relay.add(four, a), relay.subtract(c, d))
        assert [name for name, _ in names(merged(other, *table))] == ["add_relu", "add_relu"]

    def test_a_field_of_a_tuple_is_matched(self) -> None:
        """MC09: batch_norm, its first field and relu become one function."""
        data = relay.var("data", (1, 4, 5, 5))
        norm = relay.nn.batch_norm(data, *inputs("gamma", "beta", "mean", "variance", shape=(4,)))
        pattern = is_tuple_get_item(is_op("nn.batch_norm")(*(wildcard() for _ in range(5))), 0)
        result = merged(relay.nn.relu(relay.TupleGetItem(norm, 0)), ("bn_relu", is_op("nn.relu")(pattern)))
        assert names(result) == [("bn_relu", "nn.batch_norm_TupleGetItem0_nn.relu_")]
        (call,) = composites(result)
        assert call.args == result["main"].params

    def test_a_check_that_refuses_leaves_the_module(self) -> None:
        """MC10: a check that holds merges, one that does not leaves the same module."""
        a, b = inputs("a", "b")
        mod = IRModule.from_expr(relay.nn.relu(relay.add(a, b)))
        assert len(names(merged(mod, ("add_relu", add_relu(), lambda root: True)))) == 1
        assert unchanged(mod, ("add_relu", add_relu(), lambda root: False))
        assert unchanged(mod, ("add_relu", add_relu(), lambda root: "only on Sundays"))

    def test_a_diamond_with_another_node_in_it_is_not_merged(self) -> None:
        """MC11: what is not all of the pattern, or is used outside of it, is not merged."""
        data, kernel = relay.var("data", (1, 4, 5, 5)), relay.var("kernel", (4, 4, 3, 3))
        conv = is_op("nn.conv2d")(wildcard(), wildcard())
        table = ("conv_clip_mul", is_op("multiply")(conv, is_op("clip")(conv)))
        node = relay.nn.conv2d(data, kernel, padding=(1, 1))
        assert unchanged(relay.multiply(node, relay.clip(relay.add(node, node), 0.0, 6.0)), table)
        diamond = relay.multiply(node, relay.clip(node, 0.0, 6.0))
        assert len(names(merged(diamond, table))) == 1
        assert unchanged(relay.concatenate([diamond, node], axis=0), table)

    def test_a_check_sees_types_and_attributes(self) -> None:
        """MC12: a check selects by the type and the attributes of the root and its operands."""
        data, kernel = relay.var("data", (1, 4, 5, 5)), relay.var("kernel", (4, 4, 3, 3))
        conv = relay.nn.conv2d(data, kernel, padding=(1, 1))
        pattern = is_op("nn.relu")(is_op("nn.conv2d")(wildcard(), wildcard()))

        def padded(root: Any) -> bool:
            wide = root.args[0].attrs.padding == (1, 1, 1, 1) or root.args[0].attrs.padding == (1, 1)
            return bool(wide and root.checked_type == TensorType((1, 4, 5, 5)))

        assert len(names(merged(relay.nn.relu(conv), ("conv_relu", pattern, padded)))) == 1
        narrow = relay.nn.relu(relay.nn.conv2d(data, kernel))
        assert unchanged(narrow, ("conv_relu", pattern, padded))

    def test_an_operator_over_a_tuple_is_matched(self) -> None:
        """MC13: an operator whose argument is a tuple, and the reshape of its result."""
        a, b = inputs("a", "b")
        pattern = is_op("reshape")(is_op("concatenate")(is_tuple()))
        mod = relay.reshape(relay.concatenate([a, b], axis=0), newshape=(3, 4))
        result = merged(mod, ("concat_reshape", pattern))
        assert names(result) == [("concat_reshape", "Tuple_concatenate_reshape_")]
        fields = is_tuple([wildcard(), wildcard()])
        same = merged(mod, ("concat_reshape", is_op("reshape")(is_op("concatenate")(fields))))
        assert structural_equal(result, same)


class TestWhatIsCutOut:
    def test_parameters_are_in_the_order_of_the_pattern(self) -> None:
        a, kernel, bias = inputs("a", "kernel", "bias", shape=(3, 3))
        pattern = is_op("add")(is_op("nn.dense")(wildcard(), wildcard()), wildcard())
        result = merged(relay.add(bias, relay.nn.dense(a, kernel)), ("dense_bias", pattern))
        (call,) = composites(result)
        assert [arg.name_hint for arg in call.args if isinstance(arg, relay.Var)] == ["a", "kernel", "bias"]

    def test_a_constant_is_given_unless_the_pattern_asks_for_one(self) -> None:
        (a,) = inputs("a")
        half = relay.const(0.5, "float32")
        mod = relay.nn.relu(relay.multiply(a, half))
        for part, count in ((wildcard(), 2), (is_constant(), 1), (is_expr(half), 1), (is_constant() | wildcard(), 1)):
            pattern = is_op("nn.relu")(is_op("multiply")(wildcard(), part))
            (call,) = composites(merged(mod, ("mul_relu", pattern)))
            assert len(call.args) == count

    def test_an_operand_that_is_given_twice_is_given_once(self) -> None:
        (a,) = inputs("a")
        (call,) = composites(merged(relay.nn.relu(relay.add(a, a)), ("add_relu", add_relu())))
        assert len(call.args) == 1

    def test_what_is_computed_within_cannot_be_given_as_well(self) -> None:
        a, b = inputs("a", "b")
        relu = relay.nn.relu(relay.add(a, b))
        pattern = is_op("multiply")(add_relu(), wildcard())
        mod = IRModule.from_expr(relay.multiply(relu, relu))
        assert unchanged(mod, ("relu_mul", pattern))
        assert "is given to it as well" in reason(mod, "multiply", ("relu_mul", pattern))

    def test_a_use_that_only_the_result_sees_computes_twice(self) -> None:
        a, b = inputs("a", "b")
        total = relay.add(a, b)
        pattern = is_op("multiply")(is_op("add")(wildcard(), wildcard()), wildcard())
        result = merged(relay.multiply(total, relay.sigmoid(total)), ("add_mul", pattern))
        assert names(result) == [("add_mul", "add_multiply_")]
        (call,) = composites(result)
        assert [getattr(arg, "op_name", "") for arg in call.args] == ["", "", "sigmoid"]

    def test_what_depends_on_nothing_given_is_not_shared_with_a_function(self) -> None:
        pattern = is_op("multiply")(is_op("full")(), wildcard())
        zeros = relay.zeros((2, 3))
        mod = IRModule({"main": Function([], relay.multiply(zeros, relay.sigmoid(zeros)))})
        assert unchanged(mod, ("zeros_mul", pattern))

    def test_every_function_of_the_module_is_looked_into(self) -> None:
        mod = relay.parse(
            """
            def @main(%a: Tensor[(2, 3), float32]) { @f(%a) }
            def @f(%a: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] { nn.relu(add(%a, %a)) }
            """
        )
        mod = get_pass("InferType")(mod)
        result = merged(mod, ("add_relu", add_relu()))
        assert len(names(result)) == 1
        assert result["main"] is mod["main"]

    def test_functions_of_other_compilers_are_left(self) -> None:
        (a,) = inputs("a")
        function = Function([a], relay.nn.relu(relay.add(a, a)))
        for name in ("Compiler", "SkipOptimization", "Primitive", "Composite"):
            assert unchanged(IRModule({"main": function.with_attr(name, "other")}), ("add_relu", add_relu()))

    def test_composite_bodies_are_not_looked_into_again(self) -> None:
        a, b = inputs("a", "b")
        once = merged(relay.nn.relu(relay.add(a, b)), ("add_relu", add_relu()))
        assert unchanged(once, ("add", is_op("add")(wildcard(), wildcard())), ("add_relu", add_relu()))

    def test_a_later_pattern_matches_a_composite_call(self) -> None:
        a, b = inputs("a", "b")
        inner = is_function(None, wildcard()).has_attr({"Composite": "add_relu"})
        outer = is_op("tanh")(inner(wildcard(), wildcard()))
        result = merged(relay.tanh(relay.nn.relu(relay.add(a, b))), ("add_relu", add_relu()), ("tanh", outer))
        assert ("tanh", "add_nn.relu_FunctionCall_tanh_") in names(result)

    def test_each_branch_has_its_own(self) -> None:
        mod = relay.parse(
            """
            def @main(%a: Tensor[(2, 3), float32]) {
              if (less(sum(%a), 1f)) { nn.relu(add(%a, %a)) } else { let %x = nn.relu(add(%a, 2f)); tanh(%x) }
            }
            """
        )
        assert len(names(merged(get_pass("InferType")(mod), ("add_relu", add_relu())))) == 2

    def test_a_branch_that_is_cut_out_takes_what_it_computes_with_it(self) -> None:
        mod = relay.parse(
            """
            def @main(%a: Tensor[(2, 3), float32]) {
              %0 = tanh(%a);
              tanh(if (less(sum(%0), 1f)) { add(%0, exp(%a)) } else { %0 })
            }
            """
        )
        pattern = is_if(wildcard(), wildcard(), wildcard())
        result = merged(get_pass("InferType")(mod), ("branch", pattern))
        assert names(result) == [("branch", "exp_add_If_")]
        (call,) = composites(result)
        assert [getattr(arg, "op_name", "var") for arg in call.args] == ["less", "tanh", "var"]

    def test_the_way_to_a_dominator_is_cut_out_as_a_whole(self) -> None:
        data, kernel = relay.var("data", (1, 4, 5, 5)), relay.var("kernel", (4, 4, 3, 3))
        conv = relay.nn.conv2d(data, kernel, padding=(1, 1))
        elemwise = wildcard().has_attr({"kind": "elemwise"})(wildcard())
        pattern = dominates(is_op("nn.conv2d")(wildcard(), wildcard()), elemwise, is_op("add")(wildcard(), wildcard()))
        diamond = relay.add(relay.nn.relu(relay.nn.relu(conv)), relay.nn.leaky_relu(conv, alpha=0.5))
        (name,) = names(merged(diamond, ("diamond", pattern)))
        assert name == ("diamond", "nn.conv2d_nn.relu_nn.relu_nn.leaky_relu_add_")
        assert unchanged(relay.multiply(diamond, relay.tanh(conv)), ("diamond", pattern))
        short = relay.add(conv, relay.nn.relu(conv))
        assert names(merged(short, ("diamond", pattern))) == [("diamond", "nn.conv2d_nn.relu_add_")]


class TestEffects:
    def test_effects_keep_their_order(self) -> None:
        mod = relay.parse(
            """
            def @main(%a: Tensor[(2, 3), float32]) {
              let %r = ref(%a);
              let %s = ref(%a);
              add(ref_read(%r), nn.relu(ref_read(%s)))
            }
            """
        )
        mod = get_pass("InferType")(mod)
        in_order = is_op("add")(wildcard(), is_op("nn.relu")(wildcard()))
        assert len(names(merged(mod, ("add_relu", in_order)))) == 1
        swapped = is_op("add")(is_op("nn.relu")(wildcard()), wildcard())
        assert unchanged(mod, ("add_relu", swapped))
        assert "at another time" in reason(mod, "add", ("add_relu", swapped))


class TestReasons:
    MOD = """
        def @main(%a: Tensor[(2, 3), float32], %b: Tensor[(2, 3), float32]) {
          %0 = add(%a, %b);
          %1 = nn.relu(%0);
          (%1, tanh(%0), nn.relu(exp(%a)), sigmoid(%a))
        }
    """

    def test_the_deepest_mismatch_is_the_reason(self) -> None:
        mod = relay.parse(self.MOD, "m.relay")
        assert reason(mod, "nn.relu", ("add_relu", add_relu())) == (
            "expected a call of 'add', found a call of 'exp' (m.relay:5:34)"
        )

    def test_a_match_that_could_not_be_cut_out_says_why(self) -> None:
        mod = relay.parse(self.MOD, "m.relay")
        found = list(unmerged(mod, [("add_relu", add_relu())]))
        by_op = {each.call.op_name: (each.pattern, each.reason) for each in reversed(found)}
        assert by_op["nn.relu"] == (
            "add_relu",
            "the value of a call of 'add' is used outside, by a call of 'tanh' (m.relay:5:16)",
        )
        assert by_op["add"][0] == "add_relu"
        assert by_op["sigmoid"] == (None, "no pattern has 'sigmoid'")

    def test_the_nearest_pattern_gives_the_reason(self) -> None:
        a, w = inputs("a", "w", shape=(3, 3))
        conv = is_op("nn.conv2d")(wildcard(), wildcard()).optional(is_op("nn.relu"))
        table = (
            ("conv", conv.optional(lambda p: is_tuple_get_item(p, 0)).optional(is_op("nn.dense"))),
            ("dense", is_op("nn.dense")(wildcard(), is_constant()) | is_op("nn.matmul")(wildcard(), wildcard())),
        )
        (left,) = unmerged(IRModule.from_expr(relay.nn.dense(a, w)), table)
        assert (left.pattern, left.reason) == ("dense", "expected a constant, found variable '%w'")
        (other,) = unmerged(IRModule.from_expr(relay.tanh(a)), table)
        assert (other.pattern, other.reason) == (None, "no pattern has 'tanh'")
        any_call = (("any", wildcard()(wildcard(), wildcard())),)
        (two,) = unmerged(IRModule.from_expr(relay.tanh(a)), any_call)
        assert two.reason == "expected a call with 2 arguments, found a call of 'tanh' with 1 arguments"

    def test_the_check_says_why(self) -> None:
        a, b = inputs("a", "b")
        mod = IRModule.from_expr(relay.nn.relu(relay.add(a, b)))
        table = ("add_relu", add_relu(), lambda root: "rank 2 is not supported")
        assert reason(mod, "nn.relu", table) == "rank 2 is not supported"

    def test_what_is_merged_has_no_reason(self) -> None:
        a, b = inputs("a", "b")
        table = (("add_relu", add_relu()),)
        assert list(unmerged(merged(relay.nn.relu(relay.add(a, b)), *table), table)) == []


class TestTables:
    def test_a_function_or_a_decorator_registers_a_table(self) -> None:
        calls = []

        @register_pattern_table("mine")
        def table() -> list[Any]:
            calls.append("made")
            return [("add_relu", add_relu())]

        register_pattern_table("other", table)
        assert calls == ["made", "made"]
        found = get_pattern_table("mine")
        assert found is not None
        assert [entry.name for entry in found] == ["add_relu"]
        a, b = inputs("a", "b")
        mod = IRModule.from_expr(relay.nn.relu(relay.add(a, b)))
        assert len(names(get_pass("MergeComposite", table="mine")(mod))) == 1

    def test_the_latest_table_of_a_tag_holds(self) -> None:
        register_pattern_table("mine", lambda: [("one", add_relu())])
        register_pattern_table("mine", lambda: [("two", add_relu()), ("three", add_relu())])
        found = get_pattern_table("mine")
        assert found is not None
        assert [entry.name for entry in found] == ["two", "three"]

    def test_an_unknown_tag_has_no_table(self) -> None:
        assert get_pattern_table("nobody") is None
        register_pattern_table("mine", list)
        with pytest.raises(UserError, match="'mini'; the nearest are mine"):
            MergeComposite("mini")

    @pytest.mark.parametrize("entry", ["add", ("add",), ("add", 3), (3, wildcard()), ("a", wildcard(), 3)])
    def test_what_is_no_entry_is_an_error(self, entry: Any) -> None:
        with pytest.raises(UserError, match="pattern table"):
            MergeComposite([entry])


def test_rewrites_are_counted_one_by_one() -> None:
    a, b = inputs("a", "b")
    mod = IRModule.from_expr(relay.nn.relu(relay.add(relay.nn.relu(relay.add(a, b)), b)))
    context = PassContext()
    MergeComposite([("add_relu", add_relu())])(mod, context)
    assert context.rewrites.asked == 2


def chain(length: int) -> IRModule:
    a, b = inputs("a", "b")
    node: Expr = a
    for index in range(length):
        node = relay.nn.relu(relay.add(node, b)) if index % 2 else relay.tanh(relay.multiply(b, node))
    return IRModule({"main": Function([a, b], node)})


def test_long_programs_take_linear_time() -> None:
    shared = wildcard()
    table = [
        ("add_relu", add_relu()),
        ("squares", is_op("multiply")(is_op("add")(shared, wildcard()), is_op("subtract")(shared, wildcard()))),
        ("mul_tanh", is_op("tanh")(is_op("multiply")(wildcard(), wildcard()))),
        ("way", dominates(is_op("exp")(wildcard()), wildcard(), is_op("tanh")(wildcard()))),
        *((f"relu{index}", conv_bias_relu().optional(is_op("nn.relu"))) for index in range(6)),
    ]
    mod = chain(1000)
    start = time.process_time()
    result = MergeComposite(table)(mod)
    assert time.process_time() - start < 1
    assert len(names(result)) == 1000
    assert len(names(MergeComposite(table[:1])(chain(8_000)))) == 4_000
