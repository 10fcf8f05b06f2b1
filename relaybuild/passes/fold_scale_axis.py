"""FoldScaleAxis: a multiplication per channel moves into weights.

    backward:  relu(conv(x, w) + b) * s            ->  relu(conv(x, w * s) + b * s)
               (conv(x, w) + conv(y, v)) * s       ->  conv(x, w * s) + conv(y, v * s)
    forward:   conv(relu(x * s + b), w)            ->  conv(relu(x + b / s), w * s)

for conv2d, conv2d_transpose, dense and matmul, where w, b and s depend on constants alone. Backward, nothing else may
use what stands between; forward, everything that uses the scaled value must lead to such an operator. A scale passes
rectifiers and maximum pools where it is positive (`relaybuild.passes._scales`). The products over weights stay
expressions: they are evaluated with the weights, not here. Lets are seen through. Where the context says
`relaybuild.precise`, scales stay where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Function, Let
from relaybuild.ir.module import IRModule
from relaybuild.ir.op import call_op
from relaybuild.ir.visitor import post_order, use_counts
from relaybuild.passes._definitions import Definitions, rewrite_definitions
from relaybuild.passes._exprs import ConstantExprs, is_call, tensor_type
from relaybuild.passes._scales import ANCHORS, Scale, Signs, can_absorb, is_along, passes, scale_of
from relaybuild.passes.infra import PRECISE, FunctionPass, PassContext, PassInfo, Sequential

MOST_NODES = 64
"""How many operators a scale may pass, which bounds the time of a search."""

_SUMS = ("add", "subtract")


@dataclass(frozen=True, repr=False)
class BackwardFoldScaleAxis(FunctionPass):
    """Moves a scale against the flow of data, into the weights of the operators that made what is scaled.

    `read_weights` allows to look at the values of weights, to see that a scale is positive.
    """

    info: ClassVar[PassInfo] = PassInfo("BackwardFoldScaleAxis", 3, ("InferType",))
    read_weights: bool = True

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if ctx.get_config(PRECISE.name):
            return func
        backward = _Backward(func, Signs(read_weights=self.read_weights))
        return rewrite_definitions(ctx, func, backward.fold, backward.count)


@dataclass(frozen=True, repr=False)
class ForwardFoldScaleAxis(FunctionPass):
    """Moves a scale with the flow of data, into the weights of the operators that read what is scaled."""

    info: ClassVar[PassInfo] = PassInfo("ForwardFoldScaleAxis", 3, ("InferType",))
    read_weights: bool = True

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        if ctx.get_config(PRECISE.name):
            return func
        forward = _Forward(func, Signs(read_weights=self.read_weights))
        return forward.run(ctx)


class FoldScaleAxis(Sequential):
    """Both passes, backward first."""

    def __init__(self, read_weights: bool = True) -> None:
        children = (BackwardFoldScaleAxis(read_weights), ForwardFoldScaleAxis(read_weights))
        super().__init__(children, opt_level=3, name="FoldScaleAxis")


def _scaling(node: Expr, constants: ConstantExprs) -> tuple[Expr, Scale] | None:
    """(data, scale) of a multiplication by a scale that depends on constants alone."""
    if not is_call(node, "multiply") or not node.has_type:
        return None
    for data, values in (node.args, node.args[::-1]):
        kind = tensor_type(data)
        if kind is not None and kind == node.checked_type and constants.holds(values) and not constants.holds(data):
            scale = scale_of(kind, values)
            if scale is not None:
                return data, scale
    return None


# Backward

_Visit: TypeAlias = "tuple[Expr, Call, Scale]"
"""An operand as it stands, the call that it is or stands for, and the scale it has to take."""


class _Backward:
    """Folds at multiplications, in a walk from operands to users."""

    def __init__(self, function: Function, signs: Signs) -> None:
        self._signs = signs
        self._uses = use_counts(function)

    def count(self, old: Expr, new: Expr) -> None:
        """What stands for a node is used as often as the node was."""
        self._uses[id(new)] = self._uses.get(id(old), 1)

    def fold(self, node: Expr, definitions: Definitions) -> Expr:
        found = _scaling(node, definitions.constants)
        if found is None:
            return node
        data, scale = found
        region = self._region(data, scale, definitions)
        return node if region is None else _rebuilt(data, region, definitions.constants)

    def _region(self, data: Expr, scale: Scale, definitions: Definitions) -> list[_Visit] | None:
        """The calls that take the scale, users before operands; None where one cannot."""
        positive = self._signs.are_positive(scale.values)
        region: list[_Visit] = []
        waiting = [(data, scale)]
        while waiting:
            operand, own = waiting.pop()
            call = definitions.of(operand)
            if not isinstance(call, Call) or len(region) == MOST_NODES:
                return None
            if self._uses.get(id(operand), 1) != 1 or self._uses.get(id(call), 1) != 1:
                return None
            inputs = _inputs(call, own, definitions.constants, positive=positive)
            if inputs is None:
                return None
            region.append((operand, call, own))
            waiting += inputs
        return region


def _inputs(call: Call, scale: Scale, constants: ConstantExprs, *, positive: bool) -> list[tuple[Expr, Scale]] | None:
    """Which operands have to take which scale so that the call does; None where it cannot."""
    anchor = ANCHORS.get(call.op_name)
    if anchor is not None:
        fits = can_absorb(call, anchor.out_axis(call), scale.axis) and constants.holds(call.args[1])
        return [] if fits and anchor.scaled_out(call, scale) is not None else None
    if call.op_name in _SUMS:
        data = [arg for arg in call.args if not constants.holds(arg)]
        return [(arg, scale) for arg in data] if _is_sum_along(call, scale, constants) else None
    if call.op_name == "nn.bias_add":
        fits = constants.holds(call.args[1]) and _is_bias_along(call, scale)
        return [(call.args[0], scale)] if fits else None
    before = passes(call, scale, backward=True, positive=positive)
    return None if before is None else [(call.args[0], before)]


def _is_sum_along(call: Call, scale: Scale, constants: ConstantExprs) -> bool:
    """Whether all data of a sum has the result's type, and all constants lie along the scale."""
    result = tensor_type(call)
    kinds = [(arg, tensor_type(arg)) for arg in call.args]
    return result is not None and all(
        kind is not None and (is_along(kind, result.rank, scale.axis) if constants.holds(arg) else kind == result)
        for arg, kind in kinds
    )


