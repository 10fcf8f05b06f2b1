"""Turns procedures into kernels, calls and conditionals over memory, and plans their frames; knows nothing of C.

Values that cross blocks lie row-major in the procedure's frame, or are made where the procedure's result or that of the
conditional around is wanted. A call of a procedure by itself, as the last thing it does, starts it over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.blocks import Block, Blocks, Conditional, split
from relaybuild.contrib.host.kernel_code import Kernels
from relaybuild.contrib.host.legalize import Legalized, legalize
from relaybuild.contrib.host.lower import Step, lower_function
from relaybuild.contrib.host.place import Ports, Storage, View, row_major_view, tensor_bytes
from relaybuild.contrib.host.procedure import ControlProgram, Foreign, Invoke, Procedure
from relaybuild.contrib.host.weights import WeightTable
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError
from relaybuild.ir.expr import Constant, Expr, Function
from relaybuild.ir.trampoline import Step as Task
from relaybuild.ir.trampoline import run
from relaybuild.lower.memory_plan import Lifetime, plan
from relaybuild.partition.backend import Remember

SLACK = 256
"""Bytes behind a frame's last buffer, which the last vector of a row may read."""


@dataclass(frozen=True)
class CallCode:
    """A call of procedure number `callee`."""

    callee: int
    reads: tuple[View, ...]
    writes: tuple[View, ...]


@dataclass(frozen=True)
class RegionCode:
    """A call of a function of another backend, over row-major tensors."""

    callee: Foreign
    reads: tuple[View, ...]
    writes: tuple[View, ...]


@dataclass(frozen=True)
class IfCode:
    """A conditional on a byte."""

    cond: View
    branches: tuple[tuple[Code, ...], tuple[Code, ...]]


@dataclass(frozen=True)
class AgainCode:
    """The start of the procedure with other parameters: copies, all of `staged` before any of `copies`."""

    staged: tuple[tuple[View, View], ...]
    copies: tuple[tuple[View, View], ...]


Code: TypeAlias = "Step | CallCode | RegionCode | IfCode | AgainCode"


@dataclass
class ProcedureCode:
    """A procedure's code; `carried` are copies of those parameters that change when it starts over, None where it never
    does."""

    name: str
    body: tuple[Code, ...]
    carried: tuple[tuple[View, View], ...] | None
    frame_bytes: int = 0

    def all_code(self) -> Iterator[Code]:
        """Every piece of code, each conditional before its branches."""
        stack = list(reversed(self.body))
        while stack:
            code = stack.pop()
            yield code
            if isinstance(code, IfCode):
                for branch in reversed(code.branches):
                    stack.extend(reversed(branch))

    @property
    def steps(self) -> list[Step]:
        """The runs of kernels, in the order in which they stand."""
        return [code for code in self.all_code() if isinstance(code, Step)]


@dataclass
class LoweredProgram:
    """Procedures, the one that runs first at the front, and the weights of all."""

    procedures: list[ProcedureCode]
    weights: WeightTable = field(default_factory=WeightTable)

    @property
    def steps(self) -> list[Step]:
        return [step for procedure in self.procedures for step in procedure.steps]

    @property
    def regions(self) -> tuple[Foreign, ...]:
        """The functions of other backends that are called, each once."""
        codes = [code for procedure in self.procedures for code in procedure.all_code()]
        return tuple(dict.fromkeys(code.callee for code in codes if isinstance(code, RegionCode)))


@dataclass(frozen=True)
class Machinery:
    """What a program is lowered for; `remember` as `CodegenOptions` has it."""

    setting: Setting
    remember: Remember | None = None


def lower_program(
    program: ControlProgram, setting: Setting, *, fusion: bool = True, remember: Remember | None = None
) -> LoweredProgram:
    """`lower_levels` for one machine."""
    return lower_levels(program, [Machinery(setting, remember)], fusion=fusion)[0]


def lower_levels(
    program: ControlProgram, levels: Sequence[Machinery], *, fusion: bool = True
) -> Sequence[LoweredProgram]:
    """The code of every procedure for each of several machines, with frames planned.

    All have one table of weights: what two of them read in the same form is there once. Raises UnsupportedError for
    operators without a kernel.
    """
    common = _Common(program, fusion)
    return [_lowered(_Context(common, level)) for level in levels]


