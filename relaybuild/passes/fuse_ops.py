"""FuseOps: calls that are computed together become one function, marked `Primitive=1`, that is called where they stood.

Every call of an operator is in such a function afterwards. `relaybuild.passes._fusion` says what groups there are: one
stays within its block, ends where a let binds a value or another block needs it, and can be made to end by
`annotation.stop_fusion`, which is gone afterwards. Scalars stand in the function; other constants are handed to it.
DefuseOps is the inverse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.passes._blocks import find_blocks, is_sealed
from relaybuild.passes._exprs import is_call
from relaybuild.passes._fusion import Limits, Node, find_groups, is_inline_constant, single_nodes
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo, register_config_key

MAX_DEPTH = register_config_key(
    "relay.FuseOps.max_depth", int, 256, "the most nodes that FuseOps puts into one function"
)
MAX_ARGS = register_config_key(
    "relay.FuseOps.max_function_args",
    int,
    0,
    "the most tensors, and extents that are not numbers, that a fused function takes and returns; 0 for any number",
)
LINK_PARAMS = register_config_key(
    "relay.FuseOps.link_params", bool, False, "put constants of any size into the functions that use them"
)


@dataclass(frozen=True, repr=False)
class FuseOps(FunctionPass):
    """At `fuse_opt_level` 0 every call has a function of its own; -1 stands for the context's level."""

    info: ClassVar[PassInfo] = PassInfo("FuseOps", 0, ("InferType",))
    fuse_opt_level: int = -1

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if is_sealed(func):
            return func
        blocks = find_blocks(func)
        level = ctx.opt_level if self.fuse_opt_level < 0 else self.fuse_opt_level
        limits = Limits(ctx.get_config(MAX_DEPTH.name), ctx.get_config(MAX_ARGS.name))
        nodes = find_groups(blocks, limits) if level > 0 else single_nodes(blocks)
        result = _Fuser(nodes, bool(ctx.get_config(LINK_PARAMS.name))).run(func, blocks.tree.order)
        assert isinstance(result, Function)
        return result


@dataclass
class _Group:
    """A function being made: what its nodes have become, and its parameters by the id of what is handed over."""

    inner: dict[int, Expr] = field(default_factory=dict)
    params: dict[int, Var] = field(default_factory=dict)
    args: list[Expr] = field(default_factory=list)


@dataclass
class _Fuser:
    nodes: Mapping[int, Node]
    link_params: bool
    done: dict[int, Expr] = field(default_factory=dict)
    groups: dict[int, _Group] = field(default_factory=dict)

    def run(self, root: Function, order: Sequence[Expr]) -> Expr:
        for expr in order:
            node = self.nodes.get(id(expr))
            if node is None or self._stays(node):
                self.done[id(expr)] = expr.with_children([self.done[id(child)] for child in expr.children()])
            elif is_call(expr, "annotation.stop_fusion"):
                self.done[id(expr)] = self.done[id(expr.args[0])]
            else:
                self._take(node)
        return self.done[id(root)]

    def _stays(self, node: Node) -> bool:
        """Whether a node needs no function: a tuple or a field that nothing is computed with."""
        return isinstance(node.expr, (Tuple, TupleGetItem)) and node.last() is node and node.size == 1

    def _take(self, node: Node) -> None:
        """Put a node into its group's function, and the call of that in the place of the group's last node."""
        last = node.last()
        group = self.groups.setdefault(id(last), _Group())
        children = [self._operand(group, last, child) for child in node.expr.children()]
        group.inner[id(node.expr)] = node.expr.with_children(children)
        if node is last:
            params = list(group.params.values())
            function = Function(params, group.inner[id(node.expr)], attrs={"Primitive": 1}, span=node.expr.span)
            self.done[id(node.expr)] = Call(function, group.args, span=node.expr.span)
            del self.groups[id(last)]

    def _operand(self, group: _Group, last: Node, child: Expr) -> Expr:
        if id(child) in group.inner:
            return group.inner[id(child)]
        if is_inline_constant(child) or (self.link_params and isinstance(child, Constant)):
            return child
        arg = self.done[id(child)]
        if id(arg) not in group.params:
            group.params[id(arg)] = Var(f"p{len(group.params)}", arg.checked_type, arg.span)
            group.args.append(arg)
        return group.params[id(arg)]
