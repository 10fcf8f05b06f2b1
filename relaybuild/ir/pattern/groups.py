"""What of a program each match of a pattern takes: its nodes, and what is given to them; knows no kind of pattern.

Matches are looked for from the results towards the operands, and do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.adt import Constructor
from relaybuild.ir.adt import Match as MatchExpr
from relaybuild.ir.expr import Constant, Expr, Function, GlobalVar, If, Let, Var
from relaybuild.ir.pattern.matcher import Graph, Match, MatchNode, describe, find_match
from relaybuild.ir.scopes import Scope, common_scope, is_atom

Check: TypeAlias = Callable[[Expr], "bool | str"]
"""Whether the match that a node is the root of is wanted; a sentence says why not."""


@dataclass(frozen=True)
class Group:
    """A match that can be cut out: `inner` is what it computes, in evaluation order, of which `root` is the last."""

    match: Match
    inputs: Sequence[Expr]
    inner: Sequence[Expr]

    @property
    def root(self) -> Expr:
        return self.match.root


@dataclass(frozen=True)
class Refusal:
    """A match that cannot be cut out, or is not wanted."""

    root: Expr
    reason: str


def may_match(pattern: MatchNode, node: Expr) -> bool:
    """Whether a node is a call of one of the operators that a pattern ends with, if it ends with an operator."""
    operators = pattern.last_operators
    return operators is None or getattr(node, "op", None) in operators


def find_matches(pattern: MatchNode, graph: Graph, taken: set[int]) -> Iterator[Match]:
    """The matches outside of functions cut out already, users first; none of nodes whose ids are taken by then."""
    for node in graph.open_nodes:
        if may_match(pattern, node) and id(node) not in taken:
            found = find_match(pattern, node, graph)
            if isinstance(found, Match):
                yield found


def find_groups(
    pattern: MatchNode, graph: Graph, check: Check | None = None, refused: Callable[[Refusal], None] | None = None
) -> list[Group]:
    """The matches to cut out, users first; `refused` is told of the others."""
    groups: list[Group] = []
    taken: set[int] = set()
    for match in find_matches(pattern, graph, taken):
        found = group_of(match, taken, check)
        if isinstance(found, Group):
            groups.append(found)
            taken.update(id(node) for node in found.inner if not is_atom(node))
        elif refused is not None:
            refused(found)
    return groups


def group_of(match: Match, taken: set[int] | None = None, check: Check | None = None) -> Group | Refusal:
    """What a match takes; a refusal where it is not wanted, cannot be cut out, or overlaps nodes of the ids."""
    reason = None if check is None else _verdict(check(match.root))
    if reason is not None:
        return Refusal(match.root, reason)
    extent = _Extent(match)
    reason = extent.fault(taken or set())
    return Group(match, extent.given(), extent.order) if reason is None else Refusal(match.root, reason)


def _verdict(answer: bool | str) -> str | None:
    if isinstance(answer, str):
        return answer
    return None if answer else "the check of the pattern refuses it"


def covered(match: Match) -> Iterator[Expr]:
    """What a match computes, as far as its pattern says so."""
    yield from (subject for node, subject in match.trail if node.is_inner and isinstance(subject, Expr))
    yield from (expr for _, expr in match.passed)


class _Extent:
    """The nodes from the root of a match back to what is given to it.

    What is computed in a scope that the match opens belongs to it. What it takes from around it, and no part of the
    pattern stands for, is given to it as well.
    """

    def __init__(self, match: Match) -> None:
        self.match = match
        self.graph = match.graph
        self.inner = {id(node) for node in covered(match)}
        self.double: Expr | None = None
        self.inputs = self._inputs()
        self.opened: list[Scope] = []
        self.bound: set[int] = set()
        self.seen: set[int] = set()
        self.order: list[Expr] = []
        if id(match.root) not in self.inputs:
            self._walk()

    def given(self) -> tuple[Expr, ...]:
        """What the match takes from around it, in the order of the pattern."""
        return tuple(node for key, node in self.inputs.items() if key in self.seen)

    def _inputs(self) -> dict[int, Expr]:
        passed = {id(expr) for _, expr in self.match.passed}
        inputs: dict[int, Expr] = {}
        embedded: set[int] = set()
        for node, subject in self.match.trail:
            for given in node.inputs(subject) if isinstance(subject, Expr) else ():
                if isinstance(given, Constant) and node.embeds_constants:
                    embedded.add(id(given))
                elif id(given) not in passed and not isinstance(given, (GlobalVar, Constructor, Function)):
                    inputs[id(given)] = given
                    if id(given) in self.inner:
                        self.double = given
        return {key: given for key, given in inputs.items() if key not in embedded}

    def _walk(self) -> None:
        stack: list[tuple[Expr, bool]] = [(self.match.root, False)]
        while stack:
            node, expanded = stack.pop()
            if expanded:
                self.order.append(node)
                continue
            if id(node) in self.seen:
                continue
            self.seen.add(id(node))
            if self._belongs(node):
                self._open(node)
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(node.children()))

    def _belongs(self, node: Expr) -> bool:
        if isinstance(node, Var):
            if id(node) in self.bound:
                self.inputs.pop(id(node), None)
                return True
        elif id(node) in self.inputs:
            if self._is_enclosed(node):
                del self.inputs[id(node)]
                return True
        elif id(node) in self.inner or is_atom(node) or isinstance(node, Function) or self._is_enclosed(node):
            return True
        self.inputs.setdefault(id(node), node)
        return False

    def _is_enclosed(self, node: Expr) -> bool:
        if not self.opened:
            return False
        place = self.graph.scopes.placed[id(node)]
        return any(common_scope(place, scope) is scope for scope in self.opened)

    def _open(self, node: Expr) -> None:
        self.bound.update(id(var) for var in node.binders())
        if isinstance(node, (Function, If, Let, MatchExpr)):
            scopes = self.graph.scopes.inner[id(node)]
            # what a let's value is made of may as well be computed before the let
            self.opened.extend(scopes[1:] if isinstance(node, Let) else scopes)

    def fault(self, taken: set[int]) -> str | None:
        """Why this cannot be cut out."""
        if not self.order or is_atom(self.match.root):
            return "the pattern computes nothing"
        if isinstance(self.match.root, Function):
            return "the pattern ends with a function, expected a value"
        if self.double is not None:
            return f"{describe(self.double)} is part of the match and is given to it as well"
        if any(id(node) in taken for node in self.order if not is_atom(node)):
            return "it overlaps another match"
        return self._outside_fault()

    def _outside_fault(self) -> str | None:
        members = {id(node) for node in self.order}
        shared: list[Expr] = []
        for node in self.order[:-1]:
            if is_atom(node):
                continue
            outside = [user for user in self.graph.users[id(node)] if id(user) not in members]
            shared += [node] if outside else []
            for user in outside:
                if not self.graph.dominators.dominates(self.match.root, user):
                    where = f" ({user.span})" if user.span else ""
                    return f"the value of {describe(node)} is used outside, by {describe(user)}{where}"
        return self._copying_fault(shared)

    def _copying_fault(self, shared: Sequence[Expr]) -> str | None:
        """What users that the root dominates take is computed for them once more: that must be another node."""
        if not shared:
            return None
        if self.bound:
            return f"the value of {describe(shared[0])} is used outside, and cannot be computed twice"
        depends = set(self.inputs)
        for node in self.order:
            if any(id(child) in depends for child in node.children()):
                depends.add(id(node))
        for node in shared:
            if id(node) not in depends:
                return f"the value of {describe(node)} is used outside, and depends on nothing that is given"
        return None