def _lowered(context: _Context) -> LoweredProgram:
    procedures = [_Lowering(procedure, context).procedure_code() for procedure in context.program.procedures]
    for code in procedures:
        code.frame_bytes = _plan_frame(code)
    return LoweredProgram(procedures, context.common.weights)


class _Common:
    """What the procedures of one program share, for whatever machine: what nodes became is the same object for all, by
    which the table of weights knows it."""

    def __init__(self, program: ControlProgram, fusion: bool) -> None:
        self.program = program
        self.fusion = fusion
        self.weights = WeightTable()
        self.numbers = {id(procedure): number for number, procedure in enumerate(program.procedures)}
        self._legalized = Legalized()
        self._blocks: dict[int, Blocks] = {}

    def blocks(self, procedure: Procedure) -> Blocks:
        """A procedure's body in blocks."""
        if id(procedure) not in self._blocks:
            self._blocks[id(procedure)] = split(procedure.body, self.program.weights)
        return self._blocks[id(procedure)]

    def legal(self, block: Block) -> Function:
        """A block's function, legalized."""
        return legalize(block.function, self._legalized)


class _Context:
    """What the procedures of one program share, for one machine."""

    def __init__(self, common: _Common, machinery: Machinery) -> None:
        self.common = common
        self.program = common.program
        self._setting = machinery.setting
        self._kernels = Kernels(machinery.remember)

    def steps(self, block: Block, ports: Ports) -> list[Step]:
        """A block's kernels."""
        lowered = lower_function(
            self.common.legal(block),
            self._setting,
            fusion=self.common.fusion,
            ports=ports,
            weights=self.common.weights,
            kernels=self._kernels,
        )
        return lowered.steps


class _Lowering:
    """The lowering of one procedure; `homes` says by id where a value lies."""

    def __init__(self, procedure: Procedure, context: _Context) -> None:
        self.procedure = procedure
        self.context = context
        self.homes: dict[int, View] = {}

    def procedure_code(self) -> ProcedureCode:
        body = self.context.common.blocks(self.procedure)
        restarts = _restarts(body, self.procedure)
        carried: list[tuple[View, View]] = []
        for number, param in enumerate(self.procedure.params):
            size = tensor_bytes(param.tensor_type)
            given = row_major_view(Storage("input", size, number), param.tensor_type)
            self.homes[id(param)] = given
            if any(restart.args[number] is not param for restart in restarts):
                self.homes[id(param)] = row_major_view(Storage("arena", size), param.tensor_type)
                carried.append((given, self.homes[id(param)]))
        results = [
            Storage("output", tensor_bytes(result.tensor_type), number)
            for number, result in enumerate(body.results)
            if result is not None
        ]
        code = run(self._region(body, results, tail=True))
        return ProcedureCode(self.procedure.name, tuple(code), tuple(carried) if restarts else None)

    def _region(self, blocks: Blocks, slots: Sequence[Storage], *, tail: bool) -> Task[list[Code]]:
        """The code of a region that puts its results into `slots`; `tail` where nothing follows it."""
        code: list[Code] = []
        for statement in blocks.statements:
            if isinstance(statement, Block):
                code += self._block(statement, blocks, slots)
                continue
            last = tail and _ends_with(blocks, statement)
            if isinstance(statement, Invoke) and last and statement.procedure is self.procedure:
                code.append(self._again(statement))
            elif isinstance(statement, Invoke):
                for result in statement.results:
                    self._settle(result, blocks.direct.get(id(result)), slots)
                code.append(self._call(statement))
            else:
                code.append((yield self._conditional(statement, blocks, slots, tail=last)))
        return code

    def _settle(self, value: Expr, slot: int | None, slots: Sequence[Storage]) -> Storage:
        """Fix where a new value lies."""
        kind = value.tensor_type
        storage = slots[slot] if slot is not None else Storage("arena", tensor_bytes(kind))
        self.homes[id(value)] = row_major_view(storage, kind)
        return storage

    def _block(self, block: Block, blocks: Blocks, slots: Sequence[Storage]) -> list[Step]:
        inputs = tuple(self._view(value) for value in block.inputs)
        outputs: list[Storage] = []
        for value, slot in zip(block.outputs, block.slots):
            if slot is None or blocks.direct.get(id(value)) == slot:
                outputs.append(self._settle(value, slot, slots))
            else:
                # a result that nothing else reads there: it may lie elsewhere, or be a constant
                outputs.append(slots[slot])
        return self.context.steps(block, Ports(inputs, tuple(outputs)))

    def _call(self, call: Invoke) -> CallCode | RegionCode:
        reads = tuple(self._view(arg) for arg in call.args)
        writes = tuple(self.homes[id(result)] for result in call.results)
        if isinstance(call.procedure, Foreign):
            return RegionCode(call.procedure, reads, writes)
        return CallCode(self.context.common.numbers[id(call.procedure)], reads, writes)

    def _conditional(
        self, statement: Conditional, blocks: Blocks, slots: Sequence[Storage], *, tail: bool
    ) -> Task[IfCode]:
        results = [self._settle(result, blocks.direct.get(id(result)), slots) for result in statement.branch.results]
        cond = self._view(statement.branch.cond)
        first = yield self._region(statement.branches[0], results, tail=tail)
        second = yield self._region(statement.branches[1], results, tail=tail)
        return IfCode(cond, (tuple(first), tuple(second)))

    def _again(self, call: Invoke) -> AgainCode:
        copies = [
            (self._view(arg), self.homes[id(param)])
            for arg, param in zip(call.args, self.procedure.params)
            if arg is not param
        ]
        targets = {id(target.storage) for _, target in copies}
        staged: list[tuple[View, View]] = []
        for number, (source, target) in enumerate(copies):
            if id(source.storage) in targets:
                spare = View(Storage("arena", target.storage.num_bytes), target.layout, target.dtype)
                staged.append((source, spare))
                copies[number] = (spare, target)
        return AgainCode(tuple(staged), tuple(copies))

    def _view(self, value: Expr) -> View:
        """Where a value lies that another block, a call or a conditional uses."""
        if id(value) in self.homes:
            return self.homes[id(value)]
        if isinstance(value, Constant) or id(value) in self.context.program.weights:
            return self.context.common.weights.view(value)
        raise InternalError("a value is used before it is computed")


