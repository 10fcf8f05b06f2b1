"""MergeCompilerRegions: regions of one compiler that depend on each other directly become one, as far as they can.

Two regions may be one unless a way from the one to the other leads through something else, which would then need what
it gives to. First, each region gets the largest number of changes of compiler on a way to it; neighbours of the same
number can all be merged at once. Every other dependency is then tried once, in order: a way through something else
never goes away when regions are merged, so what cannot be merged then never can, and the result is the coarsest.

A search for such a way stays between the places of the two regions in a topological order, which is kept by the method
of Pearce and Kelly ("A dynamic topological sort algorithm for directed acyclic graphs", 2007).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Function, Tuple
from relaybuild.ir.module import IRModule
from relaybuild.partition.backend import HOST
from relaybuild.partition.regions import (
    Groups,
    Regions,
    UnitGraph,
    read_regions,
    region_number,
    topological_order,
    unit_graph,
    write_regions,
)
from relaybuild.passes._blocks import is_sealed
from relaybuild.passes._effects import find_effects
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class MergeCompilerRegions(ModulePass):
    """Functions in which references play a part keep their regions: there the order of computations counts."""

    info: ClassVar[PassInfo] = PassInfo("MergeCompilerRegions", 0, ("InferType",))

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        effects = find_effects(mod)
        done = {
            name: function if is_left_alone(function) or is_sealed(function) or effects[name].own else _merged(function)
            for name, function in mod.functions.items()
        }
        return mod.with_functions(done)


def _merged(function: Function) -> Function:
    regions = read_regions(function)
    if not regions.tags:
        return function
    regions = _with_tuples(regions)
    graph = unit_graph(regions)
    groups = merge_units(graph.needs, [_class_of(regions, graph, number) for number in range(len(graph.units))])
    group_of = {id(node): groups.find(number) for number, unit in enumerate(graph.units) for node in unit.nodes}
    merged = regions.regrouped(lambda node: (id(node) not in group_of, group_of.get(id(node))), regions.tag_of)
    return write_regions(_with_host_regions(merged))


def _class_of(regions: Regions, graph: UnitGraph, number: int) -> Hashable | None:
    """Regions of one class may be merged."""
    unit = graph.units[number]
    first = unit.nodes[0]
    return None if unit.region is None else (regions.tags[unit.region], regions.scope_of(first))


def _with_tuples(regions: Regions) -> Regions:
    """A tuple of the host that one region alone uses is in that region."""
    users: dict[int, set[int | None]] = {}
    moved: dict[int, int] = {}
    for node in reversed(regions.order):
        own = moved.get(id(node), region_number(regions, node))
        if isinstance(node, Tuple) and regions.tag_of(node) == HOST and len(users[id(node)]) == 1:
            user = next(iter(users[id(node)]))
            if user is not None:
                moved[id(node)] = own = user
        for child in node.children():
            same_scope = regions.scope_of(child) == regions.scope_of(node)
            users.setdefault(id(child), set()).add(own if same_scope else None)
    if not moved:
        return regions
    region_of = {**regions.region_of, **moved}

    def tag_of(node: Expr) -> str | None:
        return regions.tags[region_of[id(node)]] if id(node) in region_of else None

    return regions.regrouped(lambda node: region_of[id(node)], tag_of)


def _with_host_regions(regions: Regions) -> Regions:
    """Neighbours that are marked for the host are one, which nothing depends on: they are never cut out."""
    groups = Groups(len(regions.tags))
    for node in regions.order:
        own = regions.region_of.get(id(node))
        for child in node.children() if own is not None and regions.tags[own] == HOST else ():
            theirs = regions.region_of.get(id(child))
            same_scope = regions.scope_of(child) == regions.scope_of(node)
            if own is not None and theirs is not None and regions.tags[theirs] == HOST and same_scope:
                groups.join(own, theirs)
    return regions.regrouped(lambda node: groups.find(regions.region_of[id(node)]), regions.tag_of)


def merge_units(needs: Sequence[Sequence[int]], classes: Sequence[Hashable | None]) -> Groups:
    """Sets of units to be merged: of one class, connected, without a cycle between the sets, and as large as can be.

    `needs` has the units that each needs, which come before it; units of the class None stay alone.
    """
    groups = _merge_levels(needs, classes)
    merger = _Merger(needs, classes, groups)
    for number, operands in enumerate(needs):
        for operand in sorted(operands, key=lambda each: -merger.place[groups.find(each)]):
            if classes[operand] is not None and classes[operand] == classes[number]:
                merger.try_merge(operand, number)
    return groups


def _merge_levels(needs: Sequence[Sequence[int]], classes: Sequence[Hashable | None]) -> Groups:
    """Merge neighbours of one class to which ways with equally many changes of class lead."""
    groups = Groups(len(needs))
    levels: list[int] = []
    for number, operands in enumerate(needs):
        own = classes[number]
        levels.append(max((levels[each] + (classes[each] != own) for each in operands), default=0))
        for each in operands:
            if own is not None and classes[each] == own and levels[each] == levels[number]:
                groups.join(number, each)
    return groups


class _Merger:
    """The graph of merged units, each known by its group's member, with their places in a topological order."""

    def __init__(self, needs: Sequence[Sequence[int]], classes: Sequence[Hashable | None], groups: Groups) -> None:
        self.classes = classes
        self.groups = groups
        self.before: list[set[int]] = [set() for _ in needs]
        self.after: list[set[int]] = [set() for _ in needs]
        for number, operands in enumerate(needs):
            own = groups.find(number)
            for each in operands:
                theirs = groups.find(each)
                if theirs != own:
                    self.before[own].add(theirs)
                    self.after[theirs].add(own)
        self.place = [0] * len(needs)
        for position, number in enumerate(topological_order(self.before)):
            self.place[number] = position

    def try_merge(self, operand: int, user: int) -> None:
        """Merge the regions of two units, and all on the ways between them, unless one of these is of another class."""
        first, last = self.groups.find(operand), self.groups.find(user)
        if first == last or self._is_between(first, last):
            return
        ways = [(first, last, self.after, 1), (last, first, self.before, -1)]
        if len(self.after[first]) > len(self.before[last]):
            ways.reverse()
        found: dict[int, set[int]] = {}
        for start, goal, edges, direction in ways:
            reached = self._reached(start, goal, edges, direction)
            if reached is None:
                return
            found[direction] = reached
        self._merge(first, last, found[1], found[-1])

    def _is_between(self, first: int, last: int) -> bool:
        """Whether something of another class needs the first and is needed by the last, as is most often the case."""
        own = self.classes[first]
        return any(self.classes[each] != own for each in self.after[first] & self.before[last])

    def _reached(self, start: int, goal: int, edges: Sequence[set[int]], direction: int) -> set[int] | None:
        """What can be reached short of the goal; None where a way to the goal leads through another class."""
        limit = direction * self.place[goal]
        foreign = {start: False}
        stack = [start]
        while stack:
            top = stack.pop()
            near = [each for each in edges[top] if direction * self.place[each] <= limit]
            # towards the goal first: where there is a way, it is found soon
            for each in sorted(near, key=lambda each: direction * self.place[each]):
                if each == goal:
                    if foreign[top]:
                        return None
                    continue
                through = foreign[top] or self.classes[each] != self.classes[start]
                if each not in foreign or (through and not foreign[each]):
                    foreign[each] = through
                    stack.append(each)
        return set(foreign)

    def _merge(self, first: int, last: int, ahead: set[int], behind: set[int]) -> None:
        between = (ahead & behind) | {first, last}
        sooner = sorted(behind - between, key=self.place.__getitem__)
        later = sorted(ahead - between, key=self.place.__getitem__)
        places = sorted(self.place[each] for each in (*between, *sooner, *later))
        into = max(between, key=lambda each: (len(self.before[each]) + len(self.after[each]), -each))
        for each in sorted(between - {into}):
            self.groups.join(into, each)
            self._move_edges(each, into, self.before, self.after)
            self._move_edges(each, into, self.after, self.before)
        for each, place in zip((*sooner, into), places):
            self.place[each] = place
        for each, place in zip(reversed(later), reversed(places)):
            self.place[each] = place

    def _move_edges(self, old: int, into: int, edges: Sequence[set[int]], back: Sequence[set[int]]) -> None:
        for each in edges[old]:
            back[each].discard(old)
            if each != into:
                back[each].add(into)
                edges[into].add(each)
        edges[old].clear()
