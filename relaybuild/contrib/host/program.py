"""Writes the program of a library: its kernels by content, its procedures, its description; knows no operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from relaybuild.contrib.host.lower import Step
from relaybuild.contrib.host.procedure_text import procedures_text
from relaybuild.contrib.host.schedule import CallCode, LoweredProgram
from relaybuild.dataclass import dataclass
from relaybuild.digest import Hasher
from relaybuild.partition.c_text import Port, c_string, infos_pointer, tensor_infos

SINGLE_THREAD_FLOPS = 2_000_000
"""Below so much arithmetic an inference is over before another thread has woken."""


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


def write_program(lowered: LoweredProgram, spec: ProgramSpec) -> Program:
    """Name the kernels by their content and write `program.c`."""
    steps = lowered.steps
    symbols = {id(step): _symbol(step, spec.flags) for step in steps}
    units = _kernel_units(steps, symbols)
    scratch = max((step.kernel.scratch_bytes for step in steps), default=0)
    scratch = -(-scratch // 64) * 64
    metadata = {
        **spec.metadata,
        "kernels": [
            {"symbol": unit.symbol, "title": unit.title, "nodes": list(unit.nodes), "copies": unit.copies}
            for unit in units
        ],
        "steps": len(steps),
    }
    text = _program_text(lowered, spec, symbols, scratch, json.dumps(metadata, sort_keys=True))
    return Program(tuple(units), text, lowered.procedures[0].frame_bytes, scratch)


def _symbol(step: Step, flags: Sequence[str]) -> str:
    hasher = Hasher("kernel").field("text", step.kernel.text).field("flags", tuple(flags))
    return f"rb_{hasher.digest().hex[:24]}"


def _kernel_units(steps: Sequence[Step], symbols: Mapping[int, str]) -> list[KernelUnit]:
    order: dict[str, list[Step]] = {}
    for step in steps:
        order.setdefault(symbols[id(step)], []).append(step)
    units = []
    for symbol, users in order.items():
        nodes = tuple(dict.fromkeys(node for step in users for node in step.nodes))
        kernel = users[0].kernel
        units.append(KernelUnit(symbol, kernel.named(symbol), kernel.title, len(users), nodes, users[0].copies))
    return units


def _program_text(
    lowered: LoweredProgram, spec: ProgramSpec, symbols: Mapping[int, str], scratch: int, metadata: str
) -> str:
    flops = sum(step.flops for step in lowered.steps)
    # what regions gain from threads is not known here
    max_threads = 1 if flops < SINGLE_THREAD_FLOPS and not lowered.regions else 0
    weights = lowered.weights.num_bytes
    calls = any(isinstance(code, CallCode) for procedure in lowered.procedures for code in procedure.all_code())
    regions = [region.symbol for region in lowered.regions]
    lines = [
        "/* The program of one model: its kernels in order, with a barrier before each that needs one. */",
        '#include "relaybuild/program.h"',
        "",
        *_prototypes(lowered.steps, symbols),
        "",
        *(["RB_HIDDEN extern const unsigned char rb_weights[];", ""] if weights else []),
        *_region_table(regions),
        *procedures_text(lowered.procedures, symbols, lowered.regions),
        "",
        *tensor_infos("inputs", spec.inputs),
        *tensor_infos("outputs", spec.outputs),
        "",
        "static const RbProgram program = {",
        "    .abi_version = RELAYBUILD_ABI_VERSION,",
        f"    .name = {c_string(spec.name)},",
        f"    .target = {c_string(spec.target)},",
        f"    .cpu_features = {c_string(spec.cpu_features)},",
        f"    .num_inputs = {len(spec.inputs)},",
        f"    .num_outputs = {len(spec.outputs)},",
        f"    .inputs = {infos_pointer('inputs', spec.inputs)},",
        f"    .outputs = {infos_pointer('outputs', spec.outputs)},",
        f"    .arena_bytes = {lowered.procedures[0].frame_bytes},",
        f"    .scratch_bytes = {scratch},",
        f"    .weight_bytes = {weights},",
        f"    .metadata = {c_string(metadata)},",
        f"    .default_threads = {spec.threads},",
        f"    .max_threads = {max_threads},",
        f"    .weights = {'rb_weights' if weights else '0'},",
        "    .run = run,",
        *(["    .makes_calls = 1,"] if calls else []),
        *([f"    .num_regions = {len(regions)},", "    .regions = regions,"] if regions else []),
        "};",
        "",
        f"RB_DEFINE_MODEL({spec.symbol}, program);",
        f"RB_DEFINE_ENTRY({spec.symbol});",
        "RB_DEFINE_MAIN(program);",
        "",
    ]
    return "\n".join(lines)


def _region_table(symbols: Sequence[str]) -> list[str]:
    if not symbols:
        return []
    pointers = ", ".join(f"&rb_region_{symbol}" for symbol in symbols)
    externs = [f"RB_HIDDEN extern const RbRegion rb_region_{symbol};" for symbol in symbols]
    return [*externs, f"static const RbRegion *const regions[] = {{{pointers}}};", ""]


def _prototypes(steps: Sequence[Step], symbols: Mapping[int, str]) -> list[str]:
    known: dict[str, str] = {}
    for step in steps:
        symbol = symbols[id(step)]
        parameters = [f"{'const ' if p.const else ''}{p.ctype} *restrict" for p in step.kernel.parameters]
        known[symbol] = f"RB_HIDDEN void {symbol}({', '.join(parameters)}, void *restrict, int32_t, int32_t);"
    return list(known.values())
