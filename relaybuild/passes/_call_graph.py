"""Which functions of a module name which; knows nothing of what a pass makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, GlobalVar
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order


@dataclass
class CallGraph:
    """Edges from a function to those it names, and what follows from them."""

    callees: dict[str, list[str]]
    """By name: the functions of the module that a function names, in order of first use."""
    mentions: dict[str, int] = field(default_factory=dict)
    """How often a function is named, in the whole module."""
    calls: dict[str, int] = field(default_factory=dict)
    """How often it is named as what is called."""
    order: list[str] = field(default_factory=list)
    """All names, a function after those it names, apart from cycles."""
    recursive: set[str] = field(default_factory=set)
    """Functions that reach themselves."""

    def reachable(self, entries: Iterable[str]) -> set[str]:
        """The entries and all that they reach."""
        stack = list(entries)
        reached = set(stack)
        while stack:
            for callee in self.callees[stack.pop()]:
                if callee not in reached:
                    reached.add(callee)
                    stack.append(callee)
        return reached


def call_graph(mod: IRModule) -> CallGraph:
    """The call graph of a module; names that it does not define are left out."""
    graph = CallGraph({name: [] for name in mod})
    for name, function in mod.functions.items():
        named: dict[str, None] = {}
        for node in post_order(function):
            for position, child in enumerate(node.children()):
                if isinstance(child, GlobalVar) and child in mod:
                    callee = child.name_hint
                    named.setdefault(callee)
                    graph.mentions[callee] = graph.mentions.get(callee, 0) + 1
                    if isinstance(node, Call) and position == 0 and node.op is child:
                        graph.calls[callee] = graph.calls.get(callee, 0) + 1
        graph.callees[name] = list(named)
    _find_components(graph)
    return graph


def _find_components(graph: CallGraph) -> None:
    """Tarjan's strongly connected components, which come out callees first."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    on_path: set[str] = set()
    for start in graph.callees:
        if start in index:
            continue
        stack = [(start, iter(graph.callees[start]))]
        index[start] = low[start] = len(index)
        path.append(start)
        on_path.add(start)
        while stack:
            name, rest = stack[-1]
            callee = next(rest, None)
            if callee is None:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[name])
                if low[name] == index[name]:
                    _close_component(graph, name, path, on_path)
            elif callee not in index:
                index[callee] = low[callee] = len(index)
                path.append(callee)
                on_path.add(callee)
                stack.append((callee, iter(graph.callees[callee])))
            elif callee in on_path:
                low[name] = min(low[name], index[callee])


def _close_component(graph: CallGraph, first: str, path: list[str], on_path: set[str]) -> None:
    members = [path.pop()]
    while members[-1] != first:
        members.append(path.pop())
    on_path.difference_update(members)
    graph.order.extend(members)
    if len(members) > 1 or first in graph.callees[first]:
        graph.recursive.update(members)