def _is_bias_along(call: Call, scale: Scale) -> bool:
    attrs: Any = call.attrs
    return scale.axis is None or attrs.axis % call.tensor_type.rank == scale.axis


def _rebuilt(root: Expr, region: Sequence[_Visit], constants: ConstantExprs) -> Expr:
    """The scaled value: the region's calls over operands that have taken the scale."""
    done: dict[int, Expr] = {}
    for operand, call, scale in reversed(region):
        anchor = ANCHORS.get(call.op_name)
        if anchor is not None:
            weight = anchor.scaled_out(call, scale)
            assert weight is not None
            args = [call.args[0], weight]
        else:
            args = [done[id(arg)] if id(arg) in done else _scaled_side(call, arg, scale) for arg in call.args]
        done[id(operand)] = Call(call.op, args, call.attrs, call.span)
    return done[id(root)]


def _scaled_side(call: Call, side: Expr, scale: Scale, op: str = "multiply") -> Expr:
    """A constant operand of a sum, or a bias, times the scale (or divided by it)."""
    factor = scale.shaped((scale.count,)) if call.op_name == "nn.bias_add" else scale.behind(call.tensor_type.rank)
    return call_op(op, [side, factor], side.span or call.span)


# Forward


@dataclass
class _Plan:
    """What one scale does on its way: the nodes it meets, and the scale at each."""

    root: Call
    data: Expr
    scale: Scale
    met: dict[int, Scale] = field(default_factory=dict)


