"""Writes the program of a library: which kernels run over which memory, with barriers between; knows no operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaybuild.contrib.host.lower import Lowered, Step
from relaybuild.contrib.host.place import View
from relaybuild.digest import Hasher
from relaybuild.ir.types import TensorType, dtype_itemsize
from relaybuild.lower.c_writer import print_kernel
from relaybuild.lower.emit import c_type
from relaybuild.lower.memory_plan import Lifetime, plan

SLACK = 256
"""Bytes behind the arena's last buffer, which the last vector of a row may read."""
SINGLE_THREAD_FLOPS = 2_000_000
"""Below so much arithmetic an inference is over before another thread has woken."""

_DLPACK_CODES = {"float": "kDLFloat", "int": "kDLInt", "uint": "kDLUInt", "bool": "kDLBool"}


@dataclass(frozen=True)
class KernelUnit:
    """One kernel's symbol and C text, how often the program calls it, and the nodes it serves."""

    symbol: str
    text: str
    title: str
    calls: int
    nodes: tuple[str, ...]
    copies: bool


@dataclass(frozen=True)
class Program:
    """The sources of a library: kernels, each once, and the program that calls them."""

    kernels: tuple[KernelUnit, ...]
    text: str
    arena_bytes: int
    scratch_bytes: int


@dataclass(frozen=True)
class Port:
    """A named input or output."""

    name: str
    type: TensorType


@dataclass(frozen=True)
class ProgramSpec:
    """What stands in a program beside its steps; `metadata` becomes JSON that `inspect` reads."""

    name: str
    symbol: str
    target: str
    cpu_features: str
    flags: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    threads: int
    metadata: Mapping[str, object]


