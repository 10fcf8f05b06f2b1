"""SimplifyExpr: local rewrites that leave less to compute.

    reshape, transpose, cast, copy, broadcast_to, squeeze, strided_slice, nn.pad that change nothing  ->  their argument
    reshape(reshape(x))              ->  reshape(x)            transpose(transpose(x))  ->  transpose(x)
    clip(clip(x))                    ->  clip(x)
    x + 0, x - 0, x * 1, x / 1       ->  x                     where the constant stands inline
    (x + c) + d, (x * c) * d         ->  x + (c + d), x * (c * d)    where c and d depend on constants alone
    (x, y).0                         ->  x

`x + 0` of a floating-point -0.0 is taken for x. Constants of floating-point sums and products are not gathered where
the context says `relaybuild.precise`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, TypeAlias

from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.passes._exprs import ConstantExprs, is_call, tensor_type
from relaybuild.passes._rewrite import rewrite_under
from relaybuild.passes.infra import PRECISE, FunctionPass, PassContext, PassInfo


@dataclass(frozen=True)
class _Facts:
    """What rules may ask: which expressions depend on constants alone, and whether rounding must stay as written."""

    constants: ConstantExprs
    precise: bool


_Rule: TypeAlias = Callable[[Call, _Facts], Expr]
"""A node of one operator to what replaces it: the node itself where the rule does not apply."""


@dataclass(frozen=True, repr=False)
class SimplifyExpr(FunctionPass):
    """Applies each operator's rules, bottom-up, until none applies."""

    info: ClassVar[PassInfo] = PassInfo("SimplifyExpr", 0)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        facts = _Facts(ConstantExprs(), bool(ctx.get_config(PRECISE.name)))
        result = rewrite_under(ctx, func, lambda node: _simplified(node, facts))
        assert isinstance(result, Function)
        return result


def _simplified(node: Expr, facts: _Facts) -> Expr:
    if isinstance(node, TupleGetItem) and isinstance(node.tuple_value, Tuple):
        return node.tuple_value.fields[node.index]
    while isinstance(node, Call):
        simpler = _apply_rules(node, facts)
        if simpler is node:
            break
        node = simpler
    return node


def _apply_rules(node: Call, facts: _Facts) -> Expr:
    if not node.has_type or not all(arg.has_type for arg in node.args):
        return node
    for rule in _RULES.get(node.op_name, ()):
        simpler = rule(node, facts)
        if simpler is not node:
            return simpler
    return node


def _unchanged(node: Call, facts: _Facts) -> Expr:
    """For operators that are the identity whenever they keep the type."""
    return node.args[0] if node.args[0].checked_type == node.checked_type and _is_static(node) else node


def _reshape_of_reshape(node: Call, facts: _Facts) -> Expr:
    inner, kind = node.args[0], tensor_type(node)
    if not is_call(inner, "reshape") or kind is None or not kind.is_static:
        return node
    return call_op("reshape", [inner.args[0]], node.span, newshape=kind.static_shape)


def _transpose(node: Call, facts: _Facts) -> Expr:
    axes, inner = _axes(node), node.args[0]
    if axes == tuple(range(len(axes))):
        return inner
    if not is_call(inner, "transpose"):
        return node
    first = _axes(inner)
    return call_op("transpose", [inner.args[0]], node.span, axes=tuple(first[axis] for axis in axes))


def _axes(node: Call) -> tuple[int, ...]:
    rank, attrs = node.tensor_type.rank, _attrs(node)
    return tuple(axis % rank for axis in attrs.axes) if attrs.axes else tuple(reversed(range(rank)))


def _whole_slice(node: Call, facts: _Facts) -> Expr:
    forward = all(stride > 0 for stride in _attrs(node).strides or ())
    return _unchanged(node, facts) if forward else node


def _clip_of_clip(node: Call, facts: _Facts) -> Expr:
    inner = node.args[0]
    if not is_call(inner, "clip"):
        return node
    low, high = (_clipped(_clipped(limit, inner), node) for limit in (-inf, inf))
    limits = {"a_min": None if low == -inf else low, "a_max": None if high == inf else high}
    return call_op("clip", [inner.args[0]], node.span, **limits)


def _clipped(value: float, clip: Call) -> float:
    attrs = _attrs(clip)
    value = value if attrs.a_min is None else max(value, attrs.a_min)
    return value if attrs.a_max is None else min(value, attrs.a_max)


def _neutral(value: int, both_sides: bool) -> _Rule:
    def rule(node: Call, facts: _Facts) -> Expr:
        sides = (node.args, node.args[::-1]) if both_sides else (node.args,)
        for kept, other in sides:
            if _is_filled_with(other, value) and kept.checked_type == node.checked_type:
                return kept
        return node

    return rule


def _is_filled_with(node: Expr, value: int) -> bool:
    return isinstance(node, Constant) and not node.is_weight and node.data.size == 1 and bool(node.data.item() == value)


def _gather_constants(node: Call, facts: _Facts) -> Expr:
    """(x + c) + d to x + (c + d), unless the sum of the constants is larger than both.

    Not in float16, whose range a product of two constants leaves too easily.
    """
    dtype = node.tensor_type.dtype
    if dtype == "float16" or (facts.precise and dtype.startswith("float")):
        return node
    inner, outer_constant = _split_constant(node, facts)
    if outer_constant is None or not (isinstance(inner, Call) and inner.op is node.op):
        return node
    data, inner_constant = _split_constant(inner, facts)
    if inner_constant is None:
        return node
    gathered = call_op(node.op_name, [inner_constant, outer_constant], node.span)
    sizes = [_size(expr) for expr in (inner_constant, outer_constant)]
    return call_op(node.op_name, [data, gathered], node.span) if _size(gathered) <= max(sizes) else node


def _split_constant(node: Call, facts: _Facts) -> tuple[Expr, Expr | None]:
    """(the operand that depends on data, the one that does not); None where both or neither do."""
    left, right = (facts.constants.holds(arg) for arg in node.args)
    if left == right:
        return node, None
    return (node.args[1], node.args[0]) if left else (node.args[0], node.args[1])


def _size(node: Expr) -> float:
    kind = tensor_type(node)
    return kind.num_elements if kind is not None and kind.is_static else inf


def _is_static(node: Expr) -> bool:
    kind = node.checked_type
    # two unknown extents print alike but need not be equal
    return not isinstance(kind, TensorType) or "?" not in [str(extent) for extent in kind.shape]


def _attrs(node: Call) -> Any:
    return node.attrs if node.attrs is not None or isinstance(node.op, Expr) else node.op.make_attrs({})


_RULES: dict[str, tuple[_Rule, ...]] = {
    "reshape": (_unchanged, _reshape_of_reshape),
    "transpose": (_transpose,),
    "cast": (_unchanged,),
    "copy": (_unchanged,),
    "broadcast_to": (_unchanged,),
    "squeeze": (_unchanged,),
    "strided_slice": (_whole_slice,),
    "nn.pad": (_unchanged,),
    "clip": (_clip_of_clip,),
    "add": (_neutral(0, both_sides=True), _gather_constants),
    "subtract": (_neutral(0, both_sides=False),),
    "multiply": (_neutral(1, both_sides=True), _gather_constants),
    "divide": (_neutral(1, both_sides=False),),
}
