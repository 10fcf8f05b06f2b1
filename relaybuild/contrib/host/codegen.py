"""The host's code generator: a function and those it calls become C kernels, a program, and `@weights`."""

from __future__ import annotations

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.control import to_procedures
from relaybuild.contrib.host.program import ProgramSpec, write_program
from relaybuild.contrib.host.schedule import lower_program
from relaybuild.ir.expr import Function
from relaybuild.lower.machine import Machine
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit, flat_types
from relaybuild.partition.c_text import Port
from relaybuild.target import Target


def machine_of(target: Target) -> Machine:
    """What schedules are made for: the least second-level cache among processors of the target's level."""
    l2_bytes = (1024 if target.vector_lanes >= 16 else 512) * 1024
    return Machine(target.vector_lanes, target.num_vector_registers, l2_bytes=l2_bytes)


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The sources of a function over tensors of known shape and tuples of them, and of what it calls in its module.

    Raises UnsupportedError, with the place, for what has no native code.
    """
    target = options.target
    setting = Setting(machine_of(target), options.precise)
    procedures = to_procedures(function, options.module)
    lowered = lower_program(procedures, setting, fusion=options.opt_level > 0, remember=options.remember)
    results = tuple(result.tensor_type for result in procedures.results)
    params = [kind for param in function.params for kind in flat_types(param.checked_type)]
    spec = ProgramSpec(
        options.name,
        options.symbol,
        target.name,
        " ".join(target.cpu_features.split()),
        options.flags,
        tuple(Port(name, kind) for name, kind in zip(options.inputs, params)),
        tuple(Port(name, kind) for name, kind in zip(options.outputs, results)),
        options.threads,
        dict(options.config),
    )
    program = write_program(lowered, spec)
    units = [SourceUnit(unit.symbol, unit.text, True) for unit in program.kernels]
    units.append(SourceUnit("program", program.text, False))
    kernels = tuple(
        {
            "symbol": unit.symbol,
            "title": unit.title,
            "calls": unit.calls,
            "nodes": list(unit.nodes),
            "copies": unit.copies,
        }
        for unit in program.kernels
    )
    weights = lowered.weights
    return GeneratedCode(
        tuple(units),
        weights=weights.function(),
        weight_offsets=tuple(storage.offset for storage in weights.storages),
        weight_bytes=weights.num_bytes,
        arena_bytes=program.arena_bytes,
        kernels=kernels,
        results=results,
    )
