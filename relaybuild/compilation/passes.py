"""Runs a pipeline pass by pass, each looked up by what it is given; knows no pass by name.

A function pass over several functions is looked up for each of them, by that function and those that it reaches: it is
shown no others.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from relaybuild.artifact.fingerprint import NoFingerprint, fingerprint
from relaybuild.build.cache.action import ActionBuilder
from relaybuild.compilation.actions import Actions, Outputs, Step
from relaybuild.compilation.known import Known
from relaybuild.compilation.programs import Program, stored_form
from relaybuild.compilation.reaching import reached_module
from relaybuild.compilation.slots import Weights
from relaybuild.dataclass import dataclass
from relaybuild.digest import digest_bytes
from relaybuild.errors import UserError
from relaybuild.ir.expr import Function
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.passes.infra import (
    FunctionPass,
    Pass,
    PassContext,
    Sequential,
    get_pass,
    is_left_alone,
    required_order,
    run_required,
)

LAYER = "pass"
MODULE, WARNINGS, CONSTANTS = "module", "warnings", "constants"
_OWN = "relaybuild."


@dataclass(frozen=True)
class _Made:
    """What a pass made, and what it warned of."""

    program: Program
    warnings: tuple[str, ...]


class PassRunner:
    """Runs passes under a context, whose warnings come back with what is found."""

    def __init__(self, actions: Actions, context: PassContext, known: Known) -> None:
        self._actions = actions
        self._context = context
        self._known = known

    def run(self, pipeline: Sequential, program: Program) -> Program:
        """The program behind a pipeline; raises what its passes raise."""
        if pipeline.info.name in self._context.disabled_pass:
            return program
        for number, (each, context) in enumerate(_leaves(pipeline, self._context)):
            program = self._pass(f"{number}-{each.info.name}", each, context, program)
        return program

    def run_observed(self, pipeline: Sequential, program: Program, why: str) -> Program:
        """The same as one step that is not looked up: whoever watches sees the pipeline as it is."""

        def execute() -> Program:
            return _program(pipeline(program.module, self._context), program)

        return self._actions.perform(LAYER, pipeline.info.name, f"{LAYER}/{pipeline.info.name}", execute, why)

    def _pass(self, slot: str, each: Pass, context: PassContext, program: Program) -> Program:
        def describe(builder: ActionBuilder) -> None:
            builder.input("in/module", program.digest)
            self._describe(builder, each, context)

        def execute() -> _Made:
            return self._heard(lambda: self._run(slot, each, context, program))

        def unpack(outputs: Outputs) -> _Made:
            return _Made(stored_program(outputs, program), tuple(json.loads(outputs.read(WARNINGS))))

        step = Step(LAYER, each.info.name, f"{LAYER}/{slot}", describe, execute, _pack, unpack)
        made = self._actions.run(step, objection=self._objection(each))
        self._remind(made.warnings)
        return made.program

    def _describe(self, builder: ActionBuilder, each: Pass, context: PassContext) -> None:
        """Add what a pass is, and what it sees of the context."""
        builder.input("impl/step", self._known.codes.of_step(__name__))
        involved = tuple(_involved(each))
        modules = {type(one).__module__ for one in involved if _is_own(one)}
        builder.input("impl/pass", self._known.codes.of(*sorted(modules)))
        names = {one.info.name for one in involved}
        builder.option("disabled", frozenset(context.disabled_pass) & names)
        builder.option("required", frozenset(context.required_pass) & names)
        builder.input("option/pass" if _is_own(each) else "plugin/pass", fingerprint(_identity(each)))
        self._known.plugins.add_to_pass(builder)
        builder.input("impl/numpy", self._known.codes.package("numpy"))
        builder.option("opt_level", context.opt_level).option("fallback_device", context.fallback_device)
        config: Mapping[str, Any] = context.config
        for name, value in config.items():
            builder.option(f"config.{name}", value)

    def _objection(self, each: Pass) -> str:
        objection = self._known.objection or self._known.plugins.objection
        if objection or not self._actions.has_cache:
            return objection
        try:
            fingerprint(_identity(each))
        except NoFingerprint as error:
            return f"plugin-without-id: {each.info.name}: {error}; give it a method 'cache_id()'"
        return ""

    def _run(self, slot: str, each: Pass, context: PassContext, program: Program) -> Program:
        module = program.module
        if isinstance(each, FunctionPass) and self._actions.has_cache and len(module.functions) > 1:
            return _program(self._by_function(slot, each, context, program), program)
        return _program(each(module, context), program)

    def _by_function(self, slot: str, each: FunctionPass, context: PassContext, program: Program) -> IRModule:
        """The module with every function transformed, each as a step of its own."""
        module = program.module
        module = run_required(each.info, module, context)
        done = {
            name: function if is_left_alone(function) else self._function(slot, each, context, module, name, program)
            for name, function in module.functions.items()
        }
        return infer_types(module.with_functions(done))

    def _function(
        self, slot: str, each: FunctionPass, context: PassContext, module: IRModule, name: str, program: Program
    ) -> Function:
        weights = program.weights
        seen = reached_module(module, [name])
        whole = Program(weights, module=seen)

        def describe(builder: ActionBuilder) -> None:
            builder.input("in/function", digest_bytes(name.encode() + b"\n" + stored_form(seen, weights)))
            self._describe(builder, each, context)

        def execute() -> _Made:
            def run() -> Program:
                alone = seen.with_functions({**seen.functions, name: each.run_on(name, seen, context)})
                return whole if alone is seen else Program(weights, module=alone)

            return self._heard(run)

        def unpack(outputs: Outputs) -> _Made:
            return _Made(stored_program(outputs, whole), tuple(json.loads(outputs.read(WARNINGS))))

        step = Step(LAYER, each.info.name, f"{LAYER}/{slot}/{name}", describe, execute, _pack, unpack)
        made = self._actions.run(step, objection=self._objection(each))
        self._remind(made.warnings)
        return made.program.module[name]

    def _heard(self, run: Callable[[], Program]) -> _Made:
        """What a pass makes, with the warnings that it gives, which are taken out of the context."""
        reporter = self._context.error_reporter
        before = len(reporter.warnings)
        program = run()
        warnings = tuple(map(str, reporter.warnings[before:]))
        del reporter.warnings[before:]
        return _Made(program, warnings)

    def _remind(self, warnings: tuple[str, ...]) -> None:
        self._context.error_reporter.warnings += map(UserError, warnings)


def _leaves(pipeline: Sequential, context: PassContext) -> Iterator[tuple[Pass, PassContext]]:
    """The passes that run, in order, each with the context that it runs under."""
    inner = context.derived(disabled_pass=pipeline.disabled) if pipeline.disabled else context
    for child in pipeline.passes:
        if not inner.pass_enabled(child.info):
            continue
        if isinstance(child, Sequential) and not child.info.required:
            yield from _leaves(child, inner)
        else:
            yield child, inner


def _involved(each: Pass) -> Iterator[Pass]:
    """A pass, those that it requires, and all that within a Sequential."""
    yield each
    for name in required_order(each.info):
        yield get_pass(name)
    if isinstance(each, Sequential):
        for child in each.passes:
            yield from _involved(child)


def _is_own(each: Pass) -> bool:
    return type(each).__module__.startswith(_OWN)


def _identity(each: Pass) -> list[object]:
    """What tells a pass from others, beside the code of relaybuild's own."""
    return [_options(each) if _is_own(each) else each, *(one for one in _involved(each) if not _is_own(one))]


