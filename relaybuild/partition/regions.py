"""Which nodes of a function are marked for which compiler, and how marks are written; knows no pass and no backend.

Marks are calls of `annotation.compiler_begin` and `annotation.compiler_end`. A node between them is in a region: the
operands that it has by a begin, and the value that it gives by an end, are the region's edge, and an operand without a
mark is within. Regions are made of dataflow: calls of operators and of functions cut out for one pattern, tuples and
their fields, all computed in one scope. Control flow, references and calls of other functions stay with the host,
which has marks of its own, of the tag "default".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from typing import TypeGuard

from relaybuild.dataclass import dataclass
from relaybuild.diagnostics import nearest
from relaybuild.errors import UserError
from relaybuild.ir.expr import Call, Expr, Function, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, get_op
from relaybuild.ir.ops.compiler_annotation import BEGIN, END, CompilerAttrs
from relaybuild.ir.scopes import is_atom
from relaybuild.ir.types import RefType, TensorType, TupleType, Type, type_children
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import HOST
from relaybuild.passes._blocks import Blocks, find_blocks, is_sealed


@dataclass(frozen=True)
class Regions:
    """A function without marks, and the regions of its nodes.

    `region_of` has the number of a region by the id of a node of `order`; what is in none is not there. `tags` has the
    compiler of each region by number; numbers follow the first node of a region in `order`.
    """

    function: Function
    blocks: Blocks
    region_of: dict[int, int]
    tags: Sequence[str]

    @property
    def order(self) -> Sequence[Expr]:
        """Every node of the function once, children before parents."""
        return self.blocks.tree.order

    def tag_of(self, node: Expr) -> str | None:
        """The compiler of a node's region."""
        number = self.region_of.get(id(node))
        return None if number is None else self.tags[number]

    def scope_of(self, node: Expr) -> int:
        """A number for the scope in which a node is computed."""
        return id(self.blocks.tree.placed[id(node)])

    def regrouped(self, group_of: Callable[[Expr], Hashable], tag_of: Callable[[Expr], str | None]) -> Regions:
        """The same function with other regions: one for each group of the nodes that have a tag."""
        numbers: dict[Hashable, int] = {}
        tags: list[str] = []
        region_of: dict[int, int] = {}
        for node in self.order:
            tag = tag_of(node)
            if tag is None:
                continue
            number = numbers.setdefault(group_of(node), len(numbers))
            if number == len(tags):
                tags.append(tag)
            region_of[id(node)] = number
        return Regions(self.function, self.blocks, region_of, tags)


class Groups:
    """Disjoint sets of numbers, each known by one of its members."""

    def __init__(self, count: int) -> None:
        self._leader = list(range(count))

    def find(self, number: int) -> int:
        """The member that stands for a number's set."""
        leader = self._leader
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    def join(self, into: int, other: int) -> None:
        """Make one set of two; the first's member stands for it."""
        self._leader[self.find(other)] = self.find(into)


def chosen_functions(mod: IRModule, names: Sequence[str]) -> frozenset[str]:
    """The functions of a module that a pass works on: those named, or all. Raises UserError for one that is missing."""
    for name in names:
        if name not in mod:
            near = nearest(name, mod, 3)
            hint = f"the nearest are {', '.join(near)}" if near else f"it has {', '.join(mod)}"
            raise UserError(f"the module has no function '@{name}' to be partitioned; {hint}")
    return frozenset(names or mod)


def is_mark(node: Expr) -> TypeGuard[Call]:
    """Whether a node is a begin or an end."""
    return isinstance(node, Call) and node.op_name in (BEGIN, END)


def mark_tag(mark: Call) -> str:
    """The compiler that a mark names."""
    return mark.attrs.compiler if isinstance(mark.attrs, CompilerAttrs) else HOST


@cache
def _mark_attrs(tag: str) -> CompilerAttrs:
    return CompilerAttrs(tag)


def compiler_begin(value: Expr, tag: str) -> Call:
    """A value on its way into a region."""
    return Call(get_op(BEGIN), [value], _mark_attrs(tag), value.span)


def compiler_end(value: Expr, tag: str) -> Call:
    """A value on its way out of a region."""
    return Call(get_op(END), [value], _mark_attrs(tag), value.span)


def may_join(node: Expr, tag: str) -> bool:
    """Whether a node may be in a region of that compiler."""
    if tag == HOST:
        return isinstance(node, (Call, Tuple, TupleGetItem, RefCreate, RefRead, RefWrite))
    if isinstance(node, Call):
        return isinstance(node.op, Op) or (is_sealed(node.op) and not _is_compiled(node.op))
    return isinstance(node, (Tuple, TupleGetItem))


