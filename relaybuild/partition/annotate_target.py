"""AnnotateTarget: each call is marked for the first compiler that takes it, or for the host.

Every operand of a call stands in a `compiler_begin`, every use of its value in a `compiler_end`; variables, constants
and calls without operands have no end. `relaybuild.partition.placement` says who takes a call. Marks for a compiler
stay, marks for the host are made anew, so that two runs are one run with both lists.

    nn.relu(%x)  ->  compiler_end(nn.relu(compiler_begin(%x, compiler="a")), compiler="a")
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, RefCreate, RefRead, RefWrite, Tuple, TupleGetItem
from relaybuild.ir.module import IRModule
from relaybuild.partition.backend import HOST
from relaybuild.partition.placement import Chooser
from relaybuild.partition.regions import Markable, Regions, chosen_functions, read_regions, write_regions
from relaybuild.passes._blocks import is_sealed
from relaybuild.passes._effects import find_effects
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class AnnotateTarget(ModulePass):
    """`targets` are tags of compilers by priority; one may be given as it is.

    With `include_non_call_ops`, tuples and fields are marked for the compiler of all their operands, else for the host,
    and so are references for the host; without, they have no marks. Without `include_constants`, operators over
    constants alone are as constants are: they can be computed once instead of at every run. `functions` are the names
    of those in which anything is marked; none means all.
    """

    info: ClassVar[PassInfo] = PassInfo("AnnotateTarget", 0, ("InferType",))
    targets: Sequence[str] = ()
    include_non_call_ops: bool = True
    include_constants: bool = True
    functions: Sequence[str] = ()

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        tags = (self.targets,) if isinstance(self.targets, str) else tuple(self.targets)
        chosen = chosen_functions(mod, self.functions)
        effects = find_effects(mod)
        done: dict[str, Function] = {}
        for name, function in mod.functions.items():
            if name not in chosen or is_left_alone(function) or is_sealed(function):
                done[name] = function
            else:
                regions = read_regions(function, in_order=bool(effects[name].own))
                done[name] = write_regions(self._chosen(regions, tags))
        return mod.with_functions(done)

    def _chosen(self, regions: Regions, tags: Sequence[str]) -> Regions:
        chosen: dict[int, str] = {}
        markable = Markable()
        chooser = Chooser(tags, regions.order, self.include_constants)
        for node in regions.order:
            known = regions.tag_of(node)
            if known is not None and known != HOST:
                chosen[id(node)] = known
            elif regions.blocks.of(node) is not None and markable.holds(node):
                tag = self._tag(node, chosen, chooser)
                if tag is not None:
                    chosen[id(node)] = tag

        def group_of(node: Expr) -> Hashable:
            known = regions.tag_of(node)
            return id(node) if known is None or known == HOST else (known, regions.region_of[id(node)])

        return regions.regrouped(group_of, lambda node: chosen.get(id(node)))

    def _tag(self, node: Expr, chosen: dict[int, str], chooser: Chooser) -> str | None:
        """The compiler of a node that has no mark for one."""
        if isinstance(node, Call):
            return (chooser.choose(node).tag or HOST) if node.args and not chooser.is_constant(node) else None
        if not self.include_non_call_ops:
            return None
        if isinstance(node, (Tuple, TupleGetItem)):
            return _common_tag(node, chosen, chooser)
        return HOST if isinstance(node, (RefCreate, RefRead, RefWrite)) else None


def _common_tag(node: Expr, chosen: dict[int, str], chooser: Chooser) -> str | None:
    """What is constant, variables and calls without operands have no say; what else has no mark is the host's."""
    operands = node.children()
    if not operands:
        return None
    said = {chosen.get(id(child), HOST) for child in operands if child.children() and not chooser.is_constant(child)}
    return said.pop() if len(said) == 1 else HOST
