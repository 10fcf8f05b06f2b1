"""EtaExpand: constructors and global functions that are values become functions that call them.

    Cons    ->  fn (%x1, %x2) { Cons(%x1, %x2) }
    @f      ->  fn (%x1) { @f(%x1) }

What is called stays as it is.
"""

from __future__ import annotations

from typing import ClassVar

from relaybuild.dataclass import dataclass
from relaybuild.ir.adt import Constructor
from relaybuild.ir.expr import Call, Expr, Function, GlobalVar, Var
from relaybuild.ir.infer import infer_types
from relaybuild.ir.module import IRModule
from relaybuild.ir.types import FuncType
from relaybuild.ir.visitor import post_order
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone


@dataclass(frozen=True, repr=False)
class EtaExpand(ModulePass):
    """`expand_constructor` and `expand_global_var` say of which of the two."""

    info: ClassVar[PassInfo] = PassInfo("EtaExpand", 1, ("InferType",))
    expand_constructor: bool = True
    expand_global_var: bool = False

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        result = mod.with_functions(
            {
                name: function if is_left_alone(function) else self._expanded(function, mod)
                for name, function in mod.functions.items()
            }
        )
        return infer_types(result) if result is not mod else mod

    def _expanded(self, function: Function, mod: IRModule) -> Function:
        done: dict[int, Expr] = {}
        for node in post_order(function):
            callee = node.op if isinstance(node, Call) else None
            children = [
                done[id(child)] if child is callee else self._value(child, done[id(child)], mod)
                for child in node.children()
            ]
            done[id(node)] = node.with_children(children)
        result = done[id(function)]
        assert isinstance(result, Function)
        return result

    def _value(self, old: Expr, new: Expr, mod: IRModule) -> Expr:
        """What stands for a child that is not called."""
        kind = None
        if isinstance(old, Constructor) and self.expand_constructor:
            kind = old.checked_type
        elif isinstance(old, GlobalVar) and old in mod and self.expand_global_var:
            kind = mod[old].checked_type
        return _calling(old, kind) if isinstance(kind, FuncType) else new


def _calling(callee: Expr, kind: FuncType) -> Function:
    params = [Var(f"x{number}", param, callee.span) for number, param in enumerate(kind.arg_types, 1)]
    body = Call(callee, params, span=callee.span)
    return Function(params, body, kind.ret_type, kind.type_params, span=callee.span)