def _is_compiled(callee: Expr) -> bool:
    return isinstance(callee, Function) and bool(callee.attrs.get("Compiler"))


class Markable:
    """Which values may stand in marks: tensors, tuples of them, and references. Each type is looked at once."""

    def __init__(self) -> None:
        # the type is kept with the answer, so that its id is not given to another
        self._known: dict[int, tuple[Type, bool]] = {}

    def holds(self, node: Expr) -> bool:
        """Whether a node's value may."""
        if not node.has_type:
            return False
        root = node.checked_type
        stack = [root]
        while stack:
            kind = stack[-1]
            parts = type_children(kind) if isinstance(kind, (TupleType, RefType)) else ()
            pending = [each for each in parts if id(each) not in self._known]
            if pending and id(kind) not in self._known:
                stack.extend(pending)
                continue
            stack.pop()
            plain = isinstance(kind, (TensorType, TupleType, RefType))
            self._known[id(kind)] = (kind, plain and all(self._known[id(each)][1] for each in parts))
        return self._known[id(root)][1]


def read_regions(function: Function, in_order: bool = False) -> Regions:
    """The function without marks, and the regions that they said.

    `in_order` keeps regions to one result each, so that nothing is computed before what it stood behind: for functions
    in which effects play a part. Raises UserError where marks of two compilers meet at one node.
    """
    reader = _Reader(function)
    reader.read_marks()
    reader.imply_operands()
    return reader.regions(in_order)


class _Reader:
    def __init__(self, function: Function) -> None:
        self.order = list(post_order(function))
        self.plain: dict[int, Expr] = {}
        for node in self.order:
            children = [self.plain[id(child)] for child in node.children()]
            self.plain[id(node)] = children[0] if is_mark(node) else node.with_children(children) if children else node
        root = self.plain[id(function)]
        assert isinstance(root, Function)
        self.function = root
        self.blocks = find_blocks(root)
        self.tags: dict[int, str] = {}

    def read_marks(self) -> None:
        for node in self.order:
            if not is_mark(node):
                for child in node.children():
                    if is_mark(child) and child.op_name == BEGIN:
                        self._note(node, mark_tag(child))
            elif node.op_name == END and not is_mark(node.args[0]):
                self._note(node.args[0], mark_tag(node))

    def _note(self, marked: Expr, tag: str) -> None:
        node = self.plain[id(marked)]
        if not may_join(node, tag) or self.blocks.of(node) is None:
            return
        known = self.tags.setdefault(id(node), tag)
        if known != tag:
            raise UserError(
                f"{described(node)} is marked for the compilers '{known}' and '{tag}': mark it for one",
                where=str(node.span) if node.span else None,
            )

    def imply_operands(self) -> None:
        """Operands without marks are where their users are, if these agree."""
        implied: dict[int, str | None] = {}
        for node in reversed(self.order):
            plain = self.plain[id(node)]
            tag = self.tags.get(id(plain))
            if tag is None and (tag := implied.get(id(node))) is not None:
                self.tags[id(plain)] = tag
            if tag is None or is_mark(node):
                continue
            for child in node.children():
                if not is_mark(child) and self._may_follow(child, plain, tag):
                    implied[id(child)] = tag if implied.get(id(child), tag) == tag else None

    def _may_follow(self, child: Expr, user: Expr, tag: str) -> bool:
        plain = self.plain[id(child)]
        placed = self.blocks.tree.placed
        same_scope = placed[id(plain)] is placed[id(user)]
        # what has no operands has no begin either, and stays outside
        return same_scope and id(plain) not in self.tags and may_join(plain, tag) and bool(plain.children())

    def regions(self, in_order: bool) -> Regions:
        index = {id(node): number for number, node in enumerate(self.blocks.tree.order)}
        groups = Groups(len(index))
        for node in self.order:
            plain = self.plain[id(node)]
            if is_mark(node) or id(plain) not in self.tags:
                continue
            for child in node.children():
                if not is_mark(child) and self._are_together(self.plain[id(child)], plain, in_order):
                    groups.join(index[id(plain)], index[id(self.plain[id(child)])])
        empty = Regions(self.function, self.blocks, {}, ())
        return empty.regrouped(lambda node: groups.find(index[id(node)]), lambda node: self.tags.get(id(node)))

    def _are_together(self, child: Expr, user: Expr, in_order: bool) -> bool:
        tree = self.blocks.tree
        if self.tags.get(id(child)) != self.tags[id(user)] or tree.placed[id(child)] is not tree.placed[id(user)]:
            return False
        return not in_order or tree.uses[id(child)] == 1


