"""Generates the code of regions and of the host's program, each looked up by what it is made from; knows no backend."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from relaybuild.backends.generation import Region, RegionFunction, backend_of, region_options
from relaybuild.backends.selection import HOST_NAME, Selection
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.compilation.actions import Actions, Outputs, Step
from relaybuild.compilation.known import Known
from relaybuild.compilation.partitions import HOST_PART, Partitioned
from relaybuild.compilation.passes import program_outputs, stored_program
from relaybuild.compilation.plugins import add_backend_code
from relaybuild.compilation.programs import Program
from relaybuild.compilation.reaching import reached_module
from relaybuild.compilation.types import type_json, type_of
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import TensorType
from relaybuild.partition.backend import (
    Backend,
    Blob,
    CodegenOptions,
    GeneratedCode,
    Remember,
    SourceUnit,
    all_backends,
    flat_types,
)

LAYER = "codegen"
_FACTS, _BLOB, _UNITS = "facts", "blob", "units"
_WEIGHTS = "weights"
_PART = "kernel"


@dataclass(frozen=True)
class HostCode:
    """The host's code, with `@weights` as a program of one function of this name, and the types of the parameters."""

    code: GeneratedCode
    weights: Program | None
    params: tuple[TensorType, ...]

    def with_weights(self) -> GeneratedCode:
        """The code with `@weights` as a function."""
        return self.code if self.weights is None else replace(self.code, weights=self.weights.module[_WEIGHTS])


class CodeGenerator:
    """Generates code for one target. `options` are those of the whole program, but for its module."""

    def __init__(self, actions: Actions, options: CodegenOptions, known: Known) -> None:
        self._actions = actions
        self._options = options
        self._known = known

    def regions(self, cut: Partitioned, selection: Selection) -> tuple[Region, ...]:
        """What the backends make of the regions; raises UserError for one whose backend is unknown or off."""
        return tuple(self._region(cut, region, backend_of(region, selection)) for region in cut.regions)

    def host(self, cut: Partitioned) -> HostCode:
        """What the host makes of the rest; raises UnsupportedError."""
        backend = all_backends()[HOST_NAME]
        given = cut.program

        def describe(builder: ActionBuilder) -> None:
            builder.input("in/program", cut.parts[HOST_PART])
            self._describe(builder, backend, self._options)

        def execute() -> HostCode:
            module = given.module
            main = module["main"]
            levels = tuple(self._with_memory(backend, level) for level in self._options.levels)
            options = replace(self._with_memory(backend, self._options), module=module, levels=levels)
            code = backend.codegen(main, options)
            params = tuple(kind for param in main.params for kind in flat_types(param.checked_type))
            return HostCode(code, _weights_program(code, given), params)

        def unpack(outputs: Outputs) -> HostCode:
            facts = json.loads(outputs.read(_FACTS))
            weights = stored_program(outputs, given) if _WEIGHTS in facts else None
            return HostCode(_read_code(outputs, facts), weights, tuple(map(type_of, facts["params"])))

        step = Step(LAYER, backend.name, f"{LAYER}/{backend.name}", describe, execute, _pack_host, unpack)
        return self._actions.run(step, objection=self._objection)

    @property
    def _objection(self) -> str:
        return self._known.objection or self._known.plugins.objection

    def _region(self, cut: Partitioned, region: RegionFunction, backend: Backend) -> Region:
        options = region_options(region, replace(self._options, config={}, levels=()))

        def describe(builder: ActionBuilder) -> None:
            builder.input("in/function", cut.parts[region.name])
            builder.option("constants", tuple(sorted(region.constants)))
            self._describe(builder, backend, options)

        def execute() -> GeneratedCode:
            # what the key does not name is not shown
            module = reached_module(cut.program.module, [region.name])
            own = replace(self._with_memory(backend, options), module=module)
            return backend.codegen(module[region.name], own)

        def unpack(outputs: Outputs) -> GeneratedCode:
            return _read_code(outputs, json.loads(outputs.read(_FACTS)))

        slot = f"{LAYER}/{region.ports.symbol}"
        step = Step(LAYER, backend.name, slot, describe, execute, _pack_code, unpack)
        code = self._actions.run(step, objection=self._objection)
        return Region(region.name, region.ports, backend, code)

    def _with_memory(self, backend: Backend, options: CodegenOptions) -> CodegenOptions:
        return replace(options, remember=self._remembering(backend, options))

    def _remembering(self, backend: Backend, options: CodegenOptions) -> Remember | None:
        """What keeps the parts of a backend's work, each as a step of its own."""
        if not self._actions.has_cache:
            return None

        def remember(place: str, work: Digest, make: Callable[[], bytes]) -> bytes:
            def describe(builder: ActionBuilder) -> None:
                builder.input("in/workload", work)
                self._describe_backend(builder, backend, options)

            slot = f"{LAYER}/{backend.name}/{place}"
            step = Step(
                LAYER,
                _PART,
                slot,
                describe,
                make,
                lambda made: {_PART: made},
                lambda outputs: outputs.read(_PART),
                may_ask=False,
            )
            return self._actions.run(step, objection=self._objection)

        return remember

    def _describe(self, builder: ActionBuilder, backend: Backend, options: CodegenOptions) -> None:
        """Add a backend's code, and what it is told."""
        self._describe_backend(builder, backend, options)
        builder.option("name", options.name).option("symbol", options.symbol)
        builder.option("flags", options.flags).option("threads", options.threads)
        for level in options.levels:
            builder.option(f"level.{level.target.name}", level.flags)
        builder.option("inputs", options.inputs).option("outputs", options.outputs)
        builder.option("opt_level", options.opt_level).option("precise", options.precise)
        config: Mapping[str, Any] = options.config
        builder.option("config", json.dumps(config, sort_keys=True))

    def _describe_backend(self, builder: ActionBuilder, backend: Backend, options: CodegenOptions) -> None:
        builder.input("impl/step", self._known.codes.of_step(__name__))
        builder.input("impl/numpy", self._known.codes.package("numpy"))
        add_backend_code(builder, backend, self._known.codes)
        self._known.plugins.add_to_codegen(builder, backend.tag)
        for item in dataclasses.fields(options.target):
            builder.option(f"target.{item.name}", getattr(options.target, item.name))


