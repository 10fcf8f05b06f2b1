"""Matching: what a pattern asks of a node is a list of goals, of which one list after the other is tried.

A node of a pattern stands for one node of the program in all its places. Alternatives, and both orders of the arguments
of a commutative operator, are tried until the whole pattern holds: no choice is final while a part that stands in
several places depends on it. Neither the program nor the pattern is recursed over. Knows no kind of pattern.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Span, Var
from relaybuild.ir.op import Op
from relaybuild.ir.pattern.dominators import PostDominators
from relaybuild.ir.scopes import ScopeTree, is_atom, scope_tree
from relaybuild.ir.visitor import post_order

Subject: TypeAlias = "Expr | Op"
"""What a node of a pattern is matched with: an expression, or the operator that a call names."""
Goal: TypeAlias = "tuple[MatchNode, Subject]"
Way: TypeAlias = tuple[Goal, ...]
"""Goals that must all be met."""

SEALED = ("Primitive", "Composite", "Compiler", "PartitionedFromPattern")
"""Attributes of functions that have been cut out already."""


def is_sealed(node: Expr) -> bool:
    """Whether a node is a function that has been cut out already."""
    return isinstance(node, Function) and any(node.attrs.get(name) for name in SEALED)


def rebuilt(node: Expr, done: Mapping[int, Expr]) -> Expr:
    """The node over what its children have become, by their ids; a function that has been cut out stays as it is."""
    children = () if is_sealed(node) else node.children()
    return node.with_children([done[id(child)] for child in children]) if children else node


class Graph:
    """One expression in which is matched: what its nodes are and who uses them, found when it is asked for."""

    def __init__(self, root: Expr) -> None:
        self.root = root
        self.found: dict[object, Any] = {}
        """What patterns have found out about nodes, by keys of their own."""

    @cached_property
    def order(self) -> Sequence[Expr]:
        """Every node once, children before parents, in evaluation order."""
        return list(post_order(self.root))

    @cached_property
    def open_nodes(self) -> Sequence[Expr]:
        """The nodes that are not within functions cut out already, each once, users before what they use."""
        found: list[Expr] = []
        reached = {id(self.root)}
        for node in reversed(self.order):
            if id(node) in reached:
                found.append(node)
                if not is_sealed(node):
                    reached.update(id(child) for child in node.children())
        return found

    @cached_property
    def position(self) -> Mapping[int, int]:
        """A node's place in `order`, by id."""
        return {id(node): index for index, node in enumerate(self.order)}

    @cached_property
    def users(self) -> Mapping[int, Sequence[Expr]]:
        """The nodes that use a node, by its id, once for each use."""
        users: dict[int, list[Expr]] = {}
        for node in self.order:
            for child in node.children():
                users.setdefault(id(child), []).append(node)
        return users

    @cached_property
    def dominators(self) -> PostDominators:
        """The post-dominator tree."""
        return PostDominators(self.order, self.users)

    @cached_property
    def scopes(self) -> ScopeTree:
        """The scopes in which nodes are computed."""
        return scope_tree(self.root)


class MatchNode(ABC):
    """A node of a pattern, as the matcher sees it. Nodes have identity, and do not change."""

    @property
    @abstractmethod
    def parts(self) -> tuple[MatchNode, ...]:
        """The nodes of the pattern that this one is made of."""

    @abstractmethod
    def ways(self, subject: Subject, graph: Graph) -> Sequence[Way]:
        """What must hold beyond this node for it to match, one way after the other; empty where it cannot match."""

    @abstractmethod
    def wants(self) -> str:
        """What this node itself asks for, as in "a call of 'add'"."""

    def found(self, subject: Subject) -> str:
        """What stands there instead, when `ways` is empty."""
        return describe(subject)

    def inputs(self, subject: Expr) -> Sequence[Expr]:
        """What this node takes from around the pattern, where it has matched `subject`."""
        return () if self.parts else (subject,)

    def passed(self, subject: Subject, graph: Graph) -> Sequence[tuple[MatchNode, Expr]]:
        """What parts of this node cover beside what they are asked for, where it has matched `subject`."""
        return ()

    @property
    def is_inner(self) -> bool:
        """Whether what is matched is computed by the pattern, rather than given to it."""
        return False

    @property
    def embeds_constants(self) -> bool:
        """Whether a constant that is matched belongs to the pattern."""
        return False

    @property
    def last_operators(self) -> frozenset[Op] | None:
        """The operators of which one must be called by what matches; None where it may be something else."""
        return None

    @property
    def is_rigid(self) -> bool:
        """Whether there is one thing only that this node can stand for."""
        return False

    @cached_property
    def _repeats(self) -> frozenset[int]:
        """Ids of the nodes, of this one and those below, in which something occurs that occurs in several places."""
        order = list(nodes_of(self))
        places: dict[int, int] = {}
        for node in order:
            for part in node.parts:
                places[id(part)] = places.get(id(part), 0) + (not part.is_rigid)
        found: set[int] = set()
        for node in order:
            if places.get(id(node), 0) > 1 or any(id(part) in found for part in node.parts):
                found.add(id(node))
        return frozenset(found)