def _options(each: Pass) -> dict[str, object]:
    """The options of a pass; a Sequential's are its passes."""
    if isinstance(each, Sequential):
        return {"passes": list(each.passes), "disabled": list(each.disabled)}
    return {item.name: getattr(each, item.name) for item in dataclasses.fields(each)} if is_dataclass(each) else {}


def _program(module: IRModule, given: Program) -> Program:
    """The program of what a pass returned: the very one that it was given, where nothing changed."""
    return given if module is given.module else Program(given.weights, module=module)


def _pack(made: _Made) -> Mapping[str, bytes]:
    warnings = json.dumps(made.warnings).encode()
    return {WARNINGS: warnings, **program_outputs(made.program)}


def program_outputs(program: Program) -> Mapping[str, bytes]:
    """A program as the outputs of a step."""
    constants = {f"{CONSTANTS}/{origin}": data for origin, data in program.constants.items()}
    return {MODULE: program.stored, **constants}


def stored_program(outputs: Outputs, given: Program) -> Program:
    """The program that a step made of another one: that very one, where nothing changed, else unread."""
    return given if outputs.digests[MODULE] == given.digest else read_program(outputs, given.weights)


def read_program(outputs: Outputs, weights: Weights) -> Program:
    """The program that a step made, unread."""
    for name in outputs.digests:
        kind, _, origin = name.partition("/")
        if kind == CONSTANTS:
            weights.add(origin, outputs.loader(name))
    return Program(weights, load=outputs.loader(MODULE), digest=outputs.digests[MODULE])
