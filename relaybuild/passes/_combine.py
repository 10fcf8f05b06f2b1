"""Sibling calls over one value become one call over joined weights: what the CombineParallel passes share.

    conv(x, w0), conv(x, w1), …  ->  slices of conv(x, concatenate(w0, w1, …))

Element-wise calls behind each sibling, equal up to an operand per channel, are joined as well. Siblings are calls of
one block whose weights depend on constants and on parameters alone, so that the joined call can stand where the first
of them stood. Knows no operator but those that join and slice.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import field
from typing import Any

from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Constant, Expr, Function, Let, Tuple, Var
from relaybuild.ir.op import Op, OpKind, call_op
from relaybuild.ir.structural import attr_value, constant_digest
from relaybuild.passes._blocks import Blocks, find_blocks
from relaybuild.passes._exprs import ConstantExprs, tensor_type
from relaybuild.passes.infra import PassContext


@dataclass(frozen=True)
class ParallelOp:
    """Which calls can be joined, and how.

    `key(call)` is equal for calls that fit each other over one value, None for calls that fit none; `axis(call)` is the
    axis of the result along which they are joined; `joined(data, calls)` is the one call for all.
    """

    key: Callable[[Call], Hashable]
    axis: Callable[[Call], int]
    joined: Callable[[Expr, Sequence[Call]], Call]


@dataclass
class _Branches:
    """Siblings, and stage by stage what stands behind each of them.

    `places` tells which argument of a stage is the stage before; `starts` are where each sibling's channels begin.
    """

    stages: list[list[Call]]
    axis: int
    places: list[int] = field(default_factory=lambda: [0])
    starts: list[int] = field(default_factory=list)


def attrs_key(call: Call, *left_out: str) -> Hashable:
    """The attributes of a call as a value, without some."""
    items = call.attrs.items() if call.attrs is not None else ()
    return tuple((name, repr(attr_value(value))) for name, value in items if name not in left_out)


def joined_along(values: Sequence[Expr], axis: int) -> Expr:
    """The values one after the other along an axis."""
    return call_op("concatenate", [Tuple(values)], values[0].span, axis=axis)


def combine_parallel(ctx: PassContext, function: Function, kind: ParallelOp, min_branches: int) -> Function:
    """The function with every group of at least `min_branches` siblings joined."""
    search = _Search(function, kind)
    groups = [group for group in search.groups() if len(group) >= min_branches]
    plans: dict[int, tuple[_Branches, int, int]] = {}
    for calls in groups:
        if not ctx.allow_rewrite(f"{len(calls)} calls of {calls[0].op_name} become one", calls[0]):
            continue
        branches = search.grown(calls)
        for stage, members in enumerate(branches.stages):
            for position, call in enumerate(members):
                plans[id(call)] = (branches, stage, position)
    return _Joining(kind, plans).run(search.blocks.tree.order) if plans else function


class _Search:
    """Finds siblings and what follows them."""

    def __init__(self, function: Function, kind: ParallelOp) -> None:
        self.blocks: Blocks = find_blocks(function)
        self._kind = kind
        order = self.blocks.tree.order
        params = {id(param) for node in order if isinstance(node, Function) for param in node.params}
        self._fixed = ConstantExprs(lambda node: id(node) in params)
        self._users: dict[int, list[Expr]] = {}
        for node in order:
            for child in node.children():
                self._users.setdefault(id(child), []).append(node)

    def groups(self) -> list[list[Call]]:
        """Calls that fit each other, in order of the first of each group."""
        found: dict[Hashable, list[Call]] = {}
        for node in self.blocks.tree.order:
            if not isinstance(node, Call) or not isinstance(node.op, Op) or not _is_static(node):
                continue
            key = self._kind.key(node)
            if key is not None and self.blocks.of(node) and all(self._fixed.holds(arg) for arg in node.args[1:]):
                block = id(self.blocks.of(node))
                found.setdefault((block, id(node.args[0]), key), []).append(node)
        return list(found.values())

    def grown(self, calls: list[Call]) -> _Branches:
        """The siblings with as many stages behind them as fit each other."""
        branches = _Branches([calls], self._kind.axis(calls[0]))
        position = 0
        for call in calls:
            branches.starts.append(position)
            position += _extent(call, branches.axis)
        branches.starts.append(position)
        while True:
            users = [self._only_user(call) for call in branches.stages[-1]]
            following = [user for user in users if user is not None]
            places = {self._place(user, call) for user, call in zip(following, branches.stages[-1])}
            if len(following) < len(users) or len(places) != 1 or not self._fits(branches, following, *places):
                return branches
            branches.stages.append(following)
            branches.places += places

    def _only_user(self, call: Call) -> Call | None:
        """The one call that reads a value, perhaps through a let, in its block."""
        users = self._users.get(id(call), [])
        if len(users) == 1 and isinstance(users[0], Let) and users[0].value is call:
            users = self._users.get(id(users[0].var), [])
        user = users[0] if len(users) == 1 else None
        if not isinstance(user, Call) or not isinstance(user.op, Op) or not _is_static(user):
            return None
        return user if self.blocks.of(user) is self.blocks.of(call) else None

    def _fits(self, branches: _Branches, calls: list[Call], place: int) -> bool:
        """Whether calls behind all siblings are one operation but for operands per channel."""
        first, axis = calls[0], branches.axis
        assert isinstance(first.op, Op)
        if first.op.kind not in (OpKind.ELEMWISE, OpKind.BROADCAST) or len({id(call) for call in calls}) < len(calls):
            return False
        if any(call.op is not first.op or attrs_key(call) != attrs_key(first) for call in calls):
            return False
        if any(a.tensor_type.shape != b.tensor_type.shape for a, b in zip(calls, branches.stages[-1])):
            return False
        columns = [[call.args[number] for call in calls] for number in range(len(first.args)) if number != place]
        if not all(self._fixed.holds(arg) for column in columns for arg in column):
            return False
        return all(_all_same(column) or _can_be_joined(calls, column, axis) for column in columns)

    def _place(self, user: Call, call: Call) -> int:
        """Which argument of the user the call is."""
        for number, arg in enumerate(user.args):
            if arg is call:
                return number
        # read through a let
        return next((number for number, arg in enumerate(user.args) if self._is_bound_to(arg, call)), -1)

    def _is_bound_to(self, arg: Expr, call: Call) -> bool:
        users = self._users[id(call)]
        return isinstance(arg, Var) and isinstance(users[0], Let) and users[0].var is arg


class _Joining:
    """Rebuilds the function; what is joined is built when its first part is met."""

    def __init__(self, kind: ParallelOp, plans: dict[int, tuple[_Branches, int, int]]) -> None:
        self._kind = kind
        self._plans = plans
        self._built: dict[int, list[Call]] = {}
        self._done: dict[int, Expr] = {}

    def run(self, order: Sequence[Expr]) -> Function:
        for node in order:
            plan = self._plans.get(id(node))
            if plan is None:
                children = node.children()
                rebuilt = node.with_children([self._done[id(child)] for child in children]) if children else node
                self._done[id(node)] = rebuilt
            else:
                assert isinstance(node, Call)
                self._done[id(node)] = self._part(node, *plan)
        result = self._done[id(order[-1])]
        assert isinstance(result, Function)
        return result

    def _part(self, node: Call, branches: _Branches, stage: int, position: int) -> Expr:
        if id(branches) not in self._built:
            self._built[id(branches)] = self._stages(branches)
        whole = self._built[id(branches)][stage]
        begin, end = branches.starts[position], branches.starts[position + 1]
        return call_op("strided_slice", [whole], node.span, begin=(begin,), end=(end,), axes=(branches.axis,))

    def _stages(self, branches: _Branches) -> list[Call]:
        first = branches.stages[0]
        built = [self._kind.joined(self._done.get(id(first[0].args[0]), first[0].args[0]), first)]
        for place, calls in zip(branches.places[1:], branches.stages[1:]):
            args = [
                built[-1] if number == place else _joined_operand(calls, number, branches.axis)
                for number in range(len(calls[0].args))
            ]
            built.append(Call(calls[0].op, args, calls[0].attrs, calls[0].span))
        return built


def _joined_operand(calls: Sequence[Call], number: int, axis: int) -> Expr:
    """One operand for all branches."""
    column = [call.args[number] for call in calls]
    return column[0] if _all_same(column) else joined_along(column, _operand_axis(calls[0], column[0], axis))


def _operand_axis(call: Call, arg: Expr, axis: int) -> int:
    """The axis of an operand that lies along the result's axis."""
    if _is_vector_operand(call):
        return 0
    return axis - (call.tensor_type.rank - arg.tensor_type.rank)


