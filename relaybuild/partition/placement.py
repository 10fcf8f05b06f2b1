"""Who takes a call, or why nobody does; knows no backend by name and changes no program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Span
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.partition.backend import HOST, supports
from relaybuild.partition.constants import constant_exprs
from relaybuild.partition.merge_composite import unmerged
from relaybuild.partition.pattern_table import table_of
from relaybuild.partition.regions import Regions, read_regions
from relaybuild.passes._blocks import is_sealed


@dataclass(frozen=True)
class Refusal:
    """Why the compiler of a tag does not take a call; `given` where it said so itself."""

    tag: str
    reason: str
    given: bool = False


@dataclass(frozen=True)
class Choice:
    """The compiler that takes a call, None for the host, and the refusals of those asked before it."""

    tag: str | None
    refusals: tuple[Refusal, ...] = ()

    @property
    def reason(self) -> str:
        """The best reason why the call is with the host: what a backend said itself, else the first."""
        if self.tag is not None:
            return ""
        best = next((each for each in self.refusals if each.given), self.refusals[0] if self.refusals else None)
        return best.reason if best else "no backend is asked"


@dataclass(frozen=True)
class Placement:
    """Where a call of a function of the module runs: with a `backend`, or with the host (None) for a `reason`.

    What `is_constant` is computed once, not at every run.
    """

    function: str
    call: Call
    span: Span | None
    backend: str | None
    reason: str
    is_constant: bool = False


class Chooser:
    """Chooses compilers, by priority in `tags`, for the calls of one function.

    `nodes` are all of the function's, children before parents. With `include_constants`, compilers are also asked about
    operators over constants alone.
    """

    def __init__(self, tags: Sequence[str], nodes: Sequence[Expr], include_constants: bool = False) -> None:
        self._tags = tags
        self._constants = None if include_constants else constant_exprs(nodes)

    def is_constant(self, node: Expr) -> bool:
        """Whether a node is the same at every run, and therefore computed once, by no compiler."""
        return self._constants is not None and self._constants.holds(node)

    def choose(self, call: Call) -> Choice:
        """The first compiler that takes a typed call.

        A function cut out for a pattern goes to the compiler by which the pattern's name begins; other functions,
        operators over constants alone, and those that no predicate takes stay with the host.
        """
        name = composite_name(call)
        if name is not None:
            tag = name.split(".", 1)[0]
            reason = f"'{name}' is a pattern of '{tag}', which is not asked"
            return Choice(tag) if tag in self._tags else Choice(None, (Refusal(tag, reason),))
        if not isinstance(call.op, Op):
            return Choice(None, (Refusal(HOST, "only calls of operators and patterns are placed"),))
        if self.is_constant(call):
            return Choice(None, (Refusal(HOST, "it is computed once, from constants alone", given=True),))
        return self._ask(call)

    def _ask(self, call: Call) -> Choice:
        refusals: list[Refusal] = []
        for tag in self._tags:
            answer = supports(tag, call)
            if answer is True:
                return Choice(tag, tuple(refusals))
            reason = answer if isinstance(answer, str) else f"'{tag}' does not take '{call.op_name}'"
            refusals.append(Refusal(tag, reason, given=isinstance(answer, str)))
        return Choice(None, tuple(refusals))


def composite_name(call: Call) -> str | None:
    """The name of the pattern for which a call's function was cut out."""
    name = call.op.attrs.get("Composite") if isinstance(call.op, Function) else None
    return name if isinstance(name, str) else None


def find_placements(mod: IRModule, tags: Sequence[str]) -> tuple[Placement, ...]:
    """The placement of every call, function by function, operands before users; a pattern's call is one.

    `mod` is typed and may be at any stage of partitioning: what is marked, or has been cut out, is where it is; what is
    not yet would go to the first of `tags` that takes it. Patterns are taken to have been merged as far as they match.
    Calls of functions that have been cut out are left out.
    """
    regions = {name: read_regions(_opened(function)) for name, function in mod.functions.items()}
    return placements_in(mod, regions, tags)


def placements_in(mod: IRModule, regions: Mapping[str, Regions], tags: Sequence[str]) -> tuple[Placement, ...]:
    """`find_placements` of a module's functions, where the regions are known; the calls are those of `regions`."""
    refusals = _pattern_refusals(mod.with_functions({name: each.function for name, each in regions.items()}), tags)
    found: list[Placement] = []
    for name, each in regions.items():
        compiler = mod[name].attrs.get("Compiler")
        if isinstance(compiler, str):
            found += [Placement(name, call, call.span, compiler, "") for call in _calls(mod, each)]
        elif not is_sealed(mod[name]):
            chooser = Chooser(tags, each.order)
            found += [_placement(name, call, each, chooser, refusals) for call in _calls(mod, each)]
    return tuple(found)


def _opened(function: Function) -> Function:
    """A function that was cut out, without the attributes that hide its body."""
    return Function(function.params, function.body, function.ret_type) if "Compiler" in function.attrs else function


def _calls(mod: IRModule, regions: Regions) -> list[Call]:
    calls = [node for node in regions.order if isinstance(node, Call) and regions.blocks.of(node) is not None]
    return [call for call in calls if not (isinstance(call.op, GlobalVar) and "Compiler" in mod[call.op].attrs)]


def _placement(
    name: str, call: Call, regions: Regions, chooser: Chooser, refusals: Mapping[int, Sequence[Refusal]]
) -> Placement:
    marked = regions.tag_of(call)
    if marked is not None and marked != HOST:
        return Placement(name, call, call.span, marked, "")
    choice = chooser.choose(call)
    refused = Choice(choice.tag, (*choice.refusals, *refusals.get(id(call), ())))
    return Placement(name, call, call.span, choice.tag, refused.reason, chooser.is_constant(call))


def _pattern_refusals(mod: IRModule, tags: Sequence[str]) -> dict[int, list[Refusal]]:
    """By the id of a call: why patterns of the compilers do not hold there, where one comes near."""
    found: dict[int, list[Refusal]] = {}
    for tag in tags:
        table = table_of(tag)
        for each in unmerged(mod, table) if table else ():
            if each.pattern is not None:
                reason = f"'{each.pattern}': {each.reason}"
                found.setdefault(id(each.call), []).append(Refusal(tag, reason, given=True))
    return found
