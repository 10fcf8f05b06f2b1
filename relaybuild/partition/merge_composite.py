"""MergeComposite: what the patterns of a table match becomes calls of composite functions; knows no backend.

Patterns come in the order of the table, each over every function of the module, from results towards operands. Bodies
of functions that have been cut out are not looked into again. A match is left as it is where it overlaps an earlier
one, where a value within it is used outside, unless the match's result alone is made of that use, where the pattern's
check refuses it, and where the order of effects would change.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.diagnostics import nearest
from relaybuild.errors import UserError
from relaybuild.ir.adt import Match as MatchExpr
from relaybuild.ir.expr import Call, Function, If
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, all_ops
from relaybuild.ir.pattern import (
    CallPattern,
    Graph,
    Group,
    Match,
    Refusal,
    cut_out,
    find_groups,
    find_match,
    group_of,
    may_match,
)
from relaybuild.ir.pattern.matcher import is_sealed, nodes_of
from relaybuild.partition import pattern_table as tables
from relaybuild.partition.pattern_table import Entry, PatternTable
from relaybuild.partition.regions import chosen_functions
from relaybuild.passes._effects import Effects, find_effects
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class MergeComposite(ModulePass):
    """Composite functions from a table of patterns: entries `(name, pattern[, check])`, or the tag of a table.

    `functions` are the names of those in which anything is merged; none means all.
    """

    info: ClassVar[PassInfo] = PassInfo("MergeComposite", 0)
    table: Iterable[Any] | str = ()
    functions: Sequence[str] = ()

    def __post_init__(self) -> None:
        given = _known(self.table) if isinstance(self.table, str) else tables.pattern_table(self.table)
        object.__setattr__(self, "table", given)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        entries = tables.pattern_table(self.table)
        chosen = chosen_functions(mod, self.functions)
        effects = find_effects(mod)
        return mod.with_functions(
            {
                name: _merged(mod, name, entries, effects[name], ctx)
                if name in chosen and not _is_closed(function)
                else function
                for name, function in mod.functions.items()
            }
        )


def _known(tag: str) -> PatternTable:
    known = tables.known_tags()
    if tag not in known:
        near = nearest(tag, known, 3)
        raise UserError(
            f"no pattern table is registered under '{tag}'"
            + (f"; the nearest are {', '.join(near)}" if near else "; register_pattern_table adds one")
        )
    return tables.table_of(tag)


@dataclass(frozen=True)
class Unmerged:
    """A call of an operator that no pattern of a table took: the nearest pattern, if one is near, and why it did not.

    `function` names the function of the module that the call stands in.
    """

    call: Call
    function: str
    pattern: str | None
    reason: str


def unmerged(mod: IRModule, table: Iterable[Any]) -> Iterator[Unmerged]:
    """Every call of an operator outside the composite functions of a module on which MergeComposite has worked."""
    entries = tables.pattern_table(table)
    mentioned = {entry: _operators(entry) for entry in entries}
    effects = find_effects(mod)
    for name, function in mod.functions.items():
        graph = Graph(function)
        for node in () if _is_closed(function) else reversed(graph.open_nodes):
            if isinstance(node, Call) and isinstance(node.op, Op):
                near = [entry for entry in entries if node.op in mentioned[entry] and may_match(entry.pattern, node)]
                attempts = [_attempt(entry, node, graph, effects[name]) for entry in near]
                pattern, reason = _best(attempts) or _elsewhere(node.op, mentioned)
                yield Unmerged(node, name, pattern, reason)


_Attempt: TypeAlias = tuple[int, str, str]
"""How near a pattern came, its name, and why it does not hold."""

_MATCHED = 1_000_000


def _attempt(entry: Entry, call: Call, graph: Graph, effects: Effects) -> _Attempt:
    match = find_match(entry.pattern, call, graph)
    if not isinstance(match, Match):
        return match.depth, entry.name, str(match)
    found = group_of(match, check=entry.check)
    reason = found.reason if isinstance(found, Refusal) else _effect_fault(found, effects)
    return _MATCHED, entry.name, reason or "it overlaps another match"


def _best(attempts: Sequence[_Attempt]) -> tuple[str, str] | None:
    if not attempts:
        return None
    _, name, reason = max(attempts, key=lambda attempt: attempt[0])
    return name, reason


def _elsewhere(op: Op, mentioned: Mapping[Entry, Container[Op]]) -> tuple[str | None, str]:
    for entry, operators in mentioned.items():
        if op in operators:
            return entry.name, f"the pattern has '{op.name}' within it, and nothing that uses this call ends it"
    return None, f"no pattern has '{op.name}'"


def _operators(entry: Entry) -> Container[Op]:
    """The operators that a pattern has within it; all, where it has a call of whatever operator."""
    nodes = list(nodes_of(entry.pattern))
    if any(isinstance(node, CallPattern) and node.last_operators is None for node in nodes):
        return all_ops().values()
    return frozenset().union(*(node.last_operators or () for node in nodes))


def _merged(mod: IRModule, name: str, entries: PatternTable, effects: Effects, ctx: PassContext) -> Function:
    """A function of the module with composite functions in it."""
    function = mod[name]
    graph = Graph(function)
    for entry in entries:
        groups = [group for group in _groups(entry, graph, effects) if _is_allowed(group, entry, ctx)]
        if groups:
            result = cut_out(graph, groups, {"Composite": entry.name})
            assert isinstance(result, Function)
            function, graph = result, Graph(result)
            effects = find_effects(mod.with_function(name, function))[name] if effects.any else effects
    return function


def _groups(entry: Entry, graph: Graph, effects: Effects) -> Iterator[Group]:
    groups = find_groups(entry.pattern, graph, entry.check)
    return (group for group in groups if _effect_fault(group, effects) is None)


def _is_allowed(group: Group, entry: Entry, ctx: PassContext) -> bool:
    return ctx.allow_rewrite(f"a composite function '{entry.name}'", group.root)


def _is_closed(function: Function) -> bool:
    return is_left_alone(function) or is_sealed(function)


def _effect_fault(group: Group, effects: Effects) -> str | None:
    """Why cutting a group out would change what effects happen, or in which order."""
    if any(id(node) in effects.own for node in group.inner):
        return "it has an effect"
    given = [node for node in group.inputs if id(node) in effects.any]
    places = [group.match.graph.position[id(node)] for node in given]
    chooses = any(isinstance(node, (If, MatchExpr)) for node in group.inner)
    return (
        "what is given to it would have its effects at another time"
        if places != sorted(places) or (given and chooses)
        else None
    )
