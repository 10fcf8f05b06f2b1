"""FoldConstant: what depends on constants alone is computed now, by the operators' reference semantics.

With `fold_weights=False` only structure is folded (shapes, axes, scalars): arithmetic on weights stays in the program,
to be evaluated once per set of weights, so that the program does not depend on their values. Functions that have been
cut out for a kernel or a backend stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from relaybuild.ir.interpreter import evaluate_call
from relaybuild.ir.module import IRModule
from relaybuild.ir.scopes import is_atom
from relaybuild.ir.types import TensorType, TupleType, Type
from relaybuild.ir.visitor import post_order
from relaybuild.passes._blocks import is_sealed
from relaybuild.passes._exprs import is_call, observes_effects, projected, tensor_type
from relaybuild.passes._rewrite import allowed
from relaybuild.passes.infra import FunctionPass, PassContext, PassInfo

_SMALL = 64
"""Elements up to which a constant may be made out of nothing, or out of smaller ones where weights are not folded."""


@dataclass(frozen=True, repr=False)
class FoldConstant(FunctionPass):
    """Evaluates constant expressions; also shapes of static types, fields of tuples, and branches already decided."""

    info: ClassVar[PassInfo] = PassInfo("FoldConstant", 2)
    fold_weights: bool = True

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if is_sealed(func):
            return func
        order = list(post_order(func))
        effects = observes_effects(func)
        values = {id(node.var): node.value for node in order if isinstance(node, Let)}
        done: dict[int, Expr] = {}
        for node in order:
            if isinstance(node, Var):
                # a let's value is visited before the uses of its variable
                bound = done.get(id(values[id(node)])) if id(node) in values else None
                done[id(node)] = allowed(ctx, node, bound) if bound is not None and _is_constant(bound) else node
            elif is_sealed(node):
                done[id(node)] = node
            elif isinstance(node, Let):
                done[id(node)] = _let(ctx, node, done)
            else:
                children = [done[id(child)] for child in node.children()]
                rebuilt = node.with_children(children)
                done[id(node)] = allowed(ctx, rebuilt, self._folded(rebuilt, effects))
        result = done[id(func)]
        assert isinstance(result, Function)
        return result

    def _folded(self, node: Expr, effects: bool) -> Expr:
        if isinstance(node, Call):
            return self._call(node, effects)
        if isinstance(node, TupleGetItem):
            return projected(node, effects=effects)
        if isinstance(node, If) and isinstance(node.cond, Constant):
            return node.true_branch if bool(node.cond.data) else node.false_branch
        return node

    def _call(self, node: Call, effects: bool) -> Expr:
        if is_call(node, "shape_of"):
            return node if effects and not is_atom(node.args[0]) else _static_shape(node)
        if isinstance(node.op, Expr) or not node.has_type or not all(map(_is_constant, node.args)):
            return node
        constants = [item for arg in node.args for item in _leaves(arg)]
        if not self.fold_weights and any(constant.is_weight for constant in constants):
            return node
        if _num_elements(node.checked_type) > self._limit(constants):
            return node
        return _as_constants(evaluate_call(node, [_value(arg) for arg in node.args]), node)

    def _limit(self, constants: Sequence[Constant]) -> float:
        if constants and self.fold_weights:
            return float("inf")
        return max(_SMALL, *(constant.array.size for constant in constants), 0)


def _let(ctx: PassContext, node: Let, done: Mapping[int, Expr]) -> Expr:
    """A let whose variable may have become a constant wherever it was used, or was not used at all."""
    value, body = done[id(node.value)], done[id(node.body)]
    rebuilt = node.with_children((value, body))
    if id(node.var) in done:
        return rebuilt if done[id(node.var)] is node.var else body
    return allowed(ctx, rebuilt, body) if _is_constant(value) else rebuilt


def _static_shape(node: Call) -> Expr:
    kind = tensor_type(node.args[0])
    if kind is None or not kind.is_static:
        return node
    attrs: Any = node.attrs
    return Constant(np.asarray(kind.static_shape, dtype=attrs.dtype if attrs else "int64"), node.span)


def _is_constant(node: Expr) -> bool:
    """Whether a node is a constant or a tuple of constants."""
    return all(isinstance(item, Constant) for item in (node.fields if isinstance(node, Tuple) else (node,)))


def _value(node: Expr) -> Any:
    """The value of such a node."""
    return tuple(item.data for item in _leaves(node)) if isinstance(node, Tuple) else _leaves(node)[0].data


def _leaves(node: Expr) -> list[Constant]:
    fields = node.fields if isinstance(node, Tuple) else (node,)
    return [item for item in fields if isinstance(item, Constant)]


def _num_elements(kind: Type) -> float:
    if isinstance(kind, TensorType):
        return prod(kind.static_shape) if kind.is_static else float("inf")
    if isinstance(kind, TupleType):
        return sum(_num_elements(item) for item in kind.fields)
    return float("inf")


def _as_constants(value: Any, node: Call) -> Expr:
    if isinstance(value, tuple):
        return Tuple([_as_constants(item, node) for item in value], node.span)
    # a result may be a view of, or be broadcast from, a larger array
    return Constant(np.array(value, order="C"), node.span)
