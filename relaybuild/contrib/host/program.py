"""Writes the program of a library: its kernels by content, its procedures, its description; knows no operator."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from relaybuild.contrib.host.lower import Step
from relaybuild.contrib.host.procedure_text import procedures_text
from relaybuild.contrib.host.schedule import CallCode, LoweredProgram
from relaybuild.dataclass import dataclass
from relaybuild.digest import Hasher
from relaybuild.identifier import c_identifier
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
    """The sources of a library: kernels, each once, and the program that calls them, in a unit of some name."""

    kernels: tuple[KernelUnit, ...]
    unit: str
    text: str
    arena_bytes: int


@dataclass(frozen=True)
class ProgramSpec:
    """What stands in a program beside its steps; `metadata` becomes JSON that `inspect` reads, and `level` is the
    number of its target's, where it is one of several programs of a library, else 0."""

    name: str
    symbol: str
    target: str
    cpu_features: str
    flags: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    threads: int
    metadata: Mapping[str, object]
    level: int = 0

    @property
    def symbol_of_level(self) -> str:
        """The name of the program among those of its library."""
        return f"rb_program_{c_identifier(self.target)}"


def write_program(lowered: LoweredProgram, spec: ProgramSpec) -> Program:
    """Name the kernels by their content and write `program.c`, or the unit of a level."""
    steps = lowered.steps
    symbols = {id(step): _symbol(step, spec.flags) for step in steps}
    units = _kernel_units(steps, symbols)
    metadata = {
        **spec.metadata,
        "kernels": [
            {"symbol": unit.symbol, "title": unit.title, "nodes": list(unit.nodes), "copies": unit.copies}
            for unit in units
        ],
        "steps": len(steps),
    }
    text = _program_text(lowered, spec, symbols, json.dumps(metadata, sort_keys=True))
    unit = f"program_{c_identifier(spec.target)}" if spec.level else "program"
    return Program(tuple(units), unit, text, lowered.procedures[0].frame_bytes)


def write_levels(
    lowered: Sequence[LoweredProgram], specs: Sequence[ProgramSpec], name: str
) -> tuple[Sequence[Program], str]:
    """The programs of several levels of a processor, from the least on, and the text of `program.c`, which has the
    library's functions and picks one of them; `name` is that of the whole target."""
    levels = {"target": name, "levels": [_level_facts(*pair) for pair in zip(lowered, specs)]}
    specs = [replace(spec, metadata={**spec.metadata, **levels}) for spec in specs]
    return list(map(write_program, lowered, specs)), _choice_text(specs, name)


def _level_facts(lowered: LoweredProgram, spec: ProgramSpec) -> Mapping[str, object]:
    """What all programs of a library say of each of them."""
    return {
        "target": spec.target,
        "cpu_features": spec.cpu_features,
        "arena_bytes": lowered.procedures[0].frame_bytes,
        "scratch_bytes": _scratch_bytes(lowered.steps),
        "kernels": len({_symbol(step, spec.flags) for step in lowered.steps}),
    }


def _scratch_bytes(steps: Sequence[Step]) -> int:
    scratch = max((step.kernel.scratch_bytes for step in steps), default=0)
    return -(-scratch // 64) * 64


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


def _program_text(lowered: LoweredProgram, spec: ProgramSpec, symbols: Mapping[int, str], metadata: str) -> str:
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
        *_ports(spec),
        *([f"RB_HIDDEN extern const RbProgram {spec.symbol_of_level};"] if spec.level else []),
        f"{'' if spec.level else 'static '}const RbProgram {spec.symbol_of_level if spec.level else 'program'} = {{",
        *_description(spec, spec.target),
        f"    .arena_bytes = {lowered.procedures[0].frame_bytes},",
        f"    .scratch_bytes = {_scratch_bytes(lowered.steps)},",
        f"    .weight_bytes = {weights},",
        f"    .metadata = {c_string(metadata)},",
        f"    .default_threads = {spec.threads},",
        f"    .max_threads = {max_threads},",
        f"    .weights = {'rb_weights' if weights else '0'},",
        "    .run = run,",
        *(["    .makes_calls = 1,"] if calls else []),
        *([f"    .num_regions = {len(regions)},", "    .regions = regions,"] if regions else []),
        *([f"    .level = {spec.level},"] if spec.level else []),
        "};",
        "",
        *([] if spec.level else _functions(spec)),
    ]
    return "\n".join(lines)


def _choice_text(specs: Sequence[ProgramSpec], name: str) -> str:
    """A program that is each of several, whichever suits the processor."""
    least, symbols = specs[0], [spec.symbol_of_level for spec in specs]
    lines = [
        "/* One model for several levels of a processor, of which the runtime picks one. */",
        '#include "relaybuild/program.h"',
        "",
        *(f"RB_HIDDEN extern const RbProgram {symbol};" for symbol in symbols),
        f"static const RbProgram *const levels[] = {{{', '.join(f'&{symbol}' for symbol in symbols)}}};",
        "",
        *_ports(least),
        "static const RbProgram program = {",
        *_description(least, name),
        '    .metadata = "{}",',
        f"    .num_levels = {len(symbols)},",
        "    .levels = levels,",
        "};",
        "",
        *_functions(least),
    ]
    return "\n".join(lines)


def _ports(spec: ProgramSpec) -> list[str]:
    return [*tensor_infos("inputs", spec.inputs), *tensor_infos("outputs", spec.outputs), ""]


def _description(spec: ProgramSpec, target: str) -> list[str]:
    """The fields of a program that do not depend on what it does."""
    return [
        "    .abi_version = RELAYBUILD_ABI_VERSION,",
        f"    .name = {c_string(spec.name)},",
        f"    .target = {c_string(target)},",
        f"    .cpu_features = {c_string(spec.cpu_features)},",
        f"    .num_inputs = {len(spec.inputs)},",
        f"    .num_outputs = {len(spec.outputs)},",
        f"    .inputs = {infos_pointer('inputs', spec.inputs)},",
        f"    .outputs = {infos_pointer('outputs', spec.outputs)},",
    ]


def _functions(spec: ProgramSpec) -> list[str]:
    """The functions of a library."""
    return [
        f"RB_DEFINE_MODEL({spec.symbol}, program);",
        f"RB_DEFINE_ENTRY({spec.symbol});",
        "RB_DEFINE_MAIN(program);",
        "",
    ]


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
