"""EliminateCommonSubexpr: equal expressions over the same operands become one node.

Operands are the same when they are one node, one variable, or structure constants of one value; weights are compared
by identity, since their values are not part of the program. Nodes are merged within one function, never across its
border.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import ScopeTree, scope_tree
from relaybuild.ir.structural import attr_value, constant_digest
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo


@dataclass(frozen=True, repr=False)
class EliminateCommonSubexpr(FunctionPass):
    """`fskip` says of which expressions all copies are kept."""

    info: ClassVar[PassInfo] = PassInfo("EliminateCommonSubexpr", 3)
    fskip: Callable[[Expr], bool] | None = None

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        tree = scope_tree(func)
        done: dict[int, Expr] = {}
        first: dict[object, Expr] = {}
        for node in tree.order:
            rebuilt = node.with_children([done[id(child)] for child in node.children()])
            key = None if self.fskip is not None and self.fskip(node) else _key(rebuilt)
            if key is None:
                done[id(node)] = rebuilt
            else:
                done[id(node)] = allowed(ctx, rebuilt, first.setdefault((_home(node, tree), key), rebuilt))
        result = done[id(func)]
        assert isinstance(result, Function)
        return result


def _home(node: Expr, tree: ScopeTree) -> int:
    """The function a node belongs to; constants and globals belong to all."""
    return 0 if isinstance(node, (Constant, GlobalVar)) else id(tree.placed[id(node)].function)


def _key(node: Expr) -> object:
    """Equal for nodes of which one is enough; None where each is wanted."""
    if isinstance(node, Constant):
        return None if node.is_weight else constant_digest(node)
    if isinstance(node, GlobalVar):
        return node.name_hint
    children = tuple(id(child) for child in node.children())
    if isinstance(node, Tuple):
        return ("tuple", children)
    if isinstance(node, TupleGetItem):
        return ("field", node.index, children)
    if isinstance(node, Call):
        return _call_key(node, children)
    return None


def _call_key(node: Call, children: tuple[int, ...]) -> object:
    attrs = tuple((name, repr(attr_value(value))) for name, value in node.attrs.items()) if node.attrs else ()
    if isinstance(node.op, Expr):
        return ("call", children, attrs)
    return (node.op.name, tuple(sorted(children)) if node.op.commutative else children, attrs)
