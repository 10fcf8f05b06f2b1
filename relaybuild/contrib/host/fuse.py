"""Divides a function into groups, each of which becomes one kernel; knows nothing of layouts.

Forward: an anchor takes the element-wise nodes behind it as its epilogue, up to the last one through which everything
passes. Backward: of the rest, a node joins the map that reads it where each of its elements is read about once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from relaybuild.contrib.host.values import Values, argument_types, arguments, slice_starts
from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr
from relaybuild.ir.op import OpKind
from relaybuild.ir.scalar import ComputeCall
from relaybuild.ir.types import TensorType
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr

MOST_NODES = 96
"""Nodes in one group, which bounds the size of a kernel and the depth of its expressions."""

_POINTWISE = (OpKind.ELEMWISE, OpKind.BROADCAST)


@dataclass
class Group:
    """One kernel: `root` is the value it stores, `anchor` the node whose template computes it (None: a map).

    `members` are the ids of the nodes computed inside, root and anchor among them; a node computed inside may also be
    a member of other groups when that costs no arithmetic. `staged` is the member of a map of which each row is
    computed once, before the first row of the root that reads it.
    """

    root: Call
    anchor: Call | None
    members: set[int] = field(default_factory=set)
    nodes: list[Call] = field(default_factory=list)
    staged: Call | None = None

    @property
    def is_concatenation(self) -> bool:
        return self.anchor is None and self.root.op_name == "concatenate" and len(self.members) == 1


Owners: TypeAlias = dict[int, list[Group]]
"""The groups that compute a node, by its id."""


def fuse(values: Values, anchors: Mapping[str, str], *, enabled: bool = True) -> list[Group]:
    """Groups in topological order of their roots.

    `anchors` names the operators that a template computes; its value tells what may be computed on the way of their
    arguments (`relaybuild.contrib.host.anchor.Anchor.loads`). With `enabled` false every node is a group.
    """
    position = {id(node): number for number, node in enumerate(values.nodes)}
    owner: Owners = {}
    groups: list[Group] = []
    for node in values.nodes:
        if id(node) in owner or node.op_name not in anchors:
            continue
        members = _epilogue(node, values, position, owner) if enabled else [node]
        group = Group(members[-1], node, {id(member) for member in members}, members)
        groups.append(group)
        owner.update((id(member), [group]) for member in members)
    for node in reversed(values.nodes):
        if id(node) not in owner:
            _place(node, values, owner, groups, anchors, enabled=enabled)
    return sorted(groups, key=lambda group: position[id(group.root)])


def _epilogue(anchor: Call, values: Values, position: Mapping[int, int], owner: Owners) -> list[Call]:
    """The anchor and the element-wise nodes it takes, in topological order; the last is the group's root."""
    region = [anchor]
    inside = {id(anchor)}
    number = 0
    while number < len(region) and len(region) < MOST_NODES:
        for user in values.users.get(id(region[number]), ()):
            if id(user) not in inside and id(user) not in owner and _extends(user, anchor):
                inside.add(id(user))
                region.append(user)
        number += 1
    region.sort(key=lambda node: position[id(node)])
    best = [anchor]
    for candidate in region[1:]:
        taken = _between(anchor, candidate, inside)
        if taken is not None and all(_stays_inside(node, candidate, taken, values) for node in taken):
            ids = {id(node) for node in taken}
            if _independent_inputs(taken, ids, anchor, position, values):
                best = sorted(taken, key=lambda node: position[id(node)])
    return best


def _extends(node: Call, anchor: Call) -> bool:
    """Whether `node` may be part of the anchor's epilogue: element-wise over the anchor's shape, in float32."""
    kind = node.op if isinstance(node.op, Expr) else node.op.kind
    return (
        kind in _POINTWISE
        and node.checked_type == anchor.checked_type
        and all(argument.tensor_type.dtype == "float32" for argument in arguments(node))
        and anchor.tensor_type.dtype == "float32"
    )


def _between(anchor: Call, end: Call, inside: set[int]) -> list[Call] | None:
    """The nodes of the region on paths from the anchor to `end`, both included; None where there is no path."""
    found: dict[int, Call] = {id(end): end}
    stack = [end]
    reaches = False
    while stack:
        for argument in arguments(stack.pop()):
            if isinstance(argument, Call) and id(argument) in inside and id(argument) not in found:
                found[id(argument)] = argument
                if argument is anchor:
                    reaches = True
                else:
                    stack.append(argument)
    return list(found.values()) if reaches else None


def _stays_inside(node: Call, end: Call, taken: list[Call], values: Values) -> bool:
    if node is end:
        return True
    ids = {id(member) for member in taken}
    return not values.is_output(node) and all(id(user) in ids for user in values.users.get(id(node), ()))


def _independent_inputs(
    taken: list[Call], ids: set[int], anchor: Call, position: Mapping[int, int], values: Values
) -> bool:
    """Whether no other input of the taken nodes is computed from the anchor, so that it is ready before the kernel."""
    first = position[id(anchor)]
    stack = [
        argument
        for node in taken
        if node is not anchor
        for argument in arguments(node)
        if isinstance(argument, Call) and id(argument) not in ids
    ]
    seen: set[int] = set()
    while stack:
        node = stack.pop()
        if id(node) in ids:
            return False
        if id(node) in seen or position.get(id(node), -1) <= first:
            continue
        seen.add(id(node))
        stack.extend(argument for argument in arguments(node) if isinstance(argument, Call))
    return True


