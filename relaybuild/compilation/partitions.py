"""Cuts a program for backends, looked up by the program and the backends that are on; knows no backend by name.

What comes out are the whole program and, for each of its regions and for the rest, the digest of what code is generated
from: a region that stays the same keeps its code whatever becomes of the others.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from relaybuild.backends.generation import RegionFunction, region_functions
from relaybuild.backends.selection import Selection
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.compilation.actions import Actions, Outputs, Step
from relaybuild.compilation.known import Known
from relaybuild.compilation.passes import program_outputs, stored_program
from relaybuild.compilation.plugins import add_backend_code
from relaybuild.compilation.programs import Program, stored_form
from relaybuild.compilation.reaching import reached_module
from relaybuild.compilation.types import ports_json, ports_of
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest, Hasher, digest_bytes
from relaybuild.identifier import c_identifier
from relaybuild.ir.expr import Call
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.ops.compiler_annotation import END
from relaybuild.ir.visitor import post_order
from relaybuild.partition.region_text import RegionPorts
from relaybuild.passes.infra import PassContext
from relaybuild.target import Target

LAYER = "partition"
_PARTS = "parts"
HOST_PART = ""


@dataclass(frozen=True)
class Partitioned:
    """A program with its regions; `parts` are digests of what the code of each region, by its function's name, and of
    the host's program, by the empty name, is made from: without a cache there are none."""

    program: Program
    regions: tuple[RegionFunction, ...]
    parts: Mapping[str, Digest]


@dataclass(frozen=True)
class Cut:
    """How a program is cut: for which backends, under the name of which model, for which target; `is_observed` where
    somebody watches the passes that do it."""

    selection: Selection
    name: str
    target: Target
    context: PassContext
    is_observed: bool = False


def partition_module(module: IRModule, selection: Selection, name: str) -> IRModule:
    """A module after the passes with its regions cut out, for the backends that are on; typed.

    `name` is the model's: it becomes part of the regions' symbols.
    """
    if not selection.backends and not _has_marks(module):
        return infer_types(module)
    from relaybuild.partition.pipeline import partition

    return partition(infer_types(module), selection.tags, mod_name=c_identifier(name))


def partition_step(program: Program, cut: Cut, actions: Actions, known: Known) -> Partitioned:
    """A program, cut; raises what `partition` does, and UserError for symbols that cannot be."""

    def describe(builder: ActionBuilder) -> None:
        builder.input("in/module", program.digest)
        builder.input("impl/step", known.codes.of_step(__name__))
        builder.input("impl/partition", known.codes.of("relaybuild.partition.pipeline"))
        builder.input("impl/numpy", known.codes.package("numpy"))
        for backend in cut.selection.backends:
            add_backend_code(builder, backend, known.codes)
        known.plugins.add_to_partition(builder)
        builder.option("backends", cut.selection.tags).option("name", cut.name)
        builder.option("target", cut.target.name).option("features", cut.target.cpu_features)
        context = cut.context
        builder.option("opt_level", context.opt_level).option("fallback_device", context.fallback_device)
        builder.option("disabled", tuple(sorted(context.disabled_pass)))
        builder.option("required", tuple(sorted(context.required_pass)))
        config: Mapping[str, Any] = context.config
        for name, value in config.items():
            builder.option(f"config.{name}", value)

    def execute() -> Partitioned:
        module = partition_module(program.module, cut.selection, cut.name)
        made = program if module is program.module else Program(program.weights, module=module)
        regions = region_functions(module)
        return Partitioned(made, regions, _parts(made, regions) if actions.has_cache else {})

    step = Step(LAYER, LAYER, LAYER, describe, execute, _pack, lambda outputs: _unpack(outputs, program))
    objection = known.objection or known.plugins.objection or ("the passes are observed" if cut.is_observed else "")
    return actions.run(step, objection=objection)


def _has_marks(module: IRModule) -> bool:
    """Whether calls are marked by hand for a compiler."""
    nodes = (node for function in module.functions.values() for node in post_order(function))
    return any(isinstance(node, Call) and node.op_name == END for node in nodes)


def _parts(program: Program, regions: tuple[RegionFunction, ...]) -> dict[str, Digest]:
    module, weights = program.module, program.weights
    found = {
        region.name: digest_bytes(
            region.name.encode() + b"\n" + stored_form(reached_module(module, [region.name]), weights)
        )
        for region in regions
    }
    mine = module.with_functions({name: each for name, each in module.functions.items() if name not in found})
    hasher = Hasher("host-part.1").field("program", stored_form(mine, weights))
    for region in regions:
        hasher.field("region", json.dumps(_region_json(region)))
    return {**found, HOST_PART: hasher.digest()}


def _pack(made: Partitioned) -> Mapping[str, bytes]:
    parts = {name: [digest.hex, digest.size] for name, digest in made.parts.items()}
    facts = {"regions": list(map(_region_json, made.regions)), "parts": parts}
    return {_PARTS: json.dumps(facts, sort_keys=True).encode(), **program_outputs(made.program)}


def _unpack(outputs: Outputs, given: Program) -> Partitioned:
    facts = json.loads(outputs.read(_PARTS))
    parts = {name: Digest(*each) for name, each in facts["parts"].items()}
    return Partitioned(stored_program(outputs, given), tuple(map(_region_of, facts["regions"])), parts)


def _region_json(region: RegionFunction) -> list[Any]:
    ports = region.ports
    tensors = [ports_json(ports.inputs), ports_json(ports.outputs)]
    return [region.name, ports.symbol, ports.compiler, *tensors, sorted(region.constants)]


def _region_of(value: Any) -> RegionFunction:
    name, symbol, tag, inputs, outputs, constants = value
    return RegionFunction(name, RegionPorts(symbol, tag, ports_of(inputs), ports_of(outputs)), frozenset(constants))
