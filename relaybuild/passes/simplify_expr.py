"""SimplifyExpr: local rewrites that leave less to compute.

    reshape, transpose, cast, copy, broadcast_to, squeeze, strided_slice, nn.pad, layout_transform
    that change nothing              ->  their argument
    reshape(reshape(x))              ->  reshape(x)            transpose(transpose(x))  ->  transpose(x)
    layout_transform(layout_transform(x))  ->  one of them, or x; one that permutes axes alone  ->  transpose(x)
    cast(cast(x))                    ->  cast(x)               where the inner one loses nothing
    cast(cast(clip(x)))              ->  clip(x)               where the limits fit the inner type
    clip(clip(x))                    ->  clip(x)
    x + 0, x - 0, x * 1, x / 1       ->  x                     where the constant stands inline, or is full of it
    x / sqrt(y)                      ->  x * rsqrt(y)
    x / c                            ->  x * (1 / c)           where c is a power of two; what an exponential, tanh,
                                                               sigmoid, erf or softmax is of, where c is any constant
    (x + c) + d, (x * c) * d         ->  x + (c + d), x * (c * d)    where c and d depend on constants alone
    (x, y).0                         ->  x                     where no effect is lost with y

Lets are seen through. Adding +0.0 turns a floating-point -0.0 into +0.0, so that `x + 0.0` is taken for x only where
the context does not say `relaybuild.precise`; neither are constants of floating-point sums and products gathered there,
nor divisions by roots rewritten, nor by constants whose reciprocals are rounded. Elsewhere these stay divisions
everywhere: where the quotient is rounded to a whole number, a last place decides. `x + x` stays a sum: it is as fast as
`2 * x`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import frexp, inf, isfinite
from typing import ClassVar, TypeAlias

import numpy as np

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, TupleGetItem, const
from relaybuild.ir.layout import is_plain
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.types import TensorType
from relaybuild.passes._definitions import Definitions, rewrite_definitions
from relaybuild.passes._exprs import ConstantExprs, attrs_of, is_call, observes_effects, projected, tensor_type
from relaybuild.passes.infra import PRECISE, FunctionPass, PassContext, PassInfo


@dataclass(frozen=True)
class _Facts:
    """What rules may ask: what variables stand for, whether rounding must stay as written, and whether references can
    play a part in the function."""

    definitions: Definitions
    precise: bool
    effects: bool

    @property
    def constants(self) -> ConstantExprs:
        """Which expressions depend on constants alone."""
        return self.definitions.constants

    def inner(self, node: Call) -> Expr:
        """What the first argument is or stands for."""
        return self.definitions.of(node.args[0])


_Rule: TypeAlias = Callable[[Call, _Facts], Expr]
"""A node of one operator to what replaces it: the node itself where the rule does not apply."""


@dataclass(frozen=True, repr=False)
class SimplifyExpr(FunctionPass):
    """Applies each operator's rules, bottom-up, until none applies."""

    info: ClassVar[PassInfo] = PassInfo("SimplifyExpr", 0)

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        precise, effects = bool(ctx.get_config(PRECISE.name)), observes_effects(func)

        @cache
        def facts(definitions: Definitions) -> _Facts:
            return _Facts(definitions, precise, effects)

        return rewrite_definitions(ctx, func, lambda node, definitions: _simplified(node, facts(definitions)))


def _simplified(node: Expr, facts: _Facts) -> Expr:
    if isinstance(node, TupleGetItem):
        return projected(node, effects=facts.effects)
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
    inner, kind = facts.inner(node), tensor_type(node)
    if not is_call(inner, "reshape") or kind is None or not kind.is_static:
        return node
    return call_op("reshape", [inner.args[0]], node.span, newshape=kind.static_shape)


def _transpose(node: Call, facts: _Facts) -> Expr:
    axes, inner = _axes(node), facts.inner(node)
    if axes == tuple(range(len(axes))):
        return node.args[0]
    if not is_call(inner, "transpose"):
        return node
    first = _axes(inner)
    return call_op("transpose", [inner.args[0]], node.span, axes=tuple(first[axis] for axis in axes))


def _axes(node: Call) -> tuple[int, ...]:
    rank, attrs = node.tensor_type.rank, attrs_of(node)
    return tuple(axis % rank for axis in attrs.axes) if attrs.axes else tuple(reversed(range(rank)))


