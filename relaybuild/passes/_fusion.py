"""Which calls of a function are computed together: groups over the post-dominator tree; knows nothing of rewriting.

A node's post-dominator is the nearest node through which everything passes that the function makes of it. A node joins
its post-dominator when the kinds of both, and of every node on the way, allow it; then the whole way joins, so a group
is entered at any place and left at one, and no cycle can arise. Three rounds, so that those that carry the arithmetic
choose first: anchors and what is element-wise, then injective operators, then those that make up fused tuples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Tuple, TupleGetItem
from relaybuild.ir.op import Op, OpKind
from relaybuild.ir.types import Dim, TensorType, TupleType, Type, type_children
from relaybuild.passes._blocks import Blocks


class Pattern(IntEnum):
    """`OpKind` in the order in which one dominates the other, and tuples."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCE = 3
    ANCHOR = 4
    TUPLE = 5
    OPAQUE = 6


_PATTERNS = {
    OpKind.ELEMWISE: Pattern.ELEMWISE,
    OpKind.BROADCAST: Pattern.BROADCAST,
    OpKind.INJECTIVE: Pattern.INJECTIVE,
    OpKind.REDUCE: Pattern.REDUCE,
    OpKind.ANCHOR: Pattern.ANCHOR,
    OpKind.OPAQUE: Pattern.OPAQUE,
}


class Node:
    """A node of the dataflow graph of one block, with its place in the post-dominator tree and in a group.

    `users` are the nodes that take its value, each with how; empty where something other than a call of an operator, a
    tuple or a field takes it. `jump` is an ancestor that makes common ancestors cheap to find, `jump_pattern` the
    strongest pattern on the way there. `length` counts the nodes of the longest way out of the graph. `leader` leads
    to the group's last node, whose `size` and `joined` hold.
    """

    __slots__ = (
        "depth",
        "expr",
        "index",
        "joined",
        "jump",
        "jump_pattern",
        "leader",
        "length",
        "parent",
        "parent_pattern",
        "pattern",
        "size",
        "users",
    )

    def __init__(self, expr: Expr, index: int, pattern: Pattern) -> None:
        self.expr = expr
        self.index = index
        self.pattern = pattern
        self.users: list[tuple[Node, Pattern]] = []
        self.parent: Node | None = None
        self.parent_pattern = Pattern.OPAQUE
        self.depth = 0
        self.jump: Node = self
        self.jump_pattern = Pattern.ELEMWISE
        self.leader: Node = self
        self.length = 0
        self.size = 1
        self.joined = pattern

    def last(self) -> Node:
        """The group's last node."""
        top = self
        while top.leader is not top:
            top.leader = top.leader.leader
            top = top.leader
        return top


def is_inline_constant(expr: Expr) -> bool:
    """Whether an expression stands in groups as it is: a scalar."""
    return isinstance(expr, Constant) and not expr.array.ndim


@dataclass(frozen=True)
class Limits:
    """The most nodes of a group, and the most tensors that a group reads and writes (0: any number)."""

    max_depth: int
    max_args: int = 0


def find_groups(blocks: Blocks, limits: Limits) -> dict[int, Node]:
    """By the id of an expression: its node. Expressions of one group have one `last()`."""
    nodes, outside = _graph(blocks)
    ordered = list(nodes.values())
    _find_post_dominators(ordered, outside)
    grouping = _Grouping(nodes, limits)
    for round_number in range(3):
        for node in ordered:
            grouping.try_join(node, round_number)
    return nodes


def single_nodes(blocks: Blocks) -> dict[int, Node]:
    """The same where every node stays alone."""
    return _graph(blocks)[0]


def _graph(blocks: Blocks) -> tuple[dict[int, Node], set[int]]:
    """The nodes by id of their expression, in order, and the ids of those whose value something else takes as well."""
    nodes: dict[int, Node] = {}
    outside: set[int] = set()
    for expr in blocks.tree.order:
        pattern = _pattern_of(expr)
        block = blocks.of(expr)
        user = None if pattern is None or block is None else Node(expr, len(nodes), pattern)
        if user is not None:
            nodes[id(expr)] = user
        for child, scope in blocks.uses(expr):
            used = nodes.get(id(child))
            if used is None:
                continue
            if user is None or blocks.at(scope) is not blocks.of(child) or not _may_pass(expr, child):
                outside.add(id(child))
            else:
                used.users.append((user, _edge_pattern(user, child)))
    return nodes, outside