class _Forward:
    """Looks from multiplications to their users, then rebuilds the function by the plans that hold."""

    def __init__(self, function: Function, signs: Signs) -> None:
        self._function = function
        self._signs = signs
        self._order = list(post_order(function))
        self._users: dict[int, list[Expr]] = {}
        self._constants = ConstantExprs()
        for node in self._order:
            for child in node.children():
                self._users.setdefault(id(child), []).append(node)
        self._taken: dict[int, _Plan] = {}

    def run(self, ctx: PassContext) -> Function:
        for node in self._order:
            plan = self._plan(node)
            if plan is not None and ctx.allow_rewrite("multiply moves into weights", node):
                self._taken.update((key, plan) for key in (id(plan.root), *plan.met))
        return self._rebuild() if self._taken else self._function

    def _plan(self, node: Expr) -> _Plan | None:
        found = _scaling(node, self._constants)
        if found is None or id(node) in self._taken:
            return None
        assert isinstance(node, Call)
        data, scale = found
        plan = _Plan(node, data, scale)
        positive = self._signs.are_positive(scale.values)
        waiting: list[tuple[Expr, Scale]] = [(node, scale)]
        while waiting:
            value, own = waiting.pop()
            users = self._users.get(id(value), [])
            if not users or len(plan.met) + len(users) > MOST_NODES:
                return None
            for user in users:
                if isinstance(user, Let) and user.value is value and user.body is not value:
                    waiting.append((user.var, own))
                    continue
                further = self._meet(plan, user, value, own, positive=positive)
                if further is None:
                    return None
                waiting += further
        return plan

    def _meet(
        self, plan: _Plan, user: Expr, value: Expr, scale: Scale, *, positive: bool
    ) -> list[tuple[Expr, Scale]] | None:
        """What has to be looked at behind a user of a value; None where the scale cannot go on."""
        if not isinstance(user, Call) or isinstance(user.op, Expr) or not user.has_type or id(user) in self._taken:
            return None
        if id(user) in plan.met or sum(arg is value for arg in user.args) != 1:
            return None
        if user.args[0] is not value and user.op_name not in _SUMS:
            return None
        return self._behind(plan, user, scale, positive)

    def _behind(self, plan: _Plan, user: Call, scale: Scale, positive: bool) -> list[tuple[Expr, Scale]] | None:
        anchor = ANCHORS.get(user.op_name)
        if anchor is not None:
            fits = can_absorb(user, anchor.in_axis(user), scale.axis) and self._constants.holds(user.args[1])
            if not fits or anchor.scaled_in(user, scale) is None:
                return None
            plan.met[id(user)] = scale
            return []
        if user.op_name in (*_SUMS, "nn.bias_add"):
            divides = user.tensor_type.dtype.startswith("float") and self._signs.can_divide(scale.values)
            after = scale if divides and self._adds_constant(user, scale) else None
        else:
            after = passes(user, scale, backward=False, positive=positive)
        if after is None:
            return None
        plan.met[id(user)] = scale
        return [(user, after)]

    def _adds_constant(self, user: Call, scale: Scale) -> bool:
        """Whether the other operand of a sum is a constant that lies along the scale."""
        if sum(self._constants.holds(arg) for arg in user.args) != 1:
            return False
        if user.op_name == "nn.bias_add":
            return _is_bias_along(user, scale)
        return _is_sum_along(user, scale, self._constants)

    def _rebuild(self) -> Function:
        done: dict[int, Expr] = {}
        for node in self._order:
            plan = self._taken.get(id(node))
            rebuilt = node.with_children([done[id(child)] for child in node.children()])
            if plan is None:
                done[id(node)] = rebuilt
            elif node is plan.root:
                done[id(node)] = done[id(plan.data)]
            else:
                assert isinstance(rebuilt, Call)
                done[id(node)] = self._absorbed(rebuilt, plan.met[id(node)])
        result = done[id(self._function)]
        assert isinstance(result, Function)
        return result

    def _absorbed(self, call: Call, scale: Scale) -> Expr:
        anchor = ANCHORS.get(call.op_name)
        if anchor is not None:
            weight = anchor.scaled_in(call, scale)
            assert weight is not None
            return Call(call.op, [call.args[0], weight], call.attrs, call.span)
        if call.op_name not in (*_SUMS, "nn.bias_add"):
            return call
        args = [_scaled_side(call, arg, scale, "divide") if self._constants.holds(arg) else arg for arg in call.args]
        return Call(call.op, args, call.attrs, call.span)