def _place(
    node: Call,
    values: Values,
    owner: Owners,
    groups: list[Group],
    anchors: Mapping[str, str],
    *,
    enabled: bool,
) -> None:
    """Put a node into the group of its users, into each of them, or at the head of a group of its own."""
    users = values.users.get(id(node), [])
    hosts = _hosts(node, users, owner, anchors) if enabled and users and not values.is_output(node) else None
    if hosts is not None and all(len(host.members) < MOST_NODES for host in hosts):
        unique = {id(host): host for host in hosts}
        if len(unique) == 1 or _is_free(node):
            for host in unique.values():
                host.members.add(id(node))
                host.nodes.append(node)
            owner[id(node)] = list(unique.values())
            return
    map_group = _staging(node, users, values, owner) if enabled else None
    if map_group is not None:
        map_group.staged = node
        map_group.members.add(id(node))
        map_group.nodes.append(node)
        owner[id(node)] = [map_group]
        return
    group = Group(node, None, {id(node)}, [node])
    groups.append(group)
    owner[id(node)] = [group]


def _staging(node: Call, users: list[Call], values: Values, owner: Owners) -> Group | None:
    """The map that can compute `node` row by row: both resample, the map within columns, and nothing else reads it."""
    if len(users) != 1 or len(owner[id(users[0])]) != 1 or values.is_output(node) or not _resamples(node):
        return None
    host = owner[id(users[0])][0]
    if host.anchor is not None or host.staged is not None or len(host.members) >= MOST_NODES:
        return None
    user = users[0]
    if not _resamples(user) or not _reads_within_columns(user):
        return None
    behind = [each for each in host.nodes if each is not user and _comes_from(each, user, host)]
    return host if all(_kind(each) in _POINTWISE and _same_shape(each, user) for each in behind) else None


def _resamples(node: Call) -> bool:
    """Whether elements are computed from several of the argument's, each of which serves several."""
    return not isinstance(node.op, Expr) and node.op.kind is OpKind.INJECTIVE and not node.op.reads_once


def _reads_within_columns(node: Call) -> bool:
    """Whether each element is computed from elements of the same place in rows of the argument."""
    assert not isinstance(node.op, Expr)
    assert node.op.compute is not None
    out = node.tensor_type
    index = [Index.of(Axis(f"i{number}", extent - 1)) for number, extent in enumerate(out.static_shape)]
    scalars = ScalarBuilder()
    places: list[list[Index]] = []

    def read(at: Sequence[IndexLike]) -> ScalarExpr:
        places.append([Index.of(part) for part in (*at[:-2], at[-1])])
        return scalars.const(0, out.dtype)

    node.op.compute(scalars, [read], index, ComputeCall(argument_types(node), out, node.attrs))
    return out.rank > 1 and all(place == [*index[:-2], index[-1]] for place in places)


def _comes_from(node: Call, source: Call, host: Group) -> bool:
    """Whether `node` is computed from `source` inside the group."""
    pending: list[Expr] = [node]
    seen: set[int] = set()
    while pending:
        each = pending.pop()
        if each is source:
            return True
        if id(each) in host.members and id(each) not in seen and isinstance(each, Call):
            seen.add(id(each))
            pending.extend(arguments(each))
    return False


def _same_shape(node: Call, other: Call) -> bool:
    return node.tensor_type.shape == other.tensor_type.shape


def _hosts(node: Call, users: list[Call], owner: Owners, anchors: Mapping[str, str]) -> list[Group] | None:
    """The groups in which every user can compute `node` for itself, or None."""
    if node.op_name == "concatenate" or is_run(node) or _kind(node) not in (*_POINTWISE, OpKind.INJECTIVE):
        return None
    if isinstance(node.op, Expr) or node.op.compute is None:
        return None
    hosts: list[Group] = []
    for user in users:
        for host in owner[id(user)]:
            if host.is_concatenation or not _may_load(node, user, host, anchors):
                return None
            hosts.append(host)
    return hosts


def is_run(node: Call) -> bool:
    """Whether a slice is one run of its argument's elements: a part of memory, which need not be computed.

    What reads it is the same kernel whichever part it is, as in the steps of a recurrent layer, and what it is a part
    of is not moved for it. Images lie in memory in another order.
    """
    if node.op_name != "strided_slice" or node.tensor_type.rank == 4:
        return False
    whole, part = node.args[0].tensor_type.static_shape, node.tensor_type.static_shape
    _, steps = slice_starts(node)
    first = next((axis for axis, extent in enumerate(part) if extent != 1), len(part))
    return set(steps) == {1} and whole[first + 1 :] == part[first + 1 :]


def _may_load(node: Call, user: Call, host: Group, anchors: Mapping[str, str]) -> bool:
    if is_run(user) and user is host.root and _is_free(node):
        return False
    if user is host.anchor:
        loads = anchors[user.op_name]
        return loads == "arithmetic" or (loads == "place" and _is_free(node))
    if host.anchor is not None and not _is_free(node):
        return False
    return _is_free(node) or _reads_once(node, user)


def _is_free(node: Call) -> bool:
    """Whether reading through `node` costs no arithmetic: it only says where an element comes from."""
    if isinstance(node.op, Expr) or not node.op.reads_once:
        return False
    return node.op.kind is OpKind.INJECTIVE and len(arguments(node)) == 1


def _reads_once(node: Call, user: Call) -> bool:
    """Whether `user` reads each element of `node` about once."""
    if isinstance(user.op, Expr) or not user.op.reads_once:
        return False
    found, result = node.checked_type, user.checked_type
    if not isinstance(found, TensorType) or not isinstance(result, TensorType):
        return False
    return result.num_elements <= found.num_elements


def _kind(node: Call) -> OpKind:
    return OpKind.OPAQUE if isinstance(node.op, Expr) else node.op.kind
