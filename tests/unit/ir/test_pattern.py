"""Patterns: what each kind matches, what it does not, and what a failed match says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from relaybuild import relay
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem
from relaybuild.ir.op import OpKind, get_op
from relaybuild.ir.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    Match,
    OpPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
    dominates,
    find_match,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_function,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from relaybuild.ir.types import TensorType

KIND = TensorType((2, 3))
X = relay.var("x", KIND)
Y = relay.var("y", KIND)
COND = relay.var("cond", TensorType((), "bool"))


class TestConstructors:
    @pytest.mark.parametrize(
        ("pattern", "kind", "fields"),
        [
            (wildcard(), WildcardPattern, {}),
            (is_var("x"), VarPattern, {"name": "x"}),
            (is_var(), VarPattern, {"name": ""}),
            (is_constant(), ConstantPattern, {}),
            (is_expr(X), ExprPattern, {"expr": X}),
            (is_op("add"), OpPattern, {"op": get_op("add")}),
            (is_tuple(), TuplePattern, {"fields": None}),
            (is_tuple_get_item(wildcard(), 1), TupleGetItemPattern, {"index": 1}),
            (is_tuple_get_item(wildcard()), TupleGetItemPattern, {"index": None}),
            (is_op("add")(None), CallPattern, {"args": None}),
            (has_type(KIND), TypePattern, {"wanted": KIND}),
            (has_dtype("int8"), DataTypePattern, {"dtype": "int8"}),
            (has_shape([2, None]), ShapePattern, {"shape": (2, None)}),
            (has_attr({"axis": 1}), AttrPattern, {"attrs": {"axis": 1}}),
        ],
    )
    def test_fields_are_what_was_given(self, pattern: DFPattern, kind: type[Any], fields: dict[str, object]) -> None:
        """DP01, DP03-DP15: a pattern keeps what it was made of, of whatever kind it is."""
        assert type(pattern) is kind
        assert {name: getattr(pattern, name) for name in fields} == fields

    def test_parts_are_the_patterns_that_were_given(self) -> None:
        """DP02: a pattern made of patterns keeps them, in order."""
        a, b, c = wildcard(), wildcard(), wildcard()
        assert is_op("add")(a, b).parts[1:] == (a, b)
        assert is_if(a, b, c).parts == is_let(a, b, c).parts == (a, b, c)
        assert is_tuple([a, b]).parts == (a | b).parts == (a, b)
        assert FunctionPattern((a, b), c).parts == is_function([a, b], c).parts == (a, b, c)
        assert IfPattern(a, b, c).cond is LetPattern(a, b, c).var is a
        assert isinstance(a | b, AltPattern)
        assert dominates(a, b, c).parts[0] is c
        assert isinstance(c.dominates(a, b), DominatorPattern)

    @pytest.mark.parametrize(
        ("make", "name"),
        [
            (lambda a, b: a + b, "add"),
            (lambda a, b: a - b, "subtract"),
            (lambda a, b: a * b, "multiply"),
            (lambda a, b: a / b, "divide"),
        ],
    )
    def test_arithmetic_on_patterns_is_calls(
        self, make: Callable[[DFPattern, DFPattern], DFPattern], name: str
    ) -> None:
        assert make(wildcard(), wildcard()).match(relay.Call(get_op(name), [X, Y]))

    def test_an_unknown_operator_is_an_error(self) -> None:
        with pytest.raises(UserError, match=r"unknown operator 'nn.conv2'; the nearest are .*nn.conv2d"):
            is_op("nn.conv2")

    def test_arguments_of_a_pattern_are_patterns(self) -> None:
        argument: Any = X
        with pytest.raises(TypeError, match="are patterns"):
            is_op("add")(argument, argument)


class TestMatches:
    def test_an_operator(self) -> None:
        """DP16: a call of the operator, of no other."""
        pattern = is_op("add")(wildcard(), wildcard())
        assert pattern.match(relay.add(X, Y))
        assert not pattern.match(relay.subtract(X, Y))
        assert not pattern.match(X)

    def test_either_of_two(self) -> None:
        """DP17: an alternative matches what one of the two matches."""
        pattern = is_op("add")(wildcard(), wildcard()) | is_op("subtract")(wildcard(), wildcard())
        assert pattern.match(relay.add(X, Y))
        assert pattern.match(relay.subtract(X, Y))
        assert not pattern.match(relay.multiply(X, Y))
        either = (is_op("add") | is_op("subtract"))(wildcard(), wildcard())
        assert either.match(relay.subtract(X, Y))
        assert not either.match(relay.multiply(X, Y))

    @pytest.mark.parametrize("name", ["add", "multiply", "maximum", "equal"])
    def test_a_commutative_call_in_either_order(self, name: str) -> None:
        """DP18: arguments of a commutative operator match in either order."""
        pattern = is_op(name)(is_expr(X), is_expr(Y))
        assert pattern.match(relay.Call(get_op(name), [X, Y]))
        assert pattern.match(relay.Call(get_op(name), [Y, X]))
        assert not pattern.match(relay.Call(get_op(name), [X, X]))

    @pytest.mark.parametrize("name", ["subtract", "divide", "less"])
    def test_another_call_in_its_order_only(self, name: str) -> None:
        """DP19: arguments of other operators match in order."""
        pattern = is_op(name)(is_expr(X), is_expr(Y))
        assert pattern.match(relay.Call(get_op(name), [X, Y]))
        assert not pattern.match(relay.Call(get_op(name), [Y, X]))

    def test_choices_are_taken_back(self) -> None:
        """DP36: an operand that was matched one way is matched another where the rest needs it."""
        a, b = wildcard(), wildcard()
        inner = is_op("add")(a, b)
        assert is_op("subtract")(inner, a).match(relay.subtract(relay.add(X, Y), Y))
        either = is_op("negative")(a) | b
        assert is_op("subtract")(either, a).match(relay.subtract(relay.negative(X), X))
        assert is_op("subtract")(either, a).match(relay.subtract(relay.negative(X), Y))

    def test_a_call_with_any_arguments(self) -> None:
        """DP20: a call of the operator whatever its arguments, and of any callee."""
        assert is_op("add")(None).match(relay.add(X, Y))
        assert is_op("where")(None).match(relay.where(relay.less(X, Y), X, Y))
        assert not is_op("add")(None).match(relay.subtract(X, Y))
        assert wildcard()(None).match(relay.tanh(X))
        assert wildcard()(None).match(Call(Function([X], X), [Y]))
        assert not wildcard()(wildcard()).match(relay.add(X, Y))

    def test_a_function(self) -> None:
        """DP21: a function of such parameters and such a body."""
        function = Function([X, Y], relay.add(X, Y))
        a, b = wildcard(), wildcard()
        assert is_function([a, b], is_op("add")(a, b)).match(function)
        assert is_function(None, is_op("add")(wildcard(), wildcard())).match(function)
        assert not is_function([a, b], is_op("subtract")(a, b)).match(function)
        assert not is_function([a], wildcard()).match(function)
        assert not is_function([a, b], wildcard()).match(relay.add(X, Y))

    def test_a_branch(self) -> None:
        """DP22: a branch on such a condition with such branches."""
        node = If(COND, relay.add(X, Y), relay.tanh(X))
        pattern = is_if(is_var("cond"), is_op("add")(is_var("x"), is_var("y")), is_op("tanh")(is_var("x")))
        assert pattern.match(node)
        assert not pattern.match(If(COND, relay.tanh(X), relay.add(X, Y)))
        assert not pattern.match(X)

    def test_a_let(self) -> None:
        """DP23: a let of such a variable, value and body."""
        name = relay.var("name", KIND)
        pattern = is_let(is_var("name"), is_op("tanh")(is_var("x")), is_var("name"))
        assert pattern.match(Let(name, relay.tanh(X), name))
        assert not pattern.match(Let(name, relay.exp(X), name))
        assert not pattern.match(relay.tanh(X))

    def test_an_optional_part(self) -> None:
        """DP24: with the optional part and without, but not with another."""
        conv = is_op("nn.dense")(wildcard(), wildcard())
        pattern = conv.optional(lambda p: is_op("nn.bias_add")(p, wildcard())).optional(is_op("nn.relu"))
        dense = relay.nn.dense(relay.var("d", (3, 3)), relay.var("w", (3, 3)))
        biased = relay.nn.bias_add(dense, relay.var("b", (3,)))
        for node in (dense, biased, relay.nn.relu(dense), relay.nn.relu(biased)):
            assert pattern.match(node)
        assert not pattern.match(relay.tanh(dense))
        found = find_match(pattern, relay.nn.relu(biased))
        assert isinstance(found, Match)
        assert found[conv] == (dense,)

    def test_a_constant(self) -> None:
        """DP25: a constant, where one is asked for."""
        pattern = is_op("add")(wildcard(), is_constant())
        assert pattern.match(relay.add(X, relay.const(1.0)))
        assert pattern.match(relay.add(relay.const(1.0), X))
        assert not pattern.match(relay.add(X, Y))

    def test_a_variable(self) -> None:
        """DP26: a variable, of the name that is asked for."""
        assert is_var().match(X)
        assert is_var("x").match(X)
        assert not is_var("y").match(X)
        assert not is_var().match(relay.const(1))

    def test_an_equal_expression(self) -> None:
        """DP27: an expression that is equal; a variable is itself alone."""
        assert is_expr(relay.const([1.0, 2.0])).match(relay.const([1.0, 2.0]))
        assert not is_expr(relay.const([1.0, 2.0])).match(relay.const([1.0, 3.0]))
        assert not is_expr(relay.const(1)).match(relay.const(1.0))
        assert is_expr(relay.tanh(X)).match(relay.tanh(X))
        assert not is_expr(relay.tanh(X)).match(relay.tanh(Y))
        assert not is_expr(relay.tanh(X)).match(relay.exp(X))
        assert not is_expr(X).match(relay.var("x", KIND))

    def test_a_tuple(self) -> None:
        """DP28: a tuple of such fields; of any fields where none are given."""
        node = Tuple([X, Y])
        assert is_tuple([is_var("x"), wildcard()]).match(node)
        assert is_tuple().match(node)
        assert not is_tuple([is_var("y"), wildcard()]).match(node)
        assert not is_tuple([wildcard()]).match(node)
        assert not is_tuple([wildcard()] * 3).match(node)
        assert not is_tuple().match(X)
        assert is_op("concatenate")(is_tuple()).match(relay.concatenate([X, Y, X], axis=0))

    def test_a_field_of_a_tuple(self) -> None:
        """DP29: a field of the index asked for, or of any."""
        node = TupleGetItem(Tuple([X, Y]), 1)
        pair = is_tuple([wildcard(), wildcard()])
        assert is_tuple_get_item(pair, 1).match(node)
        assert is_tuple_get_item(pair).match(node)
        assert not is_tuple_get_item(pair, 0).match(node)
        assert not is_tuple_get_item(is_var(), 1).match(node)

    def test_a_type(self) -> None:
        """DP30: what has the type."""
        node = relay.add(X, Y)
        assert has_type(KIND, is_op("add")(wildcard(), wildcard())).match(node)
        assert not has_type(TensorType((2, 3), "float64")).match(node)
        assert not has_type(KIND, is_op("subtract")(wildcard(), wildcard())).match(node)

    def test_a_dtype(self) -> None:
        """DP31: a tensor of the elements asked for."""
        assert has_dtype("float32").match(X)
        assert not wildcard().has_dtype("float16").match(X)
        assert not has_dtype("float32").match(Tuple([X]))

    def test_a_shape(self) -> None:
        """DP32: a tensor of the shape asked for; None is any extent."""
        assert has_shape((2, 3)).match(X)
        assert has_shape([None, 3]).match(X)
        assert not has_shape((3, 2)).match(X)
        assert not has_shape((None,)).match(X)
        assert not has_shape(()).match(Tuple([]))
        assert not has_shape((2, 3)).match(relay.var("untyped"))

    def test_attributes_of_a_call(self) -> None:
        """DP33: a call with these values of attributes; lists and tuples are equal."""
        node = relay.nn.conv2d(relay.var("d", (1, 4, 5, 5)), relay.var("w", (4, 4, 3, 3)), strides=(2, 2))
        conv = is_op("nn.conv2d")(wildcard(), wildcard())
        assert conv.has_attr({"strides": [2, 2], "groups": 1}).match(node)
        assert not conv.has_attr({"strides": [1, 1]}).match(node)
        assert not conv.has_attr({"kernel": 3}).match(node)
        assert not has_attr({"strides": [2, 2]}).match(X)

    def test_attributes_of_an_operator(self) -> None:
        """DP34: an operator with these fields, as of what kind it is."""
        elemwise = wildcard().has_attr({"kind": "elemwise"})(wildcard())
        assert elemwise.match(relay.nn.relu(X))
        assert wildcard().has_attr({"kind": OpKind.ELEMWISE})(wildcard()).match(relay.nn.relu(X))
        assert not elemwise.match(relay.nn.softmax(X))
        assert not is_op("add").has_attr({"kind": "opaque"})(wildcard(), wildcard()).match(relay.add(X, Y))

    def test_attributes_of_a_function(self) -> None:
        """DP35: a function with these attributes, and a call of one."""
        function = Function([X], relay.tanh(X)).with_attr("Composite", "mine")
        pattern = is_function(None, wildcard()).has_attr({"Composite": "mine"})
        assert pattern.match(function)
        assert not pattern.match(Function([X], relay.tanh(X)))
        assert not pattern.match(function.with_attr("Composite", "yours"))
        assert pattern(is_var("y")).match(Call(function, [Y]))
        assert wildcard().has_attr({"Composite": "mine"})(wildcard()).match(Call(function, [Y]))

    def test_a_pattern_in_several_places_is_one_node(self) -> None:
        """DP37-DP41: a pattern that stands twice matches one node, not two equal ones."""
        x = wildcard()
        assert is_op("add")(x, x).match(relay.add(X, X))
        assert not is_op("add")(x, x).match(relay.add(X, Y))
        relu = is_op("nn.relu")(wildcard())
        one, other = relay.nn.relu(X), relay.nn.relu(X)
        assert is_op("add")(relu, relu).match(relay.add(one, one))
        assert not is_op("add")(relu, relu).match(relay.add(one, other))


def diamond_parts() -> tuple[DFPattern, DFPattern, DFPattern]:
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    return conv, wildcard().has_attr({"kind": "elemwise"})(wildcard()), is_op("add")(wildcard(), wildcard())


def conv_of(data: Expr) -> Call:
    return relay.nn.conv2d(data, relay.var("w", (4, 4, 3, 3)), padding=(1, 1))


DATA = relay.var("data", (1, 4, 5, 5))


class TestDominators:
    def test_a_diamond(self) -> None:
        """DP42: a diamond whose upper end is one node."""
        top = is_op("tanh")(wildcard())
        pattern = is_op("add")(is_op("nn.relu")(top), is_op("exp")(top))
        node = relay.tanh(X)
        assert pattern.match(relay.add(relay.nn.relu(node), relay.exp(node)))
        assert not pattern.match(relay.add(relay.nn.relu(relay.tanh(X)), relay.exp(relay.tanh(X))))

    def test_ways_of_any_length(self) -> None:
        """DP43: every way back leads to the parent."""
        conv, path, child = diamond_parts()
        node = conv_of(DATA)
        way = relay.nn.relu(relay.nn.relu(node))
        found = find_match(dominates(conv, path, child), relay.add(way, relay.nn.leaky_relu(node, alpha=0.5)))
        assert isinstance(found, Match)
        assert found[conv] == (node,)
        assert {node.op_name for node in found[path] if isinstance(node, Call)} == {"nn.relu", "nn.leaky_relu"}
        assert len(found[path]) == 3

    def test_a_way_that_does_not_lead_to_the_parent(self) -> None:
        """DP44: a diamond with two upper ends, or a way past the parent, is none."""
        pattern = dominates(*diamond_parts())
        node = conv_of(DATA)
        assert not pattern.match(relay.add(relay.nn.relu(node), relay.nn.relu(conv_of(DATA))))
        assert not pattern.match(relay.add(relay.nn.relu(node), relay.nn.relu(DATA)))
        assert not pattern.match(relay.add(relay.nn.relu(node), DATA))
        assert not pattern.match(relay.add(relay.nn.softmax(node), relay.nn.relu(node)))

    def test_a_parent_that_is_used_elsewhere(self) -> None:
        """DP45: where something else is made of the parent, it is not dominated."""
        pattern = dominates(*diamond_parts())
        node = conv_of(DATA)
        inner = relay.add(relay.nn.relu(node), relay.nn.relu(node))
        assert pattern.match(inner)
        assert is_op("tanh")(pattern).match(relay.tanh(inner))
        assert not is_op("subtract")(pattern, wildcard()).match(relay.subtract(inner, node))
        assert not is_op("subtract")(pattern, wildcard()).match(relay.subtract(inner, relay.tanh(node)))

    def test_types_along_the_way(self) -> None:
        """DP46: the parts of a dominator may ask for types."""
        conv, path, child = diamond_parts()
        node = conv_of(DATA)
        diamond = relay.add(relay.nn.relu(node), relay.nn.relu(node))
        assert dominates(has_dtype("float32", conv), path, child).match(diamond)
        assert not dominates(conv, has_dtype("float16", path), child).match(diamond)

    def test_the_parent_itself_as_operand(self) -> None:
        conv, path, child = diamond_parts()
        node = conv_of(DATA)
        assert dominates(conv, path, child).match(relay.add(node, relay.nn.relu(node)))


class TestReasons:
    def reason(self, pattern: DFPattern, text: str) -> str:
        mismatch = pattern.why_not(
            relay.parse(f"def @main(%x: Tensor[(2, 3), float32]) {{\n{text}\n}}", "m")["main"].body
        )
        assert mismatch is not None
        return str(mismatch)

    def test_no_reason_for_a_match(self) -> None:
        assert wildcard().why_not(X) is None

    @pytest.mark.parametrize(
        ("pattern", "text", "expected"),
        [
            (is_op("tanh")(wildcard()), "exp(%x)", "expected a call of 'tanh', found a call of 'exp' (m:2:1)"),
            (is_op("tanh")(is_constant()), "tanh(%x)", "expected a constant, found variable '%x' (m:2:1)"),
            (
                is_op("tanh")(is_op("exp")(is_op("abs")(wildcard()))),
                "tanh(exp(negative(%x)))",
                "expected a call of 'abs', found a call of 'negative' (m:2:10)",
            ),
            (
                is_op("add")(is_op("exp")(is_var("y")), is_constant()),
                "add(exp(%x), 1f)",
                "expected variable '%y', found variable '%x' (m:2:5)",
            ),
            (
                is_op("nn.softmax")(wildcard()).has_attr({"axis": 0}),
                "nn.softmax(%x)",
                "expected axis=0, found a call of 'nn.softmax' with axis=-1 (m:2:1)",
            ),
            (
                has_shape((2, None), is_op("sum")(wildcard())),
                "sum(%x)",
                "expected a tensor of shape (2, any), found a call of 'sum', whose type is float32 (m:2:1)",
            ),
            (is_tuple([wildcard()]), "(%x, %x)", "expected a tuple of 1 fields, found a tuple of 2 fields (m:2:1)"),
            (is_tuple_get_item(wildcard(), 1), "(%x, %x).0", "expected field 1 of a tuple, found field 0 (m:2:9)"),
            (is_var() | is_constant(), "tanh(%x)", "expected a variable, found a call of 'tanh' (m:2:1)"),
            (is_if(wildcard(), wildcard(), wildcard()), "%x", "expected an If, found variable '%x' (m:1:11)"),
        ],
    )
    def test_what_was_expected_and_found(self, pattern: DFPattern, text: str, expected: str) -> None:
        assert self.reason(pattern, text) == expected

    def test_two_nodes_where_one_is_wanted(self) -> None:
        x = wildcard()
        found = self.reason(is_op("subtract")(x, x), "subtract(%x, exp(%x))")
        assert found == "expected the same node as where it stands before, found a call of 'exp' (m:2:14)"

    def test_a_way_back_that_fails(self) -> None:
        mismatch = dominates(*diamond_parts()).why_not(relay.add(DATA, DATA))
        assert mismatch is not None
        assert mismatch.expected.startswith("all ways back through ")
        assert "to a call of 'nn.conv2d'" in mismatch.expected


class TestSize:
    def test_a_pattern_as_deep_as_a_long_program(self) -> None:
        pattern, node = wildcard(), X
        for _ in range(5000):
            pattern, node = is_op("tanh")(pattern), relay.tanh(node)
        assert pattern.match(node)
        assert not is_op("exp")(pattern).match(node)

    def test_choices_that_nothing_depends_on_are_final(self) -> None:
        pattern, node = is_op("add")(wildcard(), wildcard()), relay.add(X, Y)
        for _ in range(60):
            pattern, node = is_op("add")(pattern, wildcard()), relay.add(X, node)
        assert pattern.match(node)
        assert not is_op("subtract")(pattern, is_constant()).match(relay.subtract(node, X))

    def test_ways_back_are_looked_at_once(self) -> None:
        pattern = dominates(is_op("exp")(wildcard()), is_op("tanh")(wildcard()), is_op("tanh")(wildcard()))
        node: Expr = relay.exp(X)
        for _ in range(10_000):
            node = relay.tanh(node)
        looked: list[int] = []

        def callback(pre: Expr, post: Expr, _: Any) -> Expr:
            looked.append(1)
            return post

        assert pattern.rewrite(callback, node) is node
        assert looked == [1]
