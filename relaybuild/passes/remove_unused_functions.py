"""RemoveUnusedFunctions: functions that no entry reaches are dropped."""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.module import IRModule
from relaybuild.passes._call_graph import call_graph
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class RemoveUnusedFunctions(ModulePass):
    """`entry_functions` can be called from outside; a module that has none of them keeps all its functions.

    A function is reached where it is named, whether it is called there or not.
    """

    info: ClassVar[PassInfo] = PassInfo("RemoveUnusedFunctions", 1)
    entry_functions: tuple[str, ...] = ("main",)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return without_unused(mod, self.entry_functions)


def without_unused(mod: IRModule, entry_functions: tuple[str, ...]) -> IRModule:
    """The module with the functions that an entry reaches; the same object where that is all of them."""
    entries = [name for name in entry_functions if name in mod]
    if not entries or len(mod) == len(entries):
        return mod
    reached = call_graph(mod).reachable(entries)
    return mod.with_functions({name: mod[name] for name in mod if name in reached})