def write_regions(regions: Regions) -> Function:
    """The function with a begin and an end at every edge between regions, for each use."""
    done: dict[int, Expr] = {}
    region_of, tags = regions.region_of, regions.tags
    markable = Markable()
    for node in regions.order:
        own = region_of.get(id(node))
        children = node.children()
        renewed = [done[id(child)] for child in children]
        first = 1 if isinstance(node, Call) and isinstance(node.op, Expr) else 0
        for number in range(first, len(children)):
            child = children[number]
            theirs = region_of.get(id(child))
            if (own is None and theirs is None) or own == theirs or not markable.holds(child):
                continue
            if theirs is not None:
                renewed[number] = compiler_end(renewed[number], tags[theirs])
            if own is not None:
                renewed[number] = compiler_begin(renewed[number], tags[own])
        done[id(node)] = node.with_children(renewed) if children else node
    result = done[id(regions.function)]
    assert isinstance(result, Function)
    return result


@dataclass(frozen=True)
class Unit:
    """What is computed as one: a region (`region` is its number), or a single node of the host."""

    nodes: Sequence[Expr]
    region: int | None


@dataclass(frozen=True)
class UnitGraph:
    """The units of a function, operands before users, and by index those that each needs."""

    units: Sequence[Unit]
    needs: Sequence[Sequence[int]]


def unit_graph(regions: Regions) -> UnitGraph:
    """The units in an order in which they can be computed.

    The marks of the host are no regions here. Raises UserError where a region needs its own result.
    """
    unit_of: dict[int, int] = {}
    nodes: list[list[Expr]] = []
    numbers: dict[int, int] = {}
    for node in regions.order:
        if is_atom(node):
            continue
        region = region_number(regions, node)
        number = len(nodes) if region is None else numbers.setdefault(region, len(nodes))
        if number == len(nodes):
            nodes.append([])
        nodes[number].append(node)
        unit_of[id(node)] = number
    needs: list[dict[int, None]] = [{} for _ in nodes]
    for number, members in enumerate(nodes):
        for node in members:
            for child in node.children():
                theirs = unit_of.get(id(child), number)
                if theirs != number:
                    needs[number][theirs] = None
    order = topological_order(needs)
    if len(order) < len(nodes):
        raise _cyclic(regions, nodes, needs, set(order))
    place = {number: index for index, number in enumerate(order)}
    units = [Unit(nodes[number], region_number(regions, nodes[number][0])) for number in order]
    return UnitGraph(units, [sorted(place[each] for each in needs[number]) for number in order])


def region_number(regions: Regions, node: Expr) -> int | None:
    """The number of a node's region, unless that is the host's."""
    number = regions.region_of.get(id(node))
    return None if number is None or regions.tags[number] == HOST else number


def topological_order(needs: Sequence[Iterable[int]]) -> list[int]:
    """Indices so that each comes after those that it needs; what needs itself is left out."""
    users: list[list[int]] = [[] for _ in needs]
    waiting = [0] * len(needs)
    for number, operands in enumerate(needs):
        for each in operands:
            users[each].append(number)
            waiting[number] += 1
    order = [number for number, count in enumerate(waiting) if not count]
    for number in order:
        for user in users[number]:
            waiting[user] -= 1
            if not waiting[user]:
                order.append(user)
    return order


def _cyclic(
    regions: Regions, nodes: Sequence[Sequence[Expr]], needs: Sequence[Iterable[int]], computable: set[int]
) -> UserError:
    # what only stands behind a cycle is no part of it
    users: list[list[int]] = [[] for _ in nodes]
    for number, operands in enumerate(needs):
        for each in operands:
            if number not in computable:
                users[each].append(number)
    behind = set(topological_order(users))
    cycle = [members for number, members in enumerate(nodes) if number not in computable and number not in behind]
    members = next(each for each in cycle if len(each) > 1)
    return UserError(
        f"a region of the compiler '{regions.tag_of(members[0])}', of {len(members)} nodes from "
        f"{described(members[0])} to {described(members[-1])}, needs a result of its own that goes through other "
        "regions or the host: mark two regions instead",
        where=str(members[0].span) if members[0].span else None,
    )


def described(node: Expr) -> str:
    """A node in a message."""
    if isinstance(node, Call):
        return f"the call of '{node.op_name}'" if node.op_name else "a call of a function"
    return f"a {type(node).__name__}"
