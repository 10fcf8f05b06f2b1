"""Composite functions on random programs: the meaning stays, the text is the same twice, and nothing is in a cycle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from random_language import language_arguments, language_modules
from random_programs import arguments, modules

from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem
from relaybuild.ir.interpreter import interpret
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.ir.parser import parse
from relaybuild.ir.pattern import (
    DFPattern,
    dominates,
    find_match,
    is_constant,
    is_function,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    wildcard,
)
from relaybuild.ir.pattern.matcher import Match
from relaybuild.ir.printer import print_module
from relaybuild.ir.scopes import is_atom
from relaybuild.ir.structural import structural_equal
from relaybuild.ir.verifier import verify_module
from relaybuild.ir.visitor import free_vars, post_order
from relaybuild.partition.merge_composite import MergeComposite, unmerged

EXAMPLES = settings(max_examples=40, deadline=None)
UNARY = ("nn.relu", "tanh", "sigmoid", "negative", "reshape", "transpose", "clip", "copy")
BINARY = ("add", "multiply", "subtract", "maximum")


class Patterns:
    """Grows one pattern; parts that were made may stand in several places."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.made: list[DFPattern] = [wildcard()]

    def pattern(self, depth: int) -> DFPattern:
        choices = [self.leaf] if depth == 0 else [self.unary, self.binary, self.binary, self.either, self.other]
        made = self.draw(st.sampled_from(choices))(depth - 1)
        self.made.append(made)
        return made

    def part(self, depth: int) -> DFPattern:
        again = self.draw(st.integers(0, 4)) == 0
        return (
            self.draw(st.sampled_from(self.made)) if again else self.pattern(self.draw(st.integers(0, max(depth, 0))))
        )

    def leaf(self, _: int) -> DFPattern:
        return self.draw(st.sampled_from([wildcard(), wildcard(), is_constant()]))

    def unary(self, depth: int) -> DFPattern:
        return is_op(self.draw(st.sampled_from(UNARY)))(self.part(depth))

    def binary(self, depth: int) -> DFPattern:
        return is_op(self.draw(st.sampled_from(BINARY)))(self.part(depth), self.part(depth))

    def either(self, depth: int) -> DFPattern:
        if self.draw(st.booleans()):
            return self.unary(depth) | self.binary(depth)
        return self.binary(depth).optional(is_op(self.draw(st.sampled_from(UNARY))))

    def other(self, depth: int) -> DFPattern:
        kind = self.draw(st.integers(0, 4))
        if kind == 0:
            return is_if(wildcard(), self.part(depth), self.part(depth))
        if kind == 1:
            return is_let(wildcard(), self.part(depth), self.part(depth))
        if kind == 2:
            return dominates(self.pattern(1), wildcard()(None), self.unary(0))
        if kind == 3:
            return wildcard()(self.part(depth))
        return is_tuple_get_item(is_op("nn.batch_norm")(None))


