"""ToBasicBlockNormalForm: lets stand at the begin of blocks, and bind what inner blocks need from outer ones.

A block is a function's body, a branch or a clause. A node that is used in a block other than the one in which it is
computed is bound to a variable, and so is a node that reads, writes or makes a reference, so that the order of effects
is that of the lets. Within a block, the rest stays a dataflow graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Expr, Function
from relaybuild.ir.module import IRModule
from relaybuild.passes._blocks import Blocks
from relaybuild.passes._effects import Effects, find_effects
from relaybuild.passes._normal_form import bind_nodes, result_of
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class ToBasicBlockNormalForm(ModulePass):
    """What inner blocks take from outer ones are variables afterwards, so that a block can be treated by itself."""

    info: ClassVar[PassInfo] = PassInfo("ToBasicBlockNormalForm", 1)

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        effects = find_effects(mod)
        return mod.with_functions(
            {
                name: function if is_left_alone(function) else to_basic_blocks(function, effects[name])
                for name, function in mod.functions.items()
            }
        )


def to_basic_blocks(function: Function, effects: Effects) -> Function:
    """One function in basic block normal form."""
    return bind_nodes(function, lambda blocks: _crossing_or_effect(blocks, function, effects))


def _crossing_or_effect(blocks: Blocks, function: Function, effects: Effects) -> Callable[[Expr], bool]:
    chosen = set(effects.own)
    for node in blocks.tree.order:
        for child, scope in blocks.uses(node):
            used_in = blocks.at(scope)
            if used_in is not None and used_in is not blocks.of(child):
                # lets move to the begin of their block, so that it is what they come to that is used
                chosen.add(id(result_of(child)))
    return lambda node: id(node) in chosen and node is not function
