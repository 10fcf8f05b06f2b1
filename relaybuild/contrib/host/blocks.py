"""Divides a procedure's code into blocks of operators between its calls and conditionals; knows nothing of memory.

A value is computed in the block before the first entry that needs it, so that it can be fused with what uses it there,
and values that nothing needs are not computed at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from relaybuild.contrib.host.procedure import Branch, Invoke, Region, leaves
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from relaybuild.ir.trampoline import Step, run


@dataclass(frozen=True, eq=False)
class Block:
    """Operators between two entries, as a dataflow function of its own.

    `inputs` are the values, computed before, that the function's parameters stand for; `outputs` the values that its
    results are; `slots[k]` the number of the region's result that result k is to become, or None.
    """

    function: Function
    inputs: tuple[Expr, ...]
    outputs: tuple[Expr, ...]
    slots: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Conditional:
    """A conditional over code in blocks."""

    branch: Branch
    branches: tuple[Blocks, Blocks]


Statement: TypeAlias = "Block | Invoke | Conditional"


@dataclass(frozen=True, eq=False)
class Blocks:
    """A region as statements in order.

    `direct` tells by the id of a value which of the region's results it may be written as where it is made, outside the
    last block; `needs` are the values from around the region.
    """

    statements: tuple[Statement, ...]
    results: tuple[Expr | None, ...]
    direct: Mapping[int, int]
    needs: tuple[Expr, ...]


def split(region: Region, weights: frozenset[int]) -> Blocks:
    """The blocks of a procedure's body; `weights` are the ids of expressions that no block has to compute."""
    return run(_Splitter(region, weights).run())


@dataclass
class _Segment:
    """The nodes of one block, in topological order."""

    nodes: list[Expr] = field(default_factory=list)