def write_program(lowered: Lowered, spec: ProgramSpec) -> Program:
    """Name the kernels by their content, plan the arena and write `program.c`."""
    arena_bytes = _plan_arena(lowered)
    symbols = [_symbol(step, spec.flags) for step in lowered.steps]
    units = _kernel_units(lowered.steps, symbols)
    scratch = max((step.kernel.scratch_bytes for step in lowered.steps), default=0)
    scratch = -(-scratch // 64) * 64
    metadata = {
        **spec.metadata,
        "kernels": [
            {"symbol": unit.symbol, "title": unit.title, "nodes": list(unit.nodes), "copies": unit.copies}
            for unit in units
        ],
        "steps": len(lowered.steps),
    }
    text = _program_text(lowered, spec, symbols, units, arena_bytes, scratch, json.dumps(metadata, sort_keys=True))
    return Program(tuple(units), text, arena_bytes, scratch)


def _plan_arena(lowered: Lowered) -> int:
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(lowered.steps):
        for view in (*step.reads, step.write):
            first.setdefault(id(view.storage), number)
            last[id(view.storage)] = number
    storages = lowered.arena
    lifetimes = [Lifetime(s.num_bytes, first[id(s)], last[id(s)]) for s in storages]
    offsets, total = plan(lifetimes)
    for storage, offset in zip(storages, offsets):
        storage.offset = offset
    return total + SLACK if storages else 0


def _symbol(step: Step, flags: Sequence[str]) -> str:
    hasher = Hasher("kernel").field("text", print_kernel(step.kernel, "rb_kernel")).field("flags", tuple(flags))
    return f"rb_{hasher.digest().hex[:24]}"


def _kernel_units(steps: Sequence[Step], symbols: Sequence[str]) -> list[KernelUnit]:
    order: dict[str, list[Step]] = {}
    for symbol, step in zip(symbols, steps):
        order.setdefault(symbol, []).append(step)
    units = []
    for symbol, users in order.items():
        nodes = tuple(dict.fromkeys(node for step in users for node in step.nodes))
        kernel = users[0].kernel
        text = print_kernel(kernel, symbol)
        units.append(KernelUnit(symbol, text, kernel.title, len(users), nodes, users[0].copies))
    return units


def _program_text(
    lowered: Lowered,
    spec: ProgramSpec,
    symbols: Sequence[str],
    units: Sequence[KernelUnit],
    arena_bytes: int,
    scratch: int,
    metadata: str,
) -> str:
    flops = sum(step.flops for step in lowered.steps)
    max_threads = 1 if flops < SINGLE_THREAD_FLOPS else 0
    weights = lowered.weights.num_bytes
    lines = [
        "/* The program of one model: its kernels in order, with a barrier before each that needs one. */",
        '#include "relaybuild/program.h"',
        "",
        *_prototypes(lowered.steps, symbols),
        "",
        *(["RB_HIDDEN extern const unsigned char rb_weights[];", ""] if weights else []),
        "static void run(const RbFrame *frame, int32_t thread, int32_t threads) {",
        "    void *scratch = frame->scratch + (size_t)thread * frame->scratch_stride;",
        *_calls(lowered.steps, symbols),
        "}",
        "",
        *_ports("inputs", spec.inputs),
        *_ports("outputs", spec.outputs),
        "",
        "static const RbProgram program = {",
        "    .abi_version = RELAYBUILD_ABI_VERSION,",
        f"    .name = {_c_string(spec.name)},",
        f"    .target = {_c_string(spec.target)},",
        f"    .cpu_features = {_c_string(spec.cpu_features)},",
        f"    .num_inputs = {len(spec.inputs)},",
        f"    .num_outputs = {len(spec.outputs)},",
        "    .inputs = inputs,",
        "    .outputs = outputs,",
        f"    .arena_bytes = {arena_bytes},",
        f"    .scratch_bytes = {scratch},",
        f"    .weight_bytes = {weights},",
        f"    .metadata = {_c_string(metadata)},",
        f"    .default_threads = {spec.threads},",
        f"    .max_threads = {max_threads},",
        f"    .weights = {'rb_weights' if weights else '0'},",
        "    .run = run,",
        "};",
        "",
        f"RB_DEFINE_MODEL({spec.symbol}, program);",
        "RB_DEFINE_ENTRY(program);",
        "",
    ]
    return "\n".join(lines)


def _prototypes(steps: Sequence[Step], symbols: Sequence[str]) -> list[str]:
    known: dict[str, str] = {}
    for symbol, step in zip(symbols, steps):
        parameters = [f"{'const ' if p.const else ''}{p.ctype} *restrict" for p in step.kernel.parameters]
        known[symbol] = f"RB_HIDDEN void {symbol}({', '.join(parameters)}, void *restrict, int32_t, int32_t);"
    return list(known.values())


def _calls(steps: Sequence[Step], symbols: Sequence[str]) -> list[str]:
    lines: list[str] = []
    hazards = _Hazards()
    for symbol, step in zip(symbols, steps):
        if hazards.needs_barrier(step):
            lines.append("    rb_barrier(frame->barrier, threads);")
        arguments = [_pointer(view, const=True) for view in step.reads] + [_pointer(step.write, const=False)]
        lines.append(f"    /* {step.kernel.title} */")
        lines.append(f"    {symbol}({', '.join(arguments)}, scratch, thread, threads);")
    return lines


class _Hazards:
    """What was read and written since the last barrier."""

    def __init__(self) -> None:
        self._reads: list[tuple[str, int, int, int]] = []
        self._writes: list[tuple[str, int, int, int]] = []

    def needs_barrier(self, step: Step) -> bool:
        """Whether `step` touches what another thread may still be computing; starts anew behind the barrier then."""
        reads = [_extent(view) for view in step.reads if view.storage.kind in ("arena", "output")]
        write = _extent(step.write)
        clash = any(_overlap(a, b) for a in (*reads, write) for b in self._writes)
        clash = clash or any(_overlap(write, b) for b in self._reads)
        if clash:
            self._reads, self._writes = [], []
        self._reads += reads
        self._writes.append(write)
        return clash


def _extent(view: View) -> tuple[str, int, int, int]:
    """The bytes that a view's kernel may touch: (kind of memory, number, first, past the last)."""
    storage, size = view.storage, dtype_itemsize(view.dtype)
    begin, end = view.layout.reach()
    number = storage.number if storage.kind != "arena" else 0
    return storage.kind, number, storage.offset + begin * size, storage.offset + end * size


def _overlap(a: tuple[str, int, int, int], b: tuple[str, int, int, int]) -> bool:
    return a[:2] == b[:2] and a[2] < b[3] and b[2] < a[3]


def _pointer(view: View, *, const: bool) -> str:
    ctype = c_type(view.dtype)
    qualifier = "const " if const else ""
    storage = view.storage
    if storage.kind == "input":
        return f"(const {ctype} *)frame->inputs[{storage.number}]"
    if storage.kind == "output":
        return f"({qualifier}{ctype} *)frame->outputs[{storage.number}]"
    base = "weights" if storage.kind == "weight" else "arena"
    return f"({qualifier}{ctype} *)(frame->{base} + {storage.offset})"


def _ports(kind: str, ports: Sequence[Port]) -> list[str]:
    lines = []
    for number, port in enumerate(ports):
        shape = ", ".join(str(extent) for extent in port.type.static_shape) or "0"
        lines.append(f"static const int64_t {kind}_{number}_shape[] = {{{shape}}};")
    rows = [
        f"    {{{_c_string(port.name)}, {port.type.rank}, {kind}_{number}_shape, {_dlpack_dtype(port.type.dtype)}}},"
        for number, port in enumerate(ports)
    ]
    return [*lines, f"static const RbTensorInfo {kind}[] = {{", *rows, "};"]


def _dlpack_dtype(dtype: str) -> str:
    stem = dtype.rstrip("0123456789")
    bits = dtype.removeprefix(stem) or "8"
    return f"{{{_DLPACK_CODES[stem]}, {bits}, 1}}"


def _c_string(text: str) -> str:
    """A C string literal, in pieces that every compiler takes."""
    escaped: list[str] = []
    for byte in text.encode():
        char = chr(byte)
        plain = 32 <= byte < 127 and char not in '"\\?'
        escaped.append(char if plain else f"\\{byte:03o}")
    pieces = ["".join(escaped[start : start + 400]) for start in range(0, len(escaped), 400)] or [""]
    return "\n        ".join(f'"{piece}"' for piece in pieces)
