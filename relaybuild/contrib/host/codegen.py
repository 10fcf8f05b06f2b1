"""The host's code generator: a function and those it calls become C kernels, a program, and `@weights`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.control import to_procedures
from relaybuild.contrib.host.program import Program, ProgramSpec, write_levels, write_program
from relaybuild.contrib.host.schedule import Machinery, lower_levels
from relaybuild.ir.expr import Function
from relaybuild.lower.machine import Machine
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit, flat_types
from relaybuild.partition.c_text import Port
from relaybuild.target import Target


def machine_of(target: Target) -> Machine:
    """What schedules are made for: the least second-level cache among processors of the target's level."""
    l2_bytes = (1024 if target.vector_lanes >= 16 else 512) * 1024
    # scalar code is fitted as it is, whatever its instructions
    has_fma = target.has_fma or target.vector_lanes == 1
    return Machine(target.vector_lanes, target.num_vector_registers, l2_bytes=l2_bytes, has_fma=has_fma)


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The sources of a function over tensors of known shape and tuples of them, and of what it calls in its module.

    Raises UnsupportedError, with the place, for what has no native code.
    """
    levels = options.levels or (options,)
    procedures = to_procedures(function, options.module)
    lowered = lower_levels(
        procedures,
        [Machinery(Setting(machine_of(level.target), level.precise), level.remember) for level in levels],
        fusion=options.opt_level > 0,
    )
    results = tuple(result.tensor_type for result in procedures.results)
    params = [kind for param in function.params for kind in flat_types(param.checked_type)]
    inputs = tuple(Port(name, kind) for name, kind in zip(options.inputs, params))
    outputs = tuple(Port(name, kind) for name, kind in zip(options.outputs, results))
    specs = [_spec(level, inputs, outputs, is_level=bool(options.levels)) for level in levels]
    if options.levels:
        programs, choice = write_levels(lowered, specs, options.target.name)
        units = [unit for pair in zip(programs, levels) for unit in _units(*pair)]
        units.append(SourceUnit("program", choice, False))
    else:
        programs = [write_program(lowered[0], specs[0])]
        units = list(_units(programs[0]))
    weights = lowered[0].weights
    return GeneratedCode(
        tuple(units),
        weights=weights.function(),
        weight_offsets=tuple(storage.offset for storage in weights.storages),
        weight_bytes=weights.num_bytes,
        arena_bytes=max(program.arena_bytes for program in programs),
        kernels=tuple(fact for pair in zip(programs, specs) for fact in _kernel_facts(*pair)),
        results=results,
    )


def _spec(
    options: CodegenOptions, inputs: tuple[Port, ...], outputs: tuple[Port, ...], *, is_level: bool
) -> ProgramSpec:
    target = options.target
    return ProgramSpec(
        options.name,
        options.symbol,
        target.name,
        " ".join(target.cpu_features.split()),
        options.flags,
        inputs,
        outputs,
        options.threads,
        dict(options.config),
        target.level_number if is_level else 0,
    )


def _units(program: Program, options: CodegenOptions | None = None) -> Iterator[SourceUnit]:
    """A program's units; `options` are those of a level."""
    for unit in program.kernels:
        yield SourceUnit(unit.symbol, unit.text, True, flags=None if options is None else options.flags)
    yield SourceUnit(program.unit, program.text, False)


def _kernel_facts(program: Program, spec: ProgramSpec) -> Iterator[Mapping[str, object]]:
    level = {"target": spec.target} if spec.level else {}
    for unit in program.kernels:
        yield {
            "symbol": unit.symbol,
            "title": unit.title,
            "calls": unit.calls,
            "nodes": list(unit.nodes),
            "copies": unit.copies,
            **level,
        }