def _is_vector_operand(call: Call) -> bool:
    """Whether the operand is a vector along the attribute `axis`, as a bias is."""
    return call.attrs is not None and hasattr(call.attrs, "axis")


def _all_same(column: Sequence[Expr]) -> bool:
    """Whether one operand of one value serves all branches."""
    first = column[0]
    return first.tensor_type.num_elements == 1 and all(arg is first or _same_scalar(arg, first) for arg in column)


def _same_scalar(a: Expr, b: Expr) -> bool:
    return isinstance(a, Constant) and isinstance(b, Constant) and constant_digest(a) == constant_digest(b)


def _can_be_joined(calls: Sequence[Call], column: Sequence[Expr], axis: int) -> bool:
    """Whether operands are of one shape and dtype but for the channels, of which each has all."""
    shapes = set()
    for call, arg in zip(calls, column):
        attrs: Any = call.attrs
        if _is_vector_operand(call) and attrs.axis % call.tensor_type.rank != axis:
            return False
        place, kind = _operand_axis(call, arg, axis), arg.tensor_type
        if place < 0 or kind.shape[place] != call.tensor_type.shape[axis]:
            return False
        shapes.add((kind.dtype, kind.shape[:place], kind.shape[place + 1 :]))
    return len(shapes) == 1


def _is_static(call: Call) -> bool:
    kinds = [tensor_type(node) for node in (call, *call.args)]
    return all(kind is not None and kind.is_static for kind in kinds)


def _extent(call: Call, axis: int) -> int:
    return call.tensor_type.static_shape[axis]