def _pattern_of(expr: Expr) -> Pattern | None:
    if isinstance(expr, Call):
        return _call_pattern(expr, expr.op) if isinstance(expr.op, Op) else None
    if isinstance(expr, Tuple):
        return Pattern.TUPLE
    return Pattern.INJECTIVE if isinstance(expr, TupleGetItem) else None


def _call_pattern(call: Call, op: Op) -> Pattern:
    if op.kind is OpKind.REDUCE and call.has_type and call.args[0].has_type:
        # along an axis that the result still has, as in softmax
        kinds = (call.checked_type, call.args[0].checked_type)
        if all(isinstance(kind, TensorType) for kind in kinds) and kinds[0] == kinds[1]:
            return Pattern.ANCHOR
    return _PATTERNS[op.kind]


def _may_pass(user: Expr, used: Expr) -> bool:
    """Whether a value may stay within a group on its way to a tuple or a field: groups deal in tensors."""
    if isinstance(user, Tuple):
        return used.has_type and isinstance(used.checked_type, TensorType)
    if isinstance(user, TupleGetItem):
        kind = used.checked_type if used.has_type else None
        return isinstance(kind, TupleType) and all(isinstance(item, TensorType) for item in kind.fields)
    return True


def _num_args(kind: Type) -> int:
    """How many arguments a value takes to hand over: its tensors, and the extents that are not numbers."""
    if isinstance(kind, TensorType):
        return 1 + sum(isinstance(extent, Dim) for extent in kind.shape)
    return sum(_num_args(item) for item in type_children(kind))


def _edge_pattern(user: Node, used: Expr) -> Pattern:
    if user.pattern is Pattern.TUPLE:
        return Pattern.INJECTIVE
    if isinstance(user.expr, Call) and isinstance(user.expr.op, Op) and user.expr.op.kind is OpKind.REDUCE:
        return Pattern.REDUCE
    same_type = used.has_type and user.expr.has_type and used.checked_type == user.expr.checked_type
    return Pattern.ELEMWISE if user.pattern is Pattern.BROADCAST and same_type else user.pattern


def _find_post_dominators(nodes: Sequence[Node], outside: set[int]) -> None:
    for node in reversed(nodes):
        parent: Node | None = None
        pattern = Pattern.OPAQUE
        node.length = 1 + max((user.length for user, _ in node.users), default=0)
        if id(node.expr) not in outside and node.users:
            parent, pattern = node.users[0]
            for user, how in node.users[1:]:
                parent, pattern = _common(parent, user, max(pattern, how))
                if parent is None:
                    break
        _set_parent(node, parent, pattern)


def _set_parent(node: Node, parent: Node | None, pattern: Pattern) -> None:
    node.parent = parent
    node.parent_pattern = pattern if parent is not None else Pattern.OPAQUE
    if parent is None:
        return
    node.depth = parent.depth + 1
    far = parent.jump
    if parent.depth - far.depth == far.depth - far.jump.depth:
        node.jump = far.jump
        node.jump_pattern = max(pattern, parent.jump_pattern, far.jump_pattern)
    else:
        node.jump = parent
        node.jump_pattern = pattern


def _common(a: Node | None, b: Node | None, pattern: Pattern) -> tuple[Node | None, Pattern]:
    """The nearest node through which both pass, and the strongest pattern on the ways there."""
    while a is not None and b is not None and a.depth != b.depth:
        if a.depth > b.depth:
            a, pattern = _climbed(a, b.depth, pattern)
        else:
            b, pattern = _climbed(b, a.depth, pattern)
    while a is not b:
        # nodes of equal depth have jumps of equal depth
        if a is None or b is None or not a.depth:
            return None, Pattern.OPAQUE
        if a.jump is not b.jump:
            pattern = max(pattern, a.jump_pattern, b.jump_pattern)
            a, b = a.jump, b.jump
        else:
            pattern = max(pattern, a.parent_pattern, b.parent_pattern)
            a, b = a.parent, b.parent
    return a, pattern


def _climbed(node: Node, depth: int, pattern: Pattern) -> tuple[Node | None, Pattern]:
    """One step towards an ancestor of a depth."""
    if node.jump is not node and node.jump.depth >= depth:
        return node.jump, max(pattern, node.jump_pattern)
    return node.parent, max(pattern, node.parent_pattern)


