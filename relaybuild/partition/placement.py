"""Who takes a call, or why nobody does; knows no backend by name and changes no program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from relaybuild.ir.expr import Call, Function, Span
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op
from relaybuild.partition.backend import HOST, supports
from relaybuild.partition.regions import read_regions
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
    """Where a call of a function of the module runs: with a `backend`, or with the host (None) for a `reason`."""

    function: str
    call: Call
    span: Span | None
    backend: str | None
    reason: str


def choose(call: Call, tags: Sequence[str]) -> Choice:
    """The first compiler that takes a typed call.

    A function cut out for a pattern goes to the compiler by which the pattern's name begins; other functions, and
    operators that no predicate takes, stay with the host.
    """
    name = composite_name(call)
    if name is not None:
        tag = name.split(".", 1)[0]
        return Choice(tag) if tag in tags else Choice(None, (Refusal(tag, f"'{name}' is a pattern of '{tag}'"),))
    if not isinstance(call.op, Op):
        return Choice(None, (Refusal(HOST, "only calls of operators and patterns are placed"),))
    refusals: list[Refusal] = []
    for tag in tags:
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
    not yet would go to the first of `tags` that takes it.
    """
    found: list[Placement] = []
    for name, function in mod.functions.items():
        compiler = function.attrs.get("Compiler")
        if isinstance(compiler, str):
            # without its attributes, which hide a body from passes
            body = read_regions(Function(function.params, function.body))
            calls = (node for node in body.order if isinstance(node, Call) and body.blocks.of(node) is not None)
            found += [Placement(name, call, call.span, compiler, "") for call in calls]
        elif not is_sealed(function):
            found += _placed(name, function, tags)
    return tuple(found)


def _placed(name: str, function: Function, tags: Sequence[str]) -> Iterator[Placement]:
    regions = read_regions(function)
    for node in regions.order:
        if not isinstance(node, Call) or regions.blocks.of(node) is None:
            continue
        marked = regions.tag_of(node)
        if marked is not None and marked != HOST:
            yield Placement(name, node, node.span, marked, "")
        else:
            choice = choose(node, tags)
            yield Placement(name, node, node.span, choice.tag, choice.reason)
