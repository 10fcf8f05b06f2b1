"""Replaces what matches by what a function makes of it, until nothing changes; knows no kind of pattern."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from relaybuild.errors import UserError
from relaybuild.ir.expr import Expr
from relaybuild.ir.infer import infer_expr
from relaybuild.ir.pattern.groups import covered, find_matches
from relaybuild.ir.pattern.matcher import Graph, Match, MatchNode, Subject, rebuilt
from relaybuild.ir.scopes import is_atom
from relaybuild.ir.structural import structural_equal

NodeMap: TypeAlias = Mapping[MatchNode, tuple[Any, ...]]
Callback: TypeAlias = Callable[[Expr, Expr, NodeMap], Expr]
Rule: TypeAlias = tuple[MatchNode, Callback, bool, bool]
"""A pattern, what to make of it, whether types are wanted, and whether it is searched for once only."""

_MOST_ROUNDS = 100


def rewrite_expr(rules: Sequence[Rule], expr: Expr) -> Expr:
    """Apply rules one after the other, over and over until nothing changes; a hundred rounds are an error."""
    for round_number in range(_MOST_ROUNDS):
        before = expr
        for pattern, callback, require_type, once in rules:
            if not (once and round_number):
                expr = _rewritten(pattern, callback, infer_expr(expr) if require_type else expr)
        if expr is before or all(once for *_, once in rules) or structural_equal(before, expr, map_free_vars=False):
            return expr
    raise UserError(
        f"the expression still changes after {_MOST_ROUNDS} rounds of rewriting: the callbacks undo each other's work,"
        " or replace a match by what matches again; use rewrite_once"
    )


def _rewritten(pattern: MatchNode, callback: Callback, expr: Expr) -> Expr:
    graph = Graph(expr)
    taken: set[int] = set()
    found: dict[int, Match] = {}
    for match in find_matches(pattern, graph, taken):
        nodes = {id(node) for node in covered(match) if not is_atom(node)} | {id(match.root)}
        if taken.isdisjoint(nodes):
            taken |= nodes
            found[id(match.root)] = match
    return _replaced(graph, found, callback) if found else expr


def _replaced(graph: Graph, found: Mapping[int, Match], callback: Callback) -> Expr:
    done: dict[int, Expr] = {}
    for node in graph.order:
        post = rebuilt(node, done)
        match = found.get(id(node))
        done[id(node)] = post if match is None else callback(node, post, _after(match, done, post))
    return done[id(graph.root)]


def _after(match: Match, done: Mapping[int, Expr], post: Expr) -> NodeMap:
    """What the nodes of the pattern stand for after what is below the match has been replaced."""

    def now(subject: Subject) -> Subject:
        return (
            post if subject is match.root else done.get(id(subject), subject) if isinstance(subject, Expr) else subject
        )

    return {node: tuple(now(subject) for subject in subjects) for node, subjects in match.items()}
