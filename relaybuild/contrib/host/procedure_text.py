"""Writes procedures in C: kernels, calls and conditionals in order, with barriers between; knows no operator.

Every thread runs the whole of a procedure and takes the same branches, so that calls need no agreement: a condition is
read by all threads behind the barrier that makes it visible, and before the one behind which it may be overwritten.
Functions of other backends bring barriers of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from relaybuild.contrib.host.lower import Step
from relaybuild.contrib.host.place import View
from relaybuild.contrib.host.procedure import Foreign
from relaybuild.contrib.host.schedule import AgainCode, CallCode, Code, IfCode, ProcedureCode, RegionCode
from relaybuild.ir.trampoline import Step as Task
from relaybuild.ir.trampoline import run
from relaybuild.ir.types import dtype_itemsize
from relaybuild.lower.emit import c_type

SHARED_COPY_BYTES = 8192
"""From so many bytes on, the threads share a copy."""

MOST_INDENT = 40
"""Steps beyond which deeper conditionals are not indented further, so that the text stays linear in them."""

Extent: TypeAlias = tuple[str, int, int, int]
"""(kind of memory, number, first byte, past the last)."""

_STACK: Extent = ("stack", 0, 0, 1)
"""The memory behind the frame, where those of calls lie."""


def procedures_text(
    procedures: Sequence[ProcedureCode], symbols: Mapping[int, str], regions: Sequence[Foreign] = ()
) -> list[str]:
    """Lines that define `run`, which runs the first procedure.

    `symbols` are the kernels of steps, by their ids; `regions` the functions of other backends, by the numbers that the
    runtime knows them by.
    """
    entry = procedures[0]
    if len(procedures) == 1 and entry.carried is None and all(isinstance(code, Step) for code in entry.body):
        return [
            "static void run(const RbFrame *frame, int32_t thread, int32_t threads) {",
            "    void *scratch = frame->scratch + (size_t)thread * frame->scratch_stride;",
            *run(_Writer(procedures, symbols, regions).body(entry.body, 1)),
            "}",
        ]
    writer = _Writer(procedures, symbols, regions)
    lines = [f"{writer.signature(number)};" for number in range(len(procedures))]
    for number, procedure in enumerate(procedures):
        lines += ["", *_procedure(procedure, number, writer.for_procedure())]
    return [
        *lines,
        "",
        "static void run(const RbFrame *frame, int32_t thread, int32_t threads) {",
        f"    (void){writer.name(0)}(frame, thread, threads);",
        "}",
    ]


def _procedure(procedure: ProcedureCode, number: int, writer: _Writer) -> list[str]:
    loops = procedure.carried is not None
    copies = [line for pair in procedure.carried or () for line in writer.copy(*pair, 1)]
    if copies:
        copies += writer.barrier(1)
    body = run(writer.body(procedure.body, 2 if loops else 1))
    codes = list(procedure.all_code())
    head = []
    if any(isinstance(code, Step) for code in codes):
        head.append("    void *scratch = frame->scratch + (size_t)thread * frame->scratch_stride;")
    elif all(isinstance(code, IfCode) for code in codes):
        head.append("    (void)thread, (void)threads;")
    if loops:
        body = ["    for (;;) {", *body, "        return RB_OK;", "    }"]
    else:
        body.append("    return RB_OK;")
    return [
        f"/* @{_comment(procedure.name)} */",
        f"{writer.signature(number)} {{",
        *(head if codes else ["    (void)frame, (void)thread, (void)threads;"]),
        *copies,
        *body,
        "}",
    ]


def _comment(text: str) -> str:
    return "".join(char if char.isprintable() and char.isascii() else "?" for char in text).replace("*/", "*?")


class _Writer:
    """Writes one procedure's code, and knows what was read and written since the last barrier."""

    def __init__(
        self, procedures: Sequence[ProcedureCode], symbols: Mapping[int, str], regions: Sequence[Foreign]
    ) -> None:
        self._procedures = procedures
        self._symbols = symbols
        self._regions = regions
        self._hazards = _Hazards()

    def for_procedure(self) -> _Writer:
        """A writer of another procedure of the same program."""
        return _Writer(self._procedures, self._symbols, self._regions)

    def name(self, number: int) -> str:
        text = "".join(char if char.isascii() and char.isalnum() else "_" for char in self._procedures[number].name)
        return f"f{number}_{text}"

    def signature(self, number: int) -> str:
        return f"static RB_NOINLINE RbStatus {self.name(number)}(const RbFrame *frame, int32_t thread, int32_t threads)"

    def body(self, codes: Sequence[Code], depth: int) -> Task[list[str]]:
        """The lines of some code, indented by `depth` steps."""
        lines: list[str] = []
        for code in codes:
            if isinstance(code, Step):
                lines += self._step(code, depth)
            elif isinstance(code, CallCode):
                lines += self._call(code, depth)
            elif isinstance(code, RegionCode):
                lines += self._region(code, depth)
            elif isinstance(code, AgainCode):
                lines += self._again(code, depth)
            else:
                lines += yield self._if(code, depth)
        return lines

    def barrier(self, depth: int) -> list[str]:
        self._hazards = _Hazards()
        return [f"{_indent(depth)}rb_barrier(frame->barrier, threads);"]

    def copy(self, source: View, target: View, depth: int) -> list[str]:
        """A copy from one row-major tensor to another of its type."""
        size = source.layout.size * dtype_itemsize(source.dtype)
        lines = self._touch([source], [target], depth)
        operands = f"{_pointer(target, const=False)}, {_pointer(source, const=True)}, {size}"
        if size >= SHARED_COPY_BYTES:
            return [*lines, f"{_indent(depth)}rb_copy({operands}, thread, threads);"]
        if not size:
            return []
        head = f"{_indent(depth)}if (thread == 0) {{"
        return [*lines, head, f"{_indent(depth + 1)}memcpy({operands});", f"{_indent(depth)}}}"]

    def _touch(self, reads: Sequence[View], writes: Sequence[View], depth: int, *, stack: bool = False) -> list[str]:
        """The barrier before code that reads and writes so, where it needs one."""
        read = [_extent(view) for view in reads if view.storage.kind in ("arena", "output")]
        written = [_extent(view) for view in writes] + ([_STACK] if stack else [])
        lines = self.barrier(depth) if self._hazards.clashes(read, written) else []
        self._hazards.add(read, written)
        return lines

    def _step(self, step: Step, depth: int) -> list[str]:
        lines = self._touch(step.reads, [step.write], depth)
        arguments = [_pointer(view, const=True) for view in step.reads] + [_pointer(step.write, const=False)]
        lines.append(f"{_indent(depth)}/* {step.kernel.title} */")
        lines.append(f"{_indent(depth)}{self._symbols[id(step)]}({', '.join(arguments)}, scratch, thread, threads);")
        return lines

    def _call(self, code: CallCode, depth: int) -> list[str]:
        lines = self._touch(code.reads, code.writes, depth, stack=True)
        callee = self._procedures[code.callee]
        call = [
            "RbFrame callee;",
            f"RbStatus status = rb_call(frame, &callee, args, results, {callee.frame_bytes}, {_native_bytes(callee)});",
            f"status = status ? status : {self.name(code.callee)}(&callee, thread, threads);",
        ]
        return [*lines, *_call_block(code, call, depth)]

    def _region(self, code: RegionCode, depth: int) -> list[str]:
        self._hazards = _Hazards()
        number = self._regions.index(code.callee)
        call = [f"RbStatus status = rb_region(frame, {number}, args, results, thread, threads);"]
        head = f"{_indent(depth)}/* {_comment(code.callee.compiler)}: {_comment(code.callee.symbol)} */"
        return [head, *_call_block(code, call, depth)]

    def _if(self, code: IfCode, depth: int) -> Task[list[str]]:
        lines = self._touch([code.cond], [], depth)
        before = self._hazards
        self._hazards = before.copy()
        first = yield self.body(code.branches[0], depth + 1)
        after_first, self._hazards = self._hazards, before.copy()
        second = yield self.body(code.branches[1], depth + 1)
        self._hazards = after_first.union(self._hazards)
        condition = f"*{_pointer(code.cond, const=True)}"
        lines.append(f"{_indent(depth)}if ({condition}) {{")
        lines += first
        if second:
            lines += [f"{_indent(depth)}}} else {{", *second]
        return [*lines, f"{_indent(depth)}}}"]

    def _again(self, code: AgainCode, depth: int) -> list[str]:
        lines = [line for pair in (*code.staged, *code.copies) for line in self.copy(*pair, depth)]
        return [*lines, *self.barrier(depth), f"{_indent(depth)}continue;"]


