"""Rewriting and partitioning by patterns: what is replaced or cut out, when, and what is left."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem
from relaybuild.ir.op import get_op
from relaybuild.ir.pattern import (
    DFPattern,
    DFPatternCallback,
    dominates,
    is_constant,
    is_expr,
    is_function,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.types import TensorType
from relaybuild.ir.visitor import post_order

KIND = TensorType((2, 3))
X, Y, Z = (relay.var(name, KIND) for name in "xyz")


class Replace(DFPatternCallback):
    """Replaces what a pattern matches by what a function makes of the match."""

    def __init__(self, pattern: DFPattern, make: Callable[[Mapping[Any, Any], Expr], Expr], **options: bool) -> None:
        super().__init__(**options)
        self.pattern = pattern
        self.make = make
        self.calls = 0

    def callback(self, pre: Expr, post: Expr, node_map: Mapping[Any, Any]) -> Expr:
        self.calls += 1
        return self.make(node_map, post)


def cancel() -> Replace:
    """`(a + b) - b` becomes `a`."""
    a, b = wildcard(), wildcard()
    return Replace(is_op("subtract")(is_op("add")(a, b), b), lambda found, post: found[a][0])


class TestRewrite:
    def test_a_match_is_replaced(self) -> None:
        """DP47: what matches is replaced by what the callback returns."""
        assert cancel().rewrite(relay.subtract(relay.add(X, Y), Y)) is X

    def test_nothing_matches(self) -> None:
        node = relay.subtract(relay.add(X, Y), Z)
        assert cancel().rewrite(node) is node

    def test_matches_within_matches_are_replaced_too(self) -> None:
        """DP48: replacements below are seen by those above, until nothing changes."""
        node: Expr = X
        for _ in range(5):
            node = relay.subtract(relay.add(node, Y), Y)
        assert cancel().rewrite(node) is X

    def test_what_a_replacement_makes_possible_is_done(self) -> None:
        """DP55: what a replacement makes possible is done as well."""
        inner = relay.subtract(relay.add(Y, Z), Z)
        assert cancel().rewrite(relay.subtract(relay.add(X, inner), Y)) is X

    def test_several_callbacks_work_in_turn(self) -> None:
        """DP49: a list of callbacks is applied in order, over and over."""
        x = wildcard()
        to_exp = Replace(is_op("tanh")(x), lambda found, post: relay.exp(found[x][0]))
        y = wildcard()
        to_log = Replace(is_op("exp")(y), lambda found, post: relay.log(found[y][0]))
        assert structural_equal(rewrite([to_exp, to_log], relay.tanh(X)), relay.log(X), map_free_vars=False)
        assert structural_equal(rewrite([to_log, to_exp], relay.tanh(X)), relay.log(X), map_free_vars=False)

    def test_once_is_once(self) -> None:
        """DP50: with rewrite_once a callback sees the expression once, and its own results no more."""
        x = wildcard()
        add = is_op("add")(x, wildcard())
        nested = Replace(add, lambda found, post: relay.add(post, X), rewrite_once=True)
        assert structural_equal(nested.rewrite(relay.add(X, Y)), relay.add(relay.add(X, Y), X), map_free_vars=False)
        assert nested.calls == 1

    def test_a_callback_that_never_ends_is_an_error(self) -> None:
        """DP51: callbacks whose results match for ever are stopped."""
        endless = Replace(is_op("add")(wildcard(), wildcard()), lambda found, post: relay.tanh(post))
        with pytest.raises(UserError, match="still changes after 100 rounds"):
            endless.rewrite(relay.add(X, Y))

    def test_equal_results_end_it(self) -> None:
        """DP56: a callback whose results are equal to what they replace comes to an end."""
        x, y = wildcard(), wildcard()
        same = Replace(is_op("add")(x, y), lambda found, post: relay.add(found[x][0], found[y][0]))
        assert structural_equal(same.rewrite(relay.add(X, Y)), relay.add(X, Y), map_free_vars=False)
        assert same.calls == 1

    def test_types_are_there_where_they_are_wanted(self) -> None:
        """DP52: with require_type a callback sees types that construction did not know."""
        name = relay.var("name")
        node = Let(name, relay.tanh(X), relay.exp(name))
        kinds: list[Any] = []
        x = wildcard()
        asking = Replace(
            is_op("exp")(x), lambda found, post: (kinds.append(found[x][0].checked_type), post)[1], require_type=True
        )
        asking.rewrite(node)
        assert kinds == [KIND]

    def test_a_node_used_elsewhere_may_be_part_of_a_match(self) -> None:
        """DP57: a node that is used elsewhere too may be part of a match."""
        total = relay.add(X, Y)
        node = Tuple([relay.subtract(total, Y), total])
        assert structural_equal(cancel().rewrite(node), Tuple([X, total]), map_free_vars=False)

    def test_branches_lets_and_functions_are_replaced(self) -> None:
        """DP53: whatever kind of expression matches is replaced."""
        cond = relay.var("cond", TensorType((), "bool"))
        c, t, f = wildcard(), wildcard(), wildcard()
        choose = Replace(is_if(c, t, f), lambda found, post: relay.where(found[c][0], found[t][0], found[f][0]))
        expected = relay.where(cond, relay.tanh(X), Y)
        assert structural_equal(choose.rewrite(If(cond, relay.tanh(X), Y)), expected, map_free_vars=False)
        name = relay.var("name", KIND)
        v = wildcard()
        unlet = Replace(is_let(is_var(), v, wildcard()), lambda found, post: found[v][0])
        assert structural_equal(unlet.rewrite(Let(name, relay.tanh(X), name)), relay.tanh(X), map_free_vars=False)
        function = Function([X], relay.tanh(X))
        b = wildcard()
        constant = Replace(is_function(None, b)(wildcard()), lambda found, post: Y)
        assert constant.rewrite(Call(function, [Z])) is Y

    def test_inside_functions_and_branches(self) -> None:
        """DP58: what matches inside of functions and branches is replaced."""
        function = Function([X, Y], relay.subtract(relay.add(X, Y), Y))
        result = cancel().rewrite(function)
        assert isinstance(result, Function)
        assert result.body is X

    def test_functions_that_were_cut_out_are_left(self) -> None:
        """DP59: functions that were cut out are left as they are."""
        function = Function([X, Y], relay.subtract(relay.add(X, Y), Y)).with_attr("Composite", "mine")
        node = Call(function, [Y, Z])
        assert cancel().rewrite(node) is node

    def test_a_constant_within_them_is_left_as_well(self) -> None:
        half, double = relay.const(0.5), relay.const(2.0)
        function = Function([X], relay.multiply(X, half)).with_attr("Composite", "mine")
        node = is_expr(half).rewrite(lambda pre, post, found: double, relay.add(Call(function, [Y]), half))
        assert isinstance(node, Call)
        assert node.args[1] is double
        assert isinstance(node.args[0], Call)
        assert node.args[0].op is function

    def test_a_pattern_rewrites_with_a_function(self) -> None:
        x = wildcard()
        pattern = is_op("tanh")(x)
        result = pattern.rewrite(lambda pre, post, found: relay.exp(found[x][0]), relay.tanh(relay.tanh(X)))
        assert structural_equal(result, relay.exp(relay.exp(X)), map_free_vars=False)

    def test_a_normalisation_by_hand_becomes_one_call(self) -> None:
        """DP54: a pattern of many operators, with constants of any value, in either order of each sum."""
        data, gamma, beta, mean, variance = (relay.var(name, (3,)) for name in ("d", "g", "b", "m", "v"))
        d, g, b, m, v = (wildcard() for _ in range(5))
        eps = is_constant()
        pattern = g * (d - m) / is_op("sqrt")(v + eps) + b

        def fuse(found: Mapping[Any, Any], post: Expr) -> Expr:
            epsilon = found[eps][0].data.item()
            column = [relay.reshape(found[each][0], newshape=(3,)) for each in (g, b, m, v)]
            norm = relay.nn.batch_norm(relay.reshape(found[d][0], newshape=(1, 3)), *column, epsilon=epsilon)
            return TupleGetItem(norm, 0)

        fused = Replace(pattern, fuse)
        normed = gamma * (data - mean) / relay.sqrt(relay.const(1e-3, "float32") + variance)
        for node in (normed + beta, beta + normed):
            result = fused.rewrite(node)
            assert isinstance(result, TupleGetItem)
        other = Replace(pattern, fuse)
        node = gamma * (data - mean) / relay.sqrt(variance + beta) + beta
        assert other.rewrite(node) is node


def functions_in(node: Expr) -> list[Function]:
    return [each for each in post_order(node) if isinstance(each, Function)]


def cut(pattern: DFPattern, node: Expr, **options: Any) -> list[str]:
    """What the functions of a partitioned expression say they come from."""
    return [str(each.attrs["PartitionedFromPattern"]) for each in functions_in(pattern.partition(node, **options))]


class TestPartition:
    def test_a_match_becomes_a_call(self) -> None:
        """DP60: a match is a call of a function that says what it comes from, with the given attributes."""
        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
        call = pattern.partition(relay.nn.relu(relay.add(X, Y)), {"Composite": "mine"})
        assert isinstance(call, Call)
        assert call.args == (X, Y)
        assert call.checked_type == KIND
        assert isinstance(call.op, Function)
        assert call.op.attrs == {"Composite": "mine", "PartitionedFromPattern": "add_nn.relu_"}
        assert [param.name_hint for param in call.op.params] == ["FunctionVar_0_0", "FunctionVar_0_1"]
        assert [param.checked_type for param in call.op.params] == [KIND, KIND]

    def test_nothing_matches(self) -> None:
        node = relay.tanh(X)
        assert is_op("exp")(wildcard()).partition(node) is node

    def test_matches_one_after_the_other(self) -> None:
        """DP61: matches that follow each other are functions that call each other's results."""
        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
        node = relay.nn.relu(relay.add(relay.nn.relu(relay.add(X, Y)), Y))
        assert cut(pattern, node) == ["add_nn.relu_", "add_nn.relu_"]

    def test_overlapping_matches(self) -> None:
        """DP62: of overlapping matches the one nearer to the result is taken."""
        pattern = is_op("tanh")(is_op("tanh")(wildcard()))
        node = relay.tanh(relay.tanh(relay.tanh(X)))
        result = pattern.partition(node)
        assert cut(pattern, node) == ["tanh_tanh_"]
        assert isinstance(result, Call)
        assert isinstance(result.args[0], Call)
        assert result.args[0].op is get_op("tanh")

    def test_a_value_used_outside(self) -> None:
        """DP63: a match within which a value is used outside is left."""
        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
        total = relay.add(X, Y)
        node = Tuple([relay.nn.relu(total), relay.tanh(total)])
        assert pattern.partition(node) is node

    def test_a_use_outside_that_leads_to_the_result_alone(self) -> None:
        """DP64: a use outside of which the match's result alone is made does not matter."""
        pattern = is_op("multiply")(is_op("add")(wildcard(), wildcard()), wildcard())
        total = relay.add(X, Y)
        assert cut(pattern, relay.multiply(total, relay.sigmoid(total))) == ["add_multiply_"]

    def test_branches_of_the_same_operand(self) -> None:
        """DP65: matches side by side over one operand are cut out each."""
        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
        left, right = relay.nn.relu(relay.add(X, Y)), relay.nn.relu(relay.add(X, Z))
        assert cut(pattern, relay.multiply(left, right)) == ["add_nn.relu_", "add_nn.relu_"]

    def test_the_same_expression_twice(self) -> None:
        """DP66: equal expressions that are two nodes are two functions; one node is one."""
        pattern = is_op("nn.relu")(is_op("add")(wildcard(), wildcard()))
        one = relay.nn.relu(relay.add(X, Y))
        assert len(cut(pattern, relay.multiply(one, one))) == 1
        assert len(cut(pattern, relay.multiply(one, relay.nn.relu(relay.add(X, Y))))) == 2

    def test_tuples_of_any_fields(self) -> None:
        """DP67: the fields of a tuple of any fields, and the arguments of a call of any, are given."""
        pattern = is_op("concatenate")(is_tuple())
        call = pattern.partition(relay.concatenate([X, relay.tanh(Y), X], axis=0))
        assert isinstance(call, Call)
        assert call.args[0] is X
        assert len(call.args) == 2
        any_add = is_op("tanh")(is_op("add")(None)).partition(relay.tanh(relay.add(X, Y)))
        assert isinstance(any_add, Call)
        assert any_add.args == (X, Y)

    def test_a_check_by_attributes(self) -> None:
        """DP68: a check sees the root that matched, and keeps what it refuses."""
        data, weight = relay.var("d", (1, 4, 5, 5)), relay.var("w", (4, 4, 1, 1))
        conv = is_op("nn.conv2d")(wildcard(), wildcard())
        node = relay.nn.conv2d(data, weight, strides=(2, 2))
        assert cut(conv, node, check=lambda root: root.attrs.strides == (2, 2)) == ["nn.conv2d_"]
        assert cut(conv, node, check=lambda root: root.attrs.strides == (1, 1)) == []

    def test_a_check_by_types(self) -> None:
        """DP69: a check sees types."""
        pattern = is_op("tanh")(wildcard())
        assert cut(pattern, relay.tanh(X), check=lambda root: root.checked_type == KIND) == ["tanh_"]
        assert cut(pattern, relay.tanh(X), check=lambda root: root.checked_type != KIND) == []

    def test_optional_parts(self) -> None:
        """DP70: an optional part is cut out where it is there."""
        pattern = is_op("add")(wildcard(), wildcard()).optional(is_op("nn.relu"))
        assert cut(pattern, relay.nn.relu(relay.add(X, Y))) == ["add_nn.relu_"]
        assert cut(pattern, relay.tanh(relay.add(X, Y))) == ["add_"]

    def test_function_bodies(self) -> None:
        """DP71: a function that is matched goes along whole, and is no argument."""
        p, q = (relay.var(name, KIND) for name in "pq")
        function = Function([p, q], relay.add(p, q))
        body = is_function([is_var("p"), is_var("q")], is_op("add")(is_var("p"), is_var("q")))
        pattern = is_op("add")(body(wildcard(), wildcard()), wildcard())
        result = pattern.partition(relay.add(Call(function, [X, Y]), Z))
        assert isinstance(result, Call)
        assert result.args == (X, Y, Z)
        assert isinstance(result.op, Function)
        assert result.op.attrs["PartitionedFromPattern"] == "add_FunctionCall_add_"

    def test_what_a_function_captures_is_given(self) -> None:
        """DP77: what a function that is matched captures is an argument."""
        p = relay.var("p", KIND)
        shared = relay.exp(Y)
        function = Function([p], relay.add(p, relay.multiply(Z, shared)))
        pattern = is_op("tanh")(wildcard()(wildcard()))
        result = pattern.partition(Tuple([relay.tanh(Call(function, [X])), shared]))
        assert isinstance(result, Tuple)
        call = result.fields[0]
        assert isinstance(call, Call)
        assert call.args == (X, Z, shared)

    def test_lets(self) -> None:
        """DP72: a let that is matched takes its variable and its body with it."""
        name = relay.var("name", KIND)
        node = relay.tanh(Let(name, relay.exp(X), relay.add(name, Y)))
        pattern = is_op("tanh")(is_let(is_var(), wildcard(), wildcard()))
        result = pattern.partition(node)
        assert isinstance(result, Call)
        assert [getattr(arg, "op_name", "var") for arg in result.args] == ["exp", "var"]
        assert cut(pattern, node) == ["add_Let_tanh_"]

    def test_embedded_constants(self) -> None:
        """DP73: a constant that is asked for stays in the function, one that is not is given."""
        half, other = relay.const(0.5), relay.const(2.0)
        node = relay.add(relay.multiply(X, half), other)
        for constant in (is_constant(), is_expr(half)):
            call = is_op("add")(is_op("multiply")(wildcard(), constant), wildcard()).partition(node)
            assert isinstance(call, Call)
            assert call.args == (X, other)

    def test_fields_of_tuples(self) -> None:
        """DP74: fields of tuples are named with their index."""
        node = TupleGetItem(relay.split(X, indices_or_sections=3, axis=1), 2)
        assert cut(is_tuple_get_item(is_op("split")(wildcard())), node) == ["split_TupleGetItem2_"]
        two = Tuple([node, TupleGetItem(node.tuple_value, 1)])
        assert cut(is_tuple_get_item(is_op("split")(wildcard())), two) == []

    def test_dominated_ways(self) -> None:
        """DP75: all that lies between a dominator and its parent goes along, and nothing of it is an argument."""
        elemwise = wildcard().has_attr({"kind": "elemwise"})(wildcard())
        pattern = dominates(is_op("nn.softmax")(wildcard()), elemwise, is_op("add")(wildcard(), wildcard()))
        top = relay.nn.softmax(X)
        call = pattern.partition(relay.add(relay.tanh(relay.exp(top)), relay.exp(top)))
        assert isinstance(call, Call)
        assert call.args == (X,)

    def test_a_wildcard_alone_computes_nothing(self) -> None:
        """DP78: a match that computes nothing is not cut out."""
        node = relay.tanh(X)
        assert wildcard().partition(node) is node

    def test_what_is_computed_nowhere_is_not_cut_out(self) -> None:
        """DP79: what no call computes is not cut out."""
        half = relay.const(0.5)
        inner = Function([X], relay.multiply(X, half)).with_attr("Composite", "mine")
        node = relay.add(Call(inner, [Y]), half)
        for pattern in (is_constant(), is_var(), wildcard()):
            assert pattern.partition(node) is node

    def test_twice_is_once(self) -> None:
        """DP76: functions cut out are not looked into again."""
        pattern = is_op("add")(wildcard(), wildcard())
        once = pattern.partition(relay.tanh(relay.add(X, Y)))
        assert pattern.partition(once) is once