def _whole_slice(node: Call, facts: _Facts) -> Expr:
    forward = all(stride > 0 for stride in attrs_of(node).strides or ())
    return _unchanged(node, facts) if forward else node


def _unpadded(node: Call, facts: _Facts) -> Expr:
    """What is cut off on one side and put on at the other keeps the type, too."""
    return node if any(width for pair in attrs_of(node).pad_width for width in pair) else _unchanged(node, facts)


def _clip_of_clip(node: Call, facts: _Facts) -> Expr:
    inner = facts.inner(node)
    if not is_call(inner, "clip"):
        return node
    low, high = (_clipped(_clipped(limit, inner), node) for limit in (-inf, inf))
    limits = {"a_min": None if low == -inf else low, "a_max": None if high == inf else high}
    return call_op("clip", [inner.args[0]], node.span, **limits)


def _clipped(value: float, clip: Call) -> float:
    attrs = attrs_of(clip)
    value = value if attrs.a_min is None else max(value, attrs.a_min)
    return value if attrs.a_max is None else min(value, attrs.a_max)


def _cast_of_cast(node: Call, facts: _Facts) -> Expr:
    inner = facts.inner(node)
    if not is_call(inner, "cast"):
        return node
    source = facts.inner(inner)
    before, between, after = (each.tensor_type.dtype for each in (inner.args[0], inner, node))
    if _loses_nothing(before, between):
        return call_op("cast", [inner.args[0]], node.span, dtype=after)
    if before == after and is_call(source, "clip") and _holds_limits(between, source):
        return inner.args[0]
    return node


def _loses_nothing(before: str, after: str) -> bool:
    """Whether every value of one type is a value of the other."""
    if "bfloat16" in (before, after):
        return before == after or (before == "bfloat16" and after in ("float32", "float64"))
    # numpy takes float64 for large enough to hold every integer of 64 bits
    return np.can_cast(before, after, "safe") and not (before in ("int64", "uint64") and after == "float64")


def _holds_limits(dtype: str, clip: Call) -> bool:
    """Whether an integer type has all values between a clip's limits."""
    attrs = attrs_of(clip)
    if "int" not in dtype or "int" not in clip.tensor_type.dtype or attrs.a_min is None or attrs.a_max is None:
        return False
    info = np.iinfo(dtype)
    return bool(info.min <= attrs.a_min and attrs.a_max <= info.max)


def _layout_transform(node: Call, facts: _Facts) -> Expr:
    attrs, inner = attrs_of(node), facts.inner(node)
    if attrs.src_layout == attrs.dst_layout:
        return node.args[0]
    if is_plain(attrs.src_layout) and is_plain(attrs.dst_layout):
        axes = tuple(attrs.src_layout.index(letter) for letter in attrs.dst_layout)
        return call_op("transpose", [node.args[0]], node.span, axes=axes)
    if not is_call(inner, "layout_transform") or attrs_of(inner).dst_layout != attrs.src_layout:
        return node
    first = attrs_of(inner).src_layout
    return call_op("layout_transform", [inner.args[0]], node.span, src_layout=first, dst_layout=attrs.dst_layout)


def _division_by_root(node: Call, facts: _Facts) -> Expr:
    root = facts.definitions.of(node.args[1])
    if facts.precise or not is_call(root, "sqrt"):
        return node
    inverse = call_op("rsqrt", [root.args[0]], root.span)
    return call_op("multiply", [node.args[0], inverse], node.span)


def _division_by_power_of_two(node: Call, facts: _Facts) -> Expr:
    return _by_reciprocal(node, facts, rounded=False)


def _scaled_argument(node: Call, facts: _Facts) -> Expr:
    """A smooth function of a quotient by a constant."""
    quotient = facts.inner(node)
    if facts.precise or not is_call(quotient, "divide"):
        return node
    product = _by_reciprocal(quotient, facts, rounded=True)
    return node if product is quotient else node.with_children([product, *node.args[1:]])


def _by_reciprocal(division: Call, facts: _Facts, *, rounded: bool) -> Expr:
    """The product of the dividend with the reciprocal of a constant, which may be `rounded`, or the division itself."""
    divisor, dtype = facts.definitions.of(division.args[1]), division.tensor_type.dtype
    value = _filling(divisor, effects=True) if isinstance(divisor, Constant) else None
    if dtype not in ("float32", "float64") or not value or not _LEAST <= abs(value) <= 1 / _LEAST:
        return division
    if not rounded and abs(frexp(value)[0]) != 0.5:
        return division
    inverse = const(np.full(divisor.tensor_type.static_shape, 1 / value), dtype)
    return call_op("multiply", [division.args[0], inverse], division.span)


