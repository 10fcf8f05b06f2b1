"""ToGraphNormalForm: variables of lets are replaced by what they are bound to, as far as the program allows.

A let stays where its value reads, writes or makes a reference, where it is a recursive function, and where a function
within its body needs a value that would then be computed at each call.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Let
from relaybuild.ir.module import IRModule
from relaybuild.passes._effects import find_effects
from relaybuild.passes._inlining import without_lets
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class ToGraphNormalForm(ModulePass):
    """Gives a dataflow graph, the inverse of ToANormalForm: one node per variable, shared by its uses."""

    info: ClassVar[PassInfo] = PassInfo("ToGraphNormalForm", 1)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        effects = find_effects(mod)
        return mod.with_functions(
            {
                name: function if is_left_alone(function) else without_lets(function, effects[name], _every)
                for name, function in mod.functions.items()
            }
        )


def _every(let: Let) -> bool:
    return True
