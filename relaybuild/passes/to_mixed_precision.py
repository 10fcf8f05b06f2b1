"""ToMixedPrecision: arithmetic moves to a narrower floating-point type where an operator gains by it.

Operators say which of three they do (`relaybuild.ir.op.Precision`): those of kind `always` get arguments cast from
float32 to the narrow type; those of kind `never` get them cast back; those that `follow` run in the narrow type where
some argument is in it and all others are too, or are variables and constants. A value is cast once. Results of the
function are left in the type they have come to, unless the context says
`relay.ToMixedPrecision.keep_orig_output_dtype`; functions that others call, closures and branches keep their types.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError
from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.expr import Call, Constant, Expr, Function, GlobalVar, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import Op, Precision, call_op
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.ir.visitor import post_order
from relaybuild.passes._exprs import ConstantExprs
from relaybuild.passes.infra import ModulePass, PassContext, PassInfo, is_left_alone, register_config_key

KEEP_OUTPUTS = register_config_key(
    "relay.ToMixedPrecision.keep_orig_output_dtype",
    bool,
    False,
    "cast the results of a function in mixed precision back to the types they had",
)

WIDE = "float32"
NARROW = ("float16", "bfloat16")


@dataclass(frozen=True, repr=False)
class ToMixedPrecision(ModulePass):
    """`mixed_precision_type` is float16 or bfloat16; `overrides` gives operators another kind, by name."""

    info: ClassVar[PassInfo] = PassInfo("ToMixedPrecision", 0, ("InferType",))
    mixed_precision_type: str = "float16"
    overrides: Mapping[str, str] | None = None

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        if self.mixed_precision_type not in NARROW:
            raise UserError(f"expected 'mixed_precision_type' float16 or bfloat16, found '{self.mixed_precision_type}'")
        kinds = {name: Precision(kind) for name, kind in (self.overrides or {}).items()}
        called = {
            node.name_hint
            for function in mod.functions.values()
            for node in post_order(function)
            if isinstance(node, GlobalVar)
        }
        keeps_all = bool(ctx.get_config(KEEP_OUTPUTS.name))
        done = {}
        for name, function in mod.functions.items():
            narrowing = _Narrowing(ctx, self.mixed_precision_type, kinds)
            keeps = keeps_all or name in called
            done[name] = function if is_left_alone(function) else narrowing.run(function, keeps=keeps)
        return mod.with_functions(done)


@dataclass
class _Narrowing:
    """One walk over one function. `values` gives what stands for each old node, its tensors narrow or not."""

    ctx: PassContext
    narrow: str
    kinds: Mapping[str, Precision]
    values: dict[int, Expr] = field(default_factory=dict)
    casts: dict[tuple[int, str], Expr] = field(default_factory=dict)
    constants: ConstantExprs = field(default_factory=ConstantExprs)
    params: set[int] = field(default_factory=set)

    def run(self, function: Function, *, keeps: bool) -> Function:
        order = list(post_order(function))
        self.params = {id(param) for node in order if isinstance(node, Function) for param in node.params}
        order.pop()
        bound: dict[int, list[Let]] = {}
        for node in order:
            if isinstance(node, Let):
                bound.setdefault(id(node.value), []).append(node)
        for node in order:
            self.values.setdefault(id(node), self._value(node))
            for let in bound.get(id(node), ()):
                self._bind(let.var, self.values[id(node)])
        body = self.values[id(function.body)]
        body = self._as_type(body, function.body.checked_type) if keeps and function.body.has_type else body
        if body is function.body:
            return function
        ret_type = function.ret_type if body._type == function.body._type else None
        return Function(function.params, body, ret_type, function.type_params, function.attrs, function.span)

    def _bind(self, var: Var, value: Expr) -> None:
        if var.has_type and value.has_type and value.checked_type != var.checked_type:
            fresh = Var(var.name_hint, None, var.span)
            fresh.set_checked_type(value.checked_type)
            self.values[id(var)] = fresh

    def _value(self, node: Expr) -> Expr:
        if isinstance(node, (Tuple, TupleGetItem)):
            return node.with_children([self.values[id(child)] for child in node.children()])
        if isinstance(node, Let):
            return self._let(node)
        if isinstance(node, Call) and isinstance(node.op, Op) and node.has_type:
            return self._call(node, node.op)
        return node.with_children([self._wide(child) for child in node.children()])

    def _let(self, node: Let) -> Expr:
        var = self.values.get(id(node.var), node.var)
        body = self.values[id(node.body)]
        if var is node.var:
            return node.with_children([self._wide(node.value), body])
        assert isinstance(var, Var)
        return Let(var, self.values[id(node.value)], body, node.span)

    def _call(self, node: Call, op: Op) -> Expr:
        if self._is_narrowed(node, op) and self.ctx.allow_rewrite(f"{op.name} in {self.narrow}", node):
            args = [self._as_type(self.values[id(arg)], _narrowed(arg.checked_type, self.narrow)) for arg in node.args]
            return node.with_children(args)
        return node.with_children([self._wide(arg) for arg in node.args])

    def _is_narrowed(self, node: Call, op: Op) -> bool:
        kind = self.kinds.get(op.name, op.mixed_precision)
        if kind is Precision.NEVER:
            return False
        if kind is Precision.ALWAYS:
            return any(WIDE in _dtypes(arg.checked_type) for arg in node.args)
        states = {state for arg in node.args for state in self._states(arg)}
        return self.narrow in states and WIDE not in states

    def _states(self, arg: Expr) -> list[str]:
        """For each tensor in an argument that was wide: whether it is narrow, wide, or (free) whatever is wanted."""
        new = self.values[id(arg)]
        if isinstance(new, Tuple) and isinstance(arg, Tuple):
            return [state for field in arg.fields for state in self._states(field)]
        pairs = zip(_dtypes(arg.checked_type), _dtypes(new.checked_type))
        return [self._state(new, found) for was, found in pairs if was == WIDE]

    def _state(self, value: Expr, dtype: str) -> str:
        if dtype == self.narrow:
            return dtype
        if isinstance(value, Constant) and not value.is_weight:
            return "free" if self._holds(value) else WIDE
        return "free" if id(value) in self.params or self.constants.holds(value) else WIDE

    def _holds(self, value: Constant) -> bool:
        """Whether a constant stays finite in the narrow type."""
        with np.errstate(over="ignore"):
            narrow = value.data.astype(numpy_dtype(self.narrow)).astype("float64")
        return bool((np.isfinite(narrow) == np.isfinite(value.data)).all())

    def _wide(self, node: Expr) -> Expr:
        """What stands for an old node, in the type that it had."""
        value = self.values[id(node)]
        return self._as_type(value, node.checked_type) if node.has_type and value.has_type else value

    def _as_type(self, value: Expr, wanted: Type) -> Expr:
        found = value.checked_type
        if found == wanted:
            return value
        if isinstance(wanted, TensorType):
            key = (id(value), wanted.dtype)
            if key not in self.casts:
                self.casts[key] = call_op("cast", [value], value.span, dtype=wanted.dtype)
            return self.casts[key]
        assert isinstance(wanted, TupleType)
        fields = (
            value.fields
            if isinstance(value, Tuple)
            else [TupleGetItem(value, index, value.span) for index in range(len(wanted.fields))]
        )
        return Tuple([self._as_type(field, kind) for field, kind in zip(fields, wanted.fields)], value.span)


def _dtypes(kind: Type) -> list[str]:
    """The dtypes of the tensors in a type, in order."""
    found: list[str] = []
    stack = [kind]
    while stack:
        item = stack.pop()
        if isinstance(item, TensorType):
            found.append(item.dtype)
        elif isinstance(item, TupleType):
            stack.extend(reversed(item.fields))
    return found


def _narrowed(kind: Type, narrow: str) -> Type:
    if isinstance(kind, TensorType):
        return TensorType(kind.shape, narrow) if kind.dtype == WIDE else kind
    if isinstance(kind, TupleType):
        return TupleType(tuple(_narrowed(item, narrow) for item in kind.fields))
    return kind