def _ends_with(blocks: Blocks, statement: Invoke | Conditional) -> bool:
    """Whether a region's results are just what this statement, its last, makes."""
    results = statement.results if isinstance(statement, Invoke) else statement.branch.results
    same = len(results) == len(blocks.results) and all(a is b for a, b in zip(results, blocks.results))
    return same and blocks.statements[-1] is statement


def _restarts(body: Blocks, procedure: Procedure) -> list[Invoke]:
    """The calls by which a procedure starts over."""
    found: list[Invoke] = []
    pending = [body]
    while pending:
        blocks = pending.pop()
        last = blocks.statements[-1] if blocks.statements else None
        if isinstance(last, (Invoke, Conditional)) and _ends_with(blocks, last):
            if isinstance(last, Conditional):
                pending.extend(last.branches)
            elif last.procedure is procedure:
                found.append(last)
    return found


def _plan_frame(procedure: ProcedureCode) -> int:
    """Give the storages of a procedure's frame their offsets; the frame's bytes."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    storages: list[Storage] = []
    position = 0
    for position, code in enumerate(procedure.all_code()):
        for view in _touched(code):
            if view.storage.kind == "arena":
                if id(view.storage) not in first:
                    first[id(view.storage)] = position
                    storages.append(view.storage)
                last[id(view.storage)] = position
    for _, carried in procedure.carried or ():
        if id(carried.storage) not in first:
            storages.append(carried.storage)
        first[id(carried.storage)], last[id(carried.storage)] = 0, position
    offsets, total = plan([Lifetime(s.num_bytes, first[id(s)], last[id(s)]) for s in storages])
    for storage, offset in zip(storages, offsets):
        storage.offset = offset
    return total + SLACK if storages else 0


def _touched(code: Code) -> Iterator[View]:
    if isinstance(code, Step):
        yield from (*code.reads, code.write)
    elif isinstance(code, (CallCode, RegionCode)):
        yield from (*code.reads, *code.writes)
    elif isinstance(code, IfCode):
        yield code.cond
    else:
        for pair in (*code.staged, *code.copies):
            yield from pair
