"""InferType: fills the types that depend on binders, lets and globals; the rules are `relaybuild.ir.infer`'s."""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class InferType(ModulePass):
    """Types every expression of the module; the module stays the same object unless a node had another type."""

    info: ClassVar[PassInfo] = PassInfo("InferType", 0)
    counts_as_rewrite: ClassVar[bool] = False

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return infer_types(mod)
