"""The host's code generator: a function becomes C kernels, a program that calls them, and `@weights`."""

from __future__ import annotations

from relaybuild.contrib.host.anchor import Setting
from relaybuild.contrib.host.legalize import legalize
from relaybuild.contrib.host.lower import lower_function
from relaybuild.contrib.host.program import Port, ProgramSpec, write_program
from relaybuild.ir.expr import Function
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.lower.machine import Machine
from relaybuild.partition.backend import CodegenOptions, GeneratedCode, SourceUnit
from relaybuild.target import Target


def machine_of(target: Target) -> Machine:
    """What schedules are made for: the least second-level cache among processors of the target's level."""
    l2_bytes = (1024 if target.vector_lanes >= 16 else 512) * 1024
    return Machine(target.vector_lanes, target.num_vector_registers, l2_bytes=l2_bytes)


def generate(function: Function, options: CodegenOptions) -> GeneratedCode:
    """The sources of a first-order function over tensors of known shape."""
    target = options.target
    lowered = lower_function(
        legalize(function), Setting(machine_of(target), options.precise), fusion=options.opt_level > 0
    )
    spec = ProgramSpec(
        options.name,
        options.symbol,
        target.name,
        " ".join(target.cpu_features.split()),
        options.flags,
        tuple(Port(name, param.tensor_type) for name, param in zip(options.inputs, function.params)),
        tuple(Port(name, found) for name, found in zip(options.outputs, _results(function.body.checked_type))),
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
        weights.function(),
        tuple(storage.offset for storage in weights.storages),
        weights.num_bytes,
        program.arena_bytes,
        kernels,
    )


def _results(found: Type) -> tuple[TensorType, ...]:
    fields = found.fields if isinstance(found, TupleType) else (found,)
    return tuple(field for field in fields if isinstance(field, TensorType))