def _neutral(value: int, both_sides: bool) -> _Rule:
    def rule(node: Call, facts: _Facts) -> Expr:
        sides = (node.args, node.args[::-1]) if both_sides else (node.args,)
        for kept, other in sides:
            found = _filling(facts.definitions.of(other), effects=facts.effects)
            if found is None or found != value or kept.checked_type != node.checked_type:
                continue
            if value or not facts.precise or _keeps_zeros(node, found):
                return kept
        return node

    return rule


def _keeps_zeros(node: Call, zero: float) -> bool:
    """Whether adding (or subtracting) this zero leaves a negative zero as it is."""
    is_negative = bool(np.signbit(zero))
    return "float" not in node.tensor_type.dtype or is_negative == (node.op_name == "add")


def _filling(node: Expr, *, effects: bool) -> float | None:
    """The one value of a constant that stands inline, or of a tensor that is full of one."""
    if not effects and isinstance(node, Call) and node.op_name in _FULL_OF:
        return _FULL_OF[node.op_name]
    if isinstance(node, Constant) and not node.is_weight and node.data.size == 1:
        value = node.data.item()
        return float(value) if isinstance(value, (bool, int, float)) else None
    if is_call(node, "full"):
        return float(attrs_of(node).fill_value)
    return None


def _gather_constants(node: Call, facts: _Facts) -> Expr:
    """(x + c) + d to x + (c + d), unless the sum of the constants is larger than both.

    Not in float16, whose range a product of two constants leaves too easily, and not where constants that stand inline
    cancel or leave the middle of the range: that rounds on purpose.
    """
    dtype = node.tensor_type.dtype
    if dtype == "float16" or (facts.precise and dtype.startswith("float")):
        return node
    operand, outer_constant = _split_constant(node, facts)
    inner = facts.definitions.of(operand)
    if outer_constant is None or not (isinstance(inner, Call) and inner.op is node.op):
        return node
    data, inner_constant = _split_constant(inner, facts)
    if inner_constant is None:
        return node
    if dtype.startswith("float") and not _may_gather(node.op_name, inner_constant, outer_constant, facts):
        return node
    gathered = call_op(node.op_name, [inner_constant, outer_constant], node.span)
    sizes = [_size(expr) for expr in (inner_constant, outer_constant)]
    return call_op(node.op_name, [data, gathered], node.span) if _size(gathered) <= max(sizes) else node


def _may_gather(name: str, first: Expr, second: Expr, facts: _Facts) -> bool:
    """Whether a sum or product of two numbers may stand for both; weights are not looked at."""
    found = [_filling(facts.definitions.of(each), effects=facts.effects) for each in (first, second)]
    if found[0] is None or found[1] is None:
        return True
    c, d = found[0], found[1]
    if name == "add":
        return isfinite(c + d) and abs(c + d) >= max(abs(c), abs(d))
    sizes = [abs(value) for value in (c, d, c * d)]
    return all(_LEAST <= size <= 1 / _LEAST for size in sizes) or (0 in sizes[:2] and max(sizes) <= 1 / _LEAST)


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


_LEAST = 2.0**-120
"""Reciprocals of what is between this and its own are far from the ends of single precision."""

_FULL_OF = {"zeros_like": 0.0, "ones_like": 1.0}

_RULES: dict[str, tuple[_Rule, ...]] = {
    "reshape": (_unchanged, _reshape_of_reshape),
    "transpose": (_transpose,),
    "cast": (_unchanged, _cast_of_cast),
    "layout_transform": (_layout_transform,),
    "copy": (_unchanged,),
    "broadcast_to": (_unchanged,),
    "squeeze": (_unchanged,),
    "strided_slice": (_whole_slice,),
    "nn.pad": (_unpadded,),
    "clip": (_clip_of_clip,),
    "add": (_neutral(0, both_sides=True), _gather_constants),
    "subtract": (_neutral(0, both_sides=False),),
    "multiply": (_neutral(1, both_sides=True), _gather_constants),
    "divide": (_neutral(1, both_sides=False), _division_by_root, _division_by_power_of_two),
    **dict.fromkeys(("erf", "exp", "nn.softmax", "sigmoid", "tanh"), (_scaled_argument,)),
}