class Mirror:
    """Makes patterns of what stands in a program, so that they match there at least."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self.draw = draw
        self.made: dict[int, DFPattern] = {}

    def pattern(self, node: Expr, depth: int) -> DFPattern:
        if id(node) not in self.made or self.draw(st.integers(0, 5)) == 0:
            self.made[id(node)] = self._pattern(node, depth)
        return self.made[id(node)]

    def _pattern(self, node: Expr, depth: int) -> DFPattern:
        if depth == 0 or is_atom(node):
            return is_constant() if isinstance(node, Constant) and self.draw(st.booleans()) else wildcard()
        parts = [self.pattern(child, depth - 1) for child in node.children()]
        if isinstance(node, Call):
            return self._call(node, parts)
        if isinstance(node, Tuple):
            return is_tuple(parts if self.draw(st.booleans()) else None)
        if isinstance(node, TupleGetItem):
            return is_tuple_get_item(parts[0])
        if isinstance(node, If):
            return is_if(*parts)
        if isinstance(node, Let):
            return is_let(is_var(), *parts)
        return is_function(None, parts[0]) if isinstance(node, Function) else wildcard()

    def _call(self, node: Call, parts: list[DFPattern]) -> DFPattern:
        if not node.op_name:
            return parts[0](*parts[1:])
        commutes = isinstance(node.op, Op) and node.op.commutative
        pattern = is_op(node.op_name)(*(parts[::-1] if commutes and self.draw(st.booleans()) else parts))
        return self.draw(
            st.sampled_from([pattern, pattern, pattern | wildcard()(None), pattern.optional(is_op("tanh"))])
        )


@st.composite
def mirrored(draw: Callable[[Any], Any], mods: st.SearchStrategy[IRModule]) -> tuple[IRModule, Any]:
    """A module, and a table of patterns made of what stands in it."""
    mod = draw(mods)
    nodes = [node for node in post_order(*mod.functions.values()) if not is_atom(node)]
    picked = [draw(st.sampled_from(nodes)) for _ in range(draw(st.integers(1, 4)))]
    return mod, [
        (f"p{index}", Mirror(draw).pattern(node, draw(st.integers(1, 4)))) for index, node in enumerate(picked)
    ]


@st.composite
def tables(draw: Callable[[Any], Any]) -> list[tuple[str, DFPattern]]:
    """A table of one to four patterns."""
    return [(f"p{index}", Patterns(draw).pattern(draw(st.integers(1, 3)))) for index in range(draw(st.integers(1, 4)))]


def composites(mod: IRModule) -> list[Function]:
    nodes = [node for function in mod.functions.values() for node in post_order(function)]
    return [node for node in nodes if isinstance(node, Function) and "Composite" in node.attrs]


def check_structure(before: IRModule, after: IRModule, table: list[tuple[str, DFPattern]]) -> None:
    verify_module(after, "typed")
    assert print_module(MergeComposite(table)(before)) == print_module(after)
    assert structural_equal(parse(print_module(after)), after)
    for function in composites(after):
        assert free_vars(function) == []
    assert (after is before) == (not composites(after))


def check_meaning(before: IRModule, after: IRModule, args: tuple[Any, ...]) -> None:
    for one, other in zip(interpret(before, *args), interpret(after, *args)):
        np.testing.assert_array_equal(one, other)


@EXAMPLES
@given(modules(), tables())
def test_composite_functions_keep_the_meaning(mod: IRModule, table: list[tuple[str, DFPattern]]) -> None:
    """DP80-DP89: whatever a pattern cuts out of any program, the program computes the same."""
    after = MergeComposite(table)(mod)
    check_structure(mod, after, table)
    check_meaning(mod, after, arguments())


@EXAMPLES
@given(mirrored(modules()))
def test_patterns_of_the_program_itself(case: tuple[IRModule, Any]) -> None:
    mod, table = case
    after = MergeComposite(table)(mod)
    check_structure(mod, after, table)
    check_meaning(mod, after, arguments())


@EXAMPLES
@given(mirrored(language_modules()), st.booleans())
def test_patterns_over_the_whole_language(case: tuple[IRModule, Any], greedy: bool) -> None:
    mod, table = case
    if greedy:
        table = [*table, ("call", wildcard()(None)), ("branch", is_if(wildcard(), wildcard(), wildcard()))]
    after = MergeComposite(table)(mod)
    check_structure(mod, after, table)
    check_meaning(mod, after, language_arguments())


@EXAMPLES
@given(modules(), tables())
def test_every_call_that_is_left_has_a_reason(mod: IRModule, table: list[tuple[str, DFPattern]]) -> None:
    after = MergeComposite(table)(mod)
    for each in unmerged(after, table):
        assert each.reason


def naive(pattern: Any, subject: Any, bound: dict[Any, Any]) -> list[dict[Any, Any]]:
    """Every way in which a pattern matches, by trying them all."""
    if pattern in bound:
        return [bound] if bound[pattern] is subject else []
    ways = pattern.ways(subject, None)
    found = []
    for way in ways:
        states = [{**bound, pattern: subject}]
        for part, below in way:
            states = [new for state in states for new in naive(part, below, state)]
        found += states
    return found


def has_dominator(pattern: Any) -> bool:
    return any(has_dominator(part) for part in pattern.parts) or type(pattern).__name__ == "DominatorPattern"


@EXAMPLES
@given(mirrored(modules()) | st.tuples(modules(), tables()))
def test_a_pattern_matches_if_some_way_does(case: tuple[IRModule, Any]) -> None:
    mod, table = case
    for _, pattern in table:
        if has_dominator(pattern):
            continue
        for node in post_order(mod["main"]):
            found = find_match(pattern, node)
            ways = naive(pattern, node, {})
            assert isinstance(found, Match) == bool(ways)
            if isinstance(found, Match):
                assert {part: subjects[0] for part, subjects in found.items()} in ways