@dataclass
class _Grouping:
    nodes: dict[int, Node]
    limits: Limits
    inputs: dict[int, dict[int, Expr]] = field(default_factory=dict)

    def try_join(self, node: Node, round_number: int) -> None:
        """Join a node with its post-dominator if it may in this round."""
        parent = node.parent
        if parent is None or node.last().joined is Pattern.OPAQUE or node.last() is parent.last():
            return
        limits = _limits_on_the_way(node, parent, round_number)
        if limits is None:
            return
        way = self._way(node, parent, *limits)
        if way is not None:
            self._join(way, parent.last())

    def _way(self, node: Node, sink: Node, between: Pattern, at_sink: frozenset[Pattern]) -> list[Node] | None:
        """The nodes through which a value passes before it comes to `sink`; None where they may not all join it."""
        # every way out passes the sink, so the longest way there is known
        if sink.last().joined not in at_sink or node.length - sink.length >= self.limits.max_depth:
            return None
        way = [node]
        seen = {id(node), id(sink)}
        size = sink.last().size + node.last().size
        groups = {id(sink.last()), id(node.last())}
        for passed in way:
            for user, _ in passed.users:
                if id(user) in seen:
                    continue
                seen.add(id(user))
                last = user.last()
                if last.joined > between:
                    return None
                if id(last) not in groups:
                    groups.add(id(last))
                    size += last.size
                if size > self.limits.max_depth or len(way) > self.limits.max_depth:
                    return None
                way.append(user)
        return way if size <= self.limits.max_depth and self._fits(way, sink) else None

    def _join(self, way: Sequence[Node], target: Node) -> None:
        for node in way:
            last = node.last()
            if last is target:
                continue
            last.leader = target
            target.size += last.size
            if last.joined is Pattern.ANCHOR:
                target.joined = max(target.joined, last.joined)
            if self.limits.max_args:
                merged = {**self._inputs_of(target), **self._inputs_of(last)}
                self.inputs[id(target)] = self._outer(merged, {id(target)})

    def _fits(self, way: Sequence[Node], sink: Node) -> bool:
        """Whether the group would read and write few enough tensors."""
        if not self.limits.max_args:
            return True
        groups = {id(node.last()): node.last() for node in (*way, sink)}
        merged: dict[int, Expr] = {}
        for last in groups.values():
            merged.update(self._inputs_of(last))
        outer = self._outer(merged, set(groups))
        count = sum(_num_args(expr.checked_type) for expr in outer.values())
        return count + _num_args(sink.last().expr.checked_type) <= self.limits.max_args

    def _inputs_of(self, last: Node) -> dict[int, Expr]:
        if id(last) not in self.inputs:
            self.inputs[id(last)] = {id(arg): arg for arg in last.expr.children() if not is_inline_constant(arg)}
        return self.inputs[id(last)]

    def _outer(self, inputs: dict[int, Expr], groups: set[int]) -> dict[int, Expr]:
        """The inputs that no node of the groups makes."""
        found = {}
        for key, expr in inputs.items():
            node = self.nodes.get(key)
            if node is None or id(node.last()) not in groups:
                found[key] = expr
        return found


_UP_TO_INJECTIVE = frozenset({Pattern.ELEMWISE, Pattern.BROADCAST, Pattern.INJECTIVE})
_EPILOGUE = frozenset({Pattern.ELEMWISE, Pattern.BROADCAST})


def _limits_on_the_way(node: Node, parent: Node, round_number: int) -> tuple[Pattern, frozenset[Pattern]] | None:
    """The strongest pattern that nodes on the way may have, and those that the post-dominator may have."""
    joined = node.last().joined
    if round_number == 2:
        into_tuple = parent.pattern is Pattern.TUPLE and parent.last().pattern is not Pattern.TUPLE
        fits = joined <= Pattern.INJECTIVE and into_tuple
        return (Pattern.INJECTIVE, _UP_TO_INJECTIVE) if fits else None
    if parent.pattern is Pattern.TUPLE:
        return None
    if joined is Pattern.ANCHOR:
        fits = round_number == 0 and node.parent_pattern is Pattern.ELEMWISE
        return (Pattern.BROADCAST, _EPILOGUE) if fits else None
    if joined <= Pattern.BROADCAST:
        fits = node.parent_pattern <= Pattern.REDUCE
        return (Pattern.INJECTIVE, _UP_TO_INJECTIVE | {Pattern.REDUCE, Pattern.ANCHOR}) if fits else None
    if joined in (Pattern.INJECTIVE, Pattern.TUPLE):
        return (Pattern.INJECTIVE, _UP_TO_INJECTIVE) if round_number == 1 else None
    return None
