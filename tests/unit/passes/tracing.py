"""Passes that note that they ran, and modules to run them on."""

from __future__ import annotations

from relaybuild import relay
from relaybuild.ir.module import IRModule
from relaybuild.passes.infra import Pass, PassContext, PassInfo, PassInstrument, module_pass


def tracing_pass(
    name: str, log: list[str], level: int = 0, required: tuple[str, ...] = (), changes: bool = False
) -> Pass:
    """A pass that notes its name, and gives a new module where it `changes`."""

    @module_pass(opt_level=level, name=name, required=required)
    def transform(mod: IRModule, ctx: PassContext) -> IRModule:
        log.append(name)
        return IRModule(mod.functions) if changes else mod

    made: Pass = transform
    return made


def log_function() -> IRModule:
    """`@main` that takes the logarithm of ten numbers."""
    x = relay.var("x", shape=(10,))
    return IRModule({"main": relay.Function([x], relay.log(x))})


class Recorder(PassInstrument):
    """Notes every hook as "hook pass name"; raises in the hooks it is told to fail in."""

    def __init__(self, name: str, log: list[str], fails: tuple[str, ...] = (), should: bool = True) -> None:
        self.name, self.log, self.fails, self.should = name, log, fails, should

    def note(self, hook: str, info: PassInfo | None = None) -> None:
        self.log.append(" ".join((hook, *([info.name] if info else []), self.name)))
        if hook in self.fails:
            raise RuntimeError(hook)

    def enter_pass_ctx(self) -> None:
        self.note("enter")

    def exit_pass_ctx(self) -> None:
        self.note("exit")

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        self.note("should", info)
        return self.should

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.note("before", info)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.note("after", info)

    def pass_failed(self, mod: IRModule, info: PassInfo) -> None:
        self.note("failed", info)