class _Hazards:
    """What was read and written since the last barrier."""

    def __init__(self, reads: Sequence[Extent] = (), writes: Sequence[Extent] = ()) -> None:
        self._reads = dict.fromkeys(reads)
        self._writes = dict.fromkeys(writes)

    def clashes(self, reads: Sequence[Extent], writes: Sequence[Extent]) -> bool:
        """Whether code touches what another thread may still be computing."""
        clash = any(_overlap(a, b) for a in (*reads, *writes) for b in self._writes)
        return clash or any(_overlap(a, b) for a in writes for b in self._reads)

    def add(self, reads: Sequence[Extent], writes: Sequence[Extent]) -> None:
        self._reads.update(dict.fromkeys(reads))
        self._writes.update(dict.fromkeys(writes))

    def copy(self) -> _Hazards:
        return _Hazards(tuple(self._reads), tuple(self._writes))

    def union(self, other: _Hazards) -> _Hazards:
        """What may be pending behind either of two ways."""
        return _Hazards((*self._reads, *other._reads), (*self._writes, *other._writes))


def _call_block(code: CallCode | RegionCode, call: Sequence[str], depth: int) -> list[str]:
    """A call over arrays of pointers, which returns from the procedure where its status is not 0."""
    inputs = ", ".join(_pointer(view, const=True) for view in code.reads) or "0"
    outputs = ", ".join(_pointer(view, const=False) for view in code.writes) or "0"
    inner = _indent(depth + 1)
    return [
        f"{_indent(depth)}{{",
        f"{inner}const void *const args[] = {{{inputs}}};",
        f"{inner}void *const results[] = {{{outputs}}};",
        *(f"{inner}{line}" for line in call),
        f"{inner}if (status) {{",
        f"{inner}    return status;",
        f"{inner}}}",
        f"{_indent(depth)}}}",
    ]


