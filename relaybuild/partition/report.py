"""What partitioning does with a module, as facts: who computes what, and why the host has the rest. Prints nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.ir.visitor import post_order
from relaybuild.partition.backend import HOST
from relaybuild.partition.partition_graph import PartitionGraph
from relaybuild.partition.pipeline import by_priority, marked
from relaybuild.partition.placement import Placement, composite_name, placements_in
from relaybuild.partition.regions import Regions, read_regions


@dataclass(frozen=True)
class PlacedCall:
    """A call that runs at every inference: in the `region` of that name, or with the host (None)."""

    placement: Placement
    region: str | None

    @property
    def title(self) -> str:
        """The operator, or the name of the pattern that was taken as a whole."""
        return call_title(self.placement.call)

    @property
    def node(self) -> str:
        """What the call was made for: a node's name, or a place in a text."""
        span = self.placement.span
        return "" if span is None else span.name or str(span)


@dataclass(frozen=True)
class RegionFacts:
    """A region: its function's name, its backend, and how often each operator is in it, bodies of patterns included."""

    name: str
    backend: str
    operators: Mapping[str, int]

    @property
    def calls(self) -> int:
        """How many operators are called."""
        return sum(self.operators.values())


@dataclass(frozen=True)
class Unplaced:
    """Calls of one operator that stay with the host for one reason, in the order of the model."""

    title: str
    reason: str
    calls: Sequence[PlacedCall]


@dataclass(frozen=True)
class Report:
    """How a module is partitioned for the backends `tags`, which are by priority.

    `regions` has, by the name of each function that was looked into, the graph without marks and what is in which
    region; `names` the functions that these regions become. `constants` are calls over constants alone, computed once.
    """

    tags: Sequence[str]
    module: IRModule
    regions: Mapping[str, Regions]
    names: Mapping[str, Sequence[str]]
    calls: Sequence[PlacedCall]
    constants: Sequence[Placement]

    def region_name(self, function: str, node: Expr) -> str | None:
        """The name of the region that a node of a function is in; None for the host."""
        regions = self.regions[function]
        number = regions.region_of.get(id(node))
        names = self.names.get(function, ())
        return names[number] if number is not None and number < len(names) and regions.tags[number] != HOST else None

    def region_facts(self) -> list[RegionFacts]:
        """Every region, in the order in which they are named."""
        members: dict[str, list[PlacedCall]] = {name: [] for names in self.names.values() for name in names}
        for call in self.calls:
            if call.region is not None:
                members.setdefault(call.region, []).append(call)
        return [
            RegionFacts(name, calls[0].placement.backend or HOST, count_operators(calls))
            for name, calls in members.items()
            if calls
        ]

    def unplaced(self) -> list[Unplaced]:
        """What stays with the host, by operator and reason, the most frequent first."""
        groups: dict[tuple[str, str], list[PlacedCall]] = {}
        for call in self.calls:
            if call.region is None:
                groups.setdefault((call.title, call.placement.reason), []).append(call)
        found = [Unplaced(title, reason, calls) for (title, reason), calls in groups.items()]
        return sorted(found, key=lambda group: -len(group.calls))


def report(mod: IRModule, tags: Sequence[str], *, mod_name: str = "default") -> Report:
    """How `partition` would partition a module; raises as that does."""
    asked = by_priority(tags)
    prepared = marked(mod, asked)
    plans = PartitionGraph(mod_name=mod_name).plan(prepared)
    regions = {name: plan.regions for name, plan in plans.items()}
    names = {name: plan.names for name, plan in plans.items()}
    given = {name: _opened(each) for name, each in prepared.functions.items() if "Compiler" in each.attrs}
    regions |= {name: read_regions(function) for name, function in given.items()}
    placed = placements_in(prepared, regions, asked)
    found = Report(asked, prepared, regions, names, (), tuple(each for each in placed if each.is_constant))
    calls = [
        PlacedCall(each, each.function if each.function in given else found.region_name(each.function, each.call))
        for each in placed
        if not each.is_constant
    ]
    return Report(asked, prepared, regions, names, calls, found.constants)


def _opened(function: Function) -> Function:
    return Function(function.params, function.body, function.ret_type)


def call_title(call: Call) -> str:
    """What a call is a call of, for people."""
    name = getattr(call.op, "name_hint", "")
    return call.op_name or composite_name(call) or (f"@{name}" if name else "a function")


def operators_of(call: Call) -> list[str]:
    """The operators that a call runs: its own, or those in the body of a pattern's function."""
    if isinstance(call.op, Function):
        return [node.op_name for node in post_order(call.op) if isinstance(node, Call) and node.op_name]
    return [call_title(call)]


def count_operators(calls: Iterable[PlacedCall]) -> Counter[str]:
    """How often each operator is called, the most frequent first."""
    counts = Counter(name for call in calls for name in operators_of(call.placement.call))
    return Counter(dict(counts.most_common()))
