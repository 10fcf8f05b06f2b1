"""What a kernel is made from, as a digest that no name enters: equal workloads have equal kernels; lowers nothing.

Of the nodes that a kernel computes count operators, attributes, types and how they are connected; of what it reads and
writes, types, layouts and whether memory may be shared.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from relaybuild.contrib.host.anchor import Need, Setting
from relaybuild.contrib.host.fuse import Group
from relaybuild.contrib.host.place import View, is_own
from relaybuild.contrib.host.values import arguments, is_scalar_constant
from relaybuild.digest import Digest, Hasher, Value
from relaybuild.ir.expr import Call, Constant, Expr
from relaybuild.ir.printer import type_text
from relaybuild.ir.structural import attr_value

_VERSION = "workload.2"


def copy_workload(kind: str, setting: Setting, source: View, target: View, *numbers: int) -> Digest:
    """The workload of a kernel that only moves what it reads."""
    hasher = _hasher(kind, setting).field("reads", _views((source,))).field("write", _views((target,)))
    return hasher.field("numbers", numbers).digest()


def group_workload(
    group: Group,
    setting: Setting,
    numbers: Mapping[int, int],
    reads: Sequence[View],
    view: View,
    needs: Sequence[Need] = (),
) -> Digest:
    """The workload of a group that stores to `view`; `numbers` gives by id which of `reads` a value is, and `needs` how
    the anchor reads its arguments."""
    hasher = _hasher("group", setting).field("reads", _views(reads)).field("write", _views((view,)))
    hasher.field("needs", tuple(map(_plain, needs)))
    position = {id(node): number for number, node in enumerate(group.nodes)}
    for node in group.nodes:
        hasher.field("node", _node(node, group, position, numbers))
    return hasher.digest()


def _hasher(kind: str, setting: Setting) -> Hasher:
    return Hasher(_VERSION).field("kind", kind).field("setting", _of_setting(setting))


@functools.cache
def _of_setting(setting: Setting) -> Digest:
    return Hasher("setting.1").field("fields", _plain(setting)).digest()


def _node(node: Call, group: Group, position: Mapping[int, int], numbers: Mapping[int, int]) -> Value:
    marks = (node is group.anchor, node is group.root, node is group.staged)
    attrs = tuple((name, attr_value(value)) for name, value in node.attrs.items()) if node.attrs else ()
    args = tuple(_argument(arg, position, numbers) for arg in arguments(node))
    return (node.op_name, marks, type_text(node.checked_type), attrs, args)


def _argument(arg: Expr, position: Mapping[int, int], numbers: Mapping[int, int]) -> Value:
    kind = type_text(arg.checked_type)
    if id(arg) in numbers:
        return ("read", numbers[id(arg)], kind)
    if isinstance(arg, Constant) and is_scalar_constant(arg):
        return ("scalar", arg.array.tobytes(), kind)
    return ("node", position[id(arg)], kind) if id(arg) in position else ("operand", kind)


def _views(views: Sequence[View]) -> Value:
    return tuple((_plain(view.layout), view.dtype, is_own(view)) for view in views)


def _plain(value: Any) -> Value:
    """A value of the host's own as tuples: records by their fields."""
    if is_dataclass(value) and not isinstance(value, type):
        return (type(value).__name__, *((item.name, _plain(getattr(value, item.name))) for item in fields(value)))
    if isinstance(value, Mapping):
        return tuple((str(name), _plain(value[name])) for name in sorted(value))
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    assert value is None or isinstance(value, (bool, int, float, str))
    return value