def _native_bytes(procedure: ProcedureCode) -> int:
    """What a call of a procedure takes of the C stack, at most: its frames for calls, and room for registers."""
    calls = [code for code in procedure.all_code() if isinstance(code, (CallCode, RegionCode))]
    return 160 + sum(112 + 8 * max(1, len(code.reads)) + 8 * max(1, len(code.writes)) for code in calls)


def _extent(view: View) -> Extent:
    """The bytes that a view's kernel may touch."""
    storage, size = view.storage, dtype_itemsize(view.dtype)
    begin, end = (view.start + place for place in view.layout.reach())
    number = storage.number if storage.kind != "arena" else 0
    return storage.kind, number, storage.offset + begin * size, storage.offset + end * size


def _overlap(a: Extent, b: Extent) -> bool:
    return a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3]


def _pointer(view: View, *, const: bool) -> str:
    ctype = c_type(view.dtype)
    qualifier = "const " if const else ""
    storage = view.storage
    if storage.kind in ("input", "output"):
        qualifier = "const " if storage.kind == "input" else qualifier
        start = f" + {view.start}" if view.start else ""
        return f"({qualifier}{ctype} *)frame->{storage.kind}s[{storage.number}]{start}"
    base = "weights" if storage.kind == "weight" else "arena"
    offset = storage.offset + view.start * dtype_itemsize(view.dtype)
    return f"({qualifier}{ctype} *)(frame->{base} + {offset})"


def _indent(depth: int) -> str:
    return "    " * min(depth, MOST_INDENT)