def nodes_of(pattern: MatchNode) -> Iterator[MatchNode]:
    """Every node of a pattern once, parts before what they are part of."""
    seen: set[int] = set()
    stack: list[tuple[MatchNode, bool]] = [(pattern, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((part, False) for part in reversed(node.parts))


@dataclass(frozen=True)
class Mismatch:
    """Why a pattern does not match: the first mismatch among those deepest in the pattern.

    `depth` counts the nodes of the program that matched above it; `span` is where the program differs.
    """

    expected: str
    found: str
    depth: int
    span: Span | None = None

    def __str__(self) -> str:
        where = f" ({self.span})" if self.span else ""
        return f"expected {self.expected}, found {self.found}{where}"


@dataclass(frozen=True)
class Match(Mapping[MatchNode, "tuple[Subject, ...]"]):
    """A pattern that matches `root`: for each of its nodes that took part, what it stands for, in order of matching."""

    root: Expr
    graph: Graph
    trail: Sequence[Goal]

    @cached_property
    def passed(self) -> Sequence[tuple[MatchNode, Expr]]:
        """What nodes of the pattern cover beside what they were asked for."""
        return [pair for node, subject in self.trail for pair in node.passed(subject, self.graph)]

    @cached_property
    def _bound(self) -> dict[MatchNode, tuple[Subject, ...]]:
        bound: dict[MatchNode, list[Subject]] = {node: [subject] for node, subject in self.trail}
        for part, covered in self.passed:
            known = bound.setdefault(part, [])
            if not known or covered is not known[0]:
                known.append(covered)
        return {node: tuple(subjects) for node, subjects in bound.items()}

    def __getitem__(self, node: MatchNode) -> tuple[Subject, ...]:
        return self._bound[node]

    def __iter__(self) -> Iterator[MatchNode]:
        return iter(self._bound)

    def __len__(self) -> int:
        return len(self._bound)

    def __bool__(self) -> bool:
        return True


_Goals: TypeAlias = "tuple[MatchNode | None, Any, Expr, int, _Goals] | None"
"""A list of goals: the node, the subject, the nearest expression, the depth, and the rest. Without a node, `subject`
is the number of choices that stay open from here on."""


def find_match(pattern: MatchNode, root: Expr, graph: Graph | None = None) -> Match | Mismatch:
    """Match a pattern with a node of a graph, by default that of `root` alone."""
    run = _Run(pattern, graph or Graph(root))
    if run.holds(root):
        return Match(root, run.graph, tuple(run.trail))
    return run.mismatch()


def matches(pattern: MatchNode, subject: Expr, graph: Graph) -> bool:
    """Whether a pattern matches a node, whatever its parts stand for elsewhere."""
    return _Run(pattern, graph).holds(subject)


class _Run:
    """One attempt to match."""

    def __init__(self, pattern: MatchNode, graph: Graph) -> None:
        self.pattern = pattern
        self.graph = graph
        self.trail: list[Goal] = []
        self.bound: dict[int, Subject] = {}
        self.deepest: tuple[MatchNode, Subject, Expr, int, bool] | None = None

    def holds(self, root: Expr) -> bool:
        goals: _Goals = (self.pattern, root, root, 0, None)
        choices: list[tuple[_Goals, int]] = []
        while goals is not None:
            node, subject, owner, depth, rest = goals
            if node is None:
                del choices[subject:]
                goals = rest
                continue
            known = self.bound.get(id(node))
            if known is None:
                ways = node.ways(subject, self.graph)
            else:
                ways = ((),) if _same(known, subject) else ()
            if not ways:
                if self.deepest is None or depth > self.deepest[3]:
                    self.deepest = (node, subject, owner, depth, known is not None)
                if not choices:
                    return False
                goals, mark = choices.pop()
                self._undo(mark)
                continue
            if known is None:
                self.bound[id(node)] = subject
                self.trail.append((node, subject))
            owner = subject if isinstance(subject, Expr) else owner
            if len(ways) > 1:
                if id(node) not in self.pattern._repeats:
                    rest = (None, len(choices), owner, depth, rest)
                for way in reversed(ways[1:]):
                    choices.append((_with(way, subject, owner, depth, rest), len(self.trail)))
            goals = _with(ways[0], subject, owner, depth, rest)
        return True

    def _undo(self, mark: int) -> None:
        while len(self.trail) > mark:
            del self.bound[id(self.trail.pop()[0])]

    def mismatch(self) -> Mismatch:
        if self.deepest is None:
            raise AssertionError("nothing failed")
        node, subject, owner, depth, repeated = self.deepest
        expected = "the same node as where it stands before" if repeated else node.wants()
        found = describe(subject) if repeated else node.found(subject)
        # variables and constants stand where they are used, whatever their own span
        at = owner if isinstance(subject, Op) or is_atom(subject) else subject
        return Mismatch(expected, found, depth, at.span)


def _with(way: Way, above: Subject, owner: Expr, depth: int, rest: _Goals) -> _Goals:
    for node, subject in reversed(way):
        rest = (node, subject, owner, depth + (subject is not above), rest)
    return rest


def _same(a: Subject, b: Subject) -> bool:
    return a is b or (isinstance(a, GlobalVar) and a == b)


def describe(subject: Subject) -> str:
    """A node as a message names it."""
    if isinstance(subject, Op):
        return f"operator '{subject.name}'"
    if isinstance(subject, Call):
        composite = subject.op.attrs.get("Composite") if isinstance(subject.op, Function) else None
        if composite:
            return f"a call of composite '{composite}'"
        return f"a call of '{subject.op_name}'" if subject.op_name else "a call of a function"
    if isinstance(subject, Var):
        return f"variable '%{subject.name_hint}'"
    if isinstance(subject, GlobalVar):
        return f"'@{subject.name_hint}'"
    name = type(subject).__name__
    return f"{'an' if name == 'If' else 'a'} {name}"