def _weights_program(code: GeneratedCode, given: Program) -> Program | None:
    if code.weights is None or not code.weight_bytes:
        return None
    return Program(given.weights, module=IRModule({_WEIGHTS: code.weights}))


def _pack_code(code: GeneratedCode) -> Mapping[str, bytes]:
    facts: dict[str, Any] = {
        "units": [[unit.name, unit.hot, unit.language, unit.flags] for unit in code.units],
        "stateful": code.stateful,
        "offsets": list(code.weight_offsets),
        "weight_bytes": code.weight_bytes,
        "arena_bytes": code.arena_bytes,
        "kernels": [dict(kernel) for kernel in code.kernels],
        "results": [type_json(kind) for kind in code.results],
    }
    files = {f"{_UNITS}/{number}": unit.text.encode() for number, unit in enumerate(code.units)}
    if code.blob is not None:
        facts["type_key"] = code.blob.type_key
        files[_BLOB] = code.blob.data
    return {_FACTS: json.dumps(facts, sort_keys=True).encode(), **files}


def _pack_host(made: HostCode) -> Mapping[str, bytes]:
    packed = dict(_pack_code(made.code))
    facts = json.loads(packed[_FACTS])
    facts["params"] = [type_json(kind) for kind in made.params]
    if made.weights is not None:
        facts[_WEIGHTS] = True
        packed |= program_outputs(made.weights)
    packed[_FACTS] = json.dumps(facts, sort_keys=True).encode()
    return packed


def _read_code(outputs: Outputs, facts: Mapping[str, Any]) -> GeneratedCode:
    units = tuple(
        SourceUnit(
            name, outputs.read(f"{_UNITS}/{number}").decode(), hot, language, None if flags is None else tuple(flags)
        )
        for number, (name, hot, language, flags) in enumerate(facts["units"])
    )
    blob = Blob(facts["type_key"], outputs.read(_BLOB)) if "type_key" in facts else None
    return GeneratedCode(
        units,
        blob,
        facts["stateful"],
        None,
        tuple(facts["offsets"]),
        facts["weight_bytes"],
        facts["arena_bytes"],
        tuple(facts["kernels"]),
        tuple(map(type_of, facts["results"])),
    )