class _Splitter:
    """The division of one region; a segment is a block to be, number k stands before entry k of control."""

    def __init__(self, region: Region, weights: frozenset[int]) -> None:
        self.region = region
        self.weights = weights
        self.segment: dict[int, int] = {}
        """Before which entry of control a value is first needed, by its id."""
        self.needed: dict[int, Expr] = {}
        self.shared: set[int] = set()
        """The ids of values that more than the block that computes them needs."""
        self.made: dict[int, Invoke | Conditional] = {}
        """The entries of control that are needed, by number."""

    def run(self) -> Step[Blocks]:
        controls = [entry for entry in self.region.entries if isinstance(entry, (Invoke, Branch))]
        number = len(controls)
        self._need([result for result in self.region.results if result is not None], number, shared=True)
        for entry in reversed(self.region.entries):
            if isinstance(entry, (Invoke, Branch)):
                number -= 1
                if any(id(result) in self.segment for result in entry.results):
                    yield self._control(entry, number)
            elif id(entry) in self.segment:
                self._need(entry.children(), self.segment[id(entry)], shared=False)
        return self._assemble(len(controls))

    def _need(self, values: Sequence[Expr], segment: int, *, shared: bool) -> None:
        for value in values:
            for leaf in leaves(value):
                if self._is_weight(leaf):
                    continue
                self.needed.setdefault(id(leaf), leaf)
                self.segment[id(leaf)] = min(segment, self.segment.get(id(leaf), segment))
                if shared:
                    self.shared.add(id(leaf))

    def _is_weight(self, expr: Expr) -> bool:
        return isinstance(expr, Constant) or id(expr) in self.weights

    def _control(self, entry: Invoke | Branch, number: int) -> Step[None]:
        if isinstance(entry, Invoke):
            self._need(entry.args, number, shared=True)
            self.made[number] = entry
            return
        entry = self._needed_part(entry)
        first = yield _Splitter(entry.branches[0], self.weights).run()
        second = yield _Splitter(entry.branches[1], self.weights).run()
        self._need((entry.cond, *first.needs, *second.needs), number, shared=True)
        self.made[number] = Conditional(entry, (first, second))

    def _needed_part(self, entry: Branch) -> Branch:
        """The conditional without the results that nothing needs."""
        kept = [number for number, result in enumerate(entry.results) if id(result) in self.segment]
        first, second = (Region(b.entries, tuple(b.results[n] for n in kept)) for b in entry.branches)
        return Branch(entry.cond, (first, second), tuple(entry.results[n] for n in kept), entry.span)

    def _assemble(self, count: int) -> Blocks:
        segments = [_Segment() for _ in range(count + 1)]
        own: dict[int, int] = {}
        for entry in self.region.entries:
            if isinstance(entry, Expr) and id(entry) in self.segment:
                # a field is read where its tuple is made
                source = entry.tuple_value if isinstance(entry, TupleGetItem) else entry
                own[id(entry)] = self.segment[id(source)]
                segments[own[id(entry)]].nodes.append(entry)
        for segment_number, segment in enumerate(segments):
            for node in segment.nodes:
                for child in node.children():
                    self.shared.update(
                        id(leaf) for leaf in leaves(child) if own.get(id(leaf), segment_number) < segment_number
                    )
        direct = self._direct(own, count)
        statements: list[Statement] = []
        for segment_number, segment in enumerate(segments):
            block = self._block(segment, direct, last=segment_number == count)
            if block is not None:
                statements.append(block)
            if segment_number in self.made:
                statements.append(self.made[segment_number])
        results = {id(result) for entry in self.made.values() for result in _results(entry)}
        needs = tuple(value for number, value in self.needed.items() if number not in own and number not in results)
        return Blocks(tuple(statements), self.region.results, direct, needs)

    def _direct(self, own: Mapping[int, int], last: int) -> dict[int, int]:
        made = {id(result) for entry in self.made.values() for result in _results(entry)}
        made.update(number for number, segment in own.items() if segment < last)
        direct: dict[int, int] = {}
        for number, result in enumerate(self.region.results):
            if id(result) in made:
                direct.setdefault(id(result), number)
        return direct

    def _block(self, segment: _Segment, direct: Mapping[int, int], *, last: bool) -> Block | None:
        outputs: list[tuple[Expr, int | None]] = []
        if last:
            results = enumerate(self.region.results)
            outputs += [(result, n) for n, result in results if result is not None and direct.get(id(result)) != n]
        else:
            outputs += [(node, direct.get(id(node))) for node in segment.nodes if id(node) in self.shared]
        if not outputs:
            return None
        copies = _Copies(segment, self._is_weight)
        values = [copies.of(value) for value, _ in outputs]
        body = values[0] if len(values) == 1 else Tuple(values)
        return Block(
            Function(copies.params, body),
            tuple(copies.inputs),
            tuple(value for value, _ in outputs),
            tuple(number for _, number in outputs),
        )


class _Copies:
    """The nodes of a segment over parameters in place of what was computed before."""

    def __init__(self, segment: _Segment, is_weight: Callable[[Expr], bool]) -> None:
        self._is_weight = is_weight
        self._known: dict[int, Expr] = {}
        self.params: list[Var] = []
        self.inputs: list[Expr] = []
        for node in segment.nodes:
            self._known[id(node)] = node.with_children([self.of(child) for child in node.children()])

    def of(self, value: Expr) -> Expr:
        """What stands for a value in the block."""
        if id(value) in self._known or self._is_weight(value):
            return self._known.get(id(value), value)
        if isinstance(value, Tuple):
            return value.with_children([self.of(item) for item in value.fields])
        if not isinstance(value, (Var, Call, TupleGetItem)):
            raise InternalError(f"a block over a {type(value).__name__}")
        param = value if isinstance(value, Var) else Var("value", value.tensor_type, value.span)
        self.params.append(param)
        self.inputs.append(value)
        self._known[id(value)] = param
        return param


def _results(entry: Invoke | Conditional) -> tuple[Var, ...]:
    return entry.results if isinstance(entry, Invoke) else entry.branch.results
