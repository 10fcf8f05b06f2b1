"""Decides where each value lies: channel blocks or rows, halo, and which storage; knows nothing of kernels' code.

A value that a concatenation joins is written in place where its slice allows it. Needs flow from users to producers;
layouts are then fixed from producers to users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from relaybuild.contrib.host.anchor import Anchor, Buffer, Halo
from relaybuild.contrib.host.fuse import Group
from relaybuild.contrib.host.values import Values, arguments, slice_starts
from relaybuild.dataclass import dataclass
from relaybuild.ir.expr import Call, Expr, Var
from relaybuild.ir.types import TensorType
from relaybuild.lower.layout import BLOCK, NO_HALO, Layout


@dataclass(eq=False)
class Storage:
    """A piece of memory: of the `arena`, or `input`, `output` or `weight` number `number`; compared by identity."""

    kind: str
    num_bytes: int
    number: int = 0
    offset: int = 0


@dataclass(frozen=True)
class View:
    """A value in memory; what `layout` says is counted from `start` elements behind the storage's beginning on."""

    storage: Storage
    layout: Layout
    dtype: str
    start: int = 0


def part_of(whole: View, layout: Layout) -> View:
    """The value that lies in `layout` within the memory of another one.

    It begins where its first element lies, so that a kernel is the same whichever part it reads or writes.
    """
    begin, end = layout.reach()
    own = replace(layout, offset=layout.offset - begin, size=max(end - begin, 0))
    return View(whole.storage, own, whole.dtype, whole.start + begin)


def is_own(view: View) -> bool:
    """Whether a value lies in memory of the program, which no other value of a kernel shares."""
    return view.storage.kind in ("arena", "weight")


@dataclass(frozen=True)
class Ports:
    """Where a function finds its parameters and puts its results, in order; results lie there row-major."""

    inputs: tuple[View, ...]
    outputs: tuple[Storage, ...]


def row_major_view(storage: Storage, kind: TensorType) -> View:
    """A value that fills a storage row by row."""
    return View(storage, Layout.row_major(kind.static_shape), kind.dtype)


def tensor_bytes(kind: TensorType) -> int:
    """The bytes of a row-major tensor's elements."""
    return kind.num_elements * kind.itemsize


@dataclass
class _Wish:
    """What users of a value want: channel blocks, rows, and how much halo."""

    blocked: bool = False
    halo: Halo = NO_HALO

    def widen(self, halo: Halo) -> None:
        self.halo = (
            max(self.halo[0], halo[0]),
            max(self.halo[1], halo[1]),
            max(self.halo[2], halo[2]),
            max(self.halo[3], halo[3]),
        )


@dataclass
class Placement:
    """Views of group roots by id of the root, and the inputs of concatenations that are written in place."""

    views: dict[int, View] = field(default_factory=dict)
    in_place: set[tuple[int, int]] = field(default_factory=set)
    """(id of the concatenation, number of the input)."""
    parts: set[int] = field(default_factory=set)
    """The ids of these inputs, whose own kernels must write them."""


def itemsize(expr: Expr) -> int:
    """Bytes of an element."""
    return expr.tensor_type.itemsize


def place(
    values: Values,
    groups: Sequence[Group],
    anchors: Mapping[str, Anchor],
    needs: Mapping[int, Sequence[object]],
    outputs: Sequence[Storage],
) -> Placement:
    """Fix the view of each group's root.

    `needs` gives the needs of each anchor call, by its id, `outputs` the places of the results.
    """
    wishes: dict[int, _Wish] = {}
    for group in reversed(groups):
        _wish(group, values, wishes, needs)
    placement = Placement()
    layouts = _layouts(values, groups, anchors, wishes)
    roots = {id(group.root): group for group in groups}
    for group in reversed(groups):
        _store(group, values, roots, layouts, placement, outputs)
    return placement


def external_inputs(group: Group) -> list[Expr]:
    """The values that a group reads from memory, each once, in order of use."""
    found: dict[int, Expr] = {}
    for node in sorted(group.nodes, key=lambda node: node is not group.anchor):
        for argument in arguments(node):
            if id(argument) not in group.members:
                found.setdefault(id(argument), argument)
    return list(found.values())


def _wish(group: Group, values: Values, wishes: dict[int, _Wish], needs: Mapping[int, Sequence[object]]) -> None:
    root_wish = wishes.get(id(group.root), _Wish())
    if group.anchor is not None:
        for argument, need in zip(arguments(group.anchor), needs[id(group.anchor)]):
            if isinstance(need, Buffer):
                wish = wishes.setdefault(id(argument), _Wish())
                wish.blocked |= need.layout == "blocked"
                wish.widen(need.halo)
    blocks = _is_image(group.root) and (root_wish.blocked or _anchors_blocked(group, needs))
    for value in external_inputs(group) if blocks else ():
        if _is_image(value) and id(value) not in values.weights:
            wishes.setdefault(id(value), _Wish()).blocked = True
    if group.anchor is None and group.root.op_name in ("concatenate", "strided_slice") and blocks:
        for value in external_inputs(group):
            wishes.setdefault(id(value), _Wish()).widen(root_wish.halo)


def _anchors_blocked(group: Group, needs: Mapping[int, Sequence[object]]) -> bool:
    if group.anchor is None:
        return False
    return any(isinstance(need, Buffer) and need.layout == "blocked" for need in needs[id(group.anchor)])


def _is_image(expr: Expr) -> bool:
    found = expr.tensor_type
    return found.rank == 4 and found.dtype == "float32"


def _layouts(
    values: Values, groups: Sequence[Group], anchors: Mapping[str, Anchor], wishes: Mapping[int, _Wish]
) -> dict[int, Layout]:
    layouts: dict[int, Layout] = {}
    for group in groups:
        root = group.root
        wish = wishes.get(id(root), _Wish())
        shape = root.tensor_type.static_shape
        if group.anchor is None:
            blocked, writes_halo = _is_image(root) and _prefers_blocks(group, values, wish, layouts), True
        else:
            anchor = anchors[group.anchor.op_name]
            blocked, writes_halo = anchor.blocked(group.anchor), anchor.writes_halo
        wanted = _concatenated_halo(group, wish, wishes) if blocked else wish.halo
        halo = wanted if writes_halo else NO_HALO
        layouts[id(root)] = Layout.blocked(shape, halo) if blocked else Layout.row_major(shape, halo)
    return layouts


def _concatenated_halo(group: Group, wish: _Wish, wishes: Mapping[int, _Wish]) -> Halo:
    """A concatenation has the halo that users of its parts want, so that the parts can be written in place."""
    if not group.is_concatenation:
        return wish.halo
    whole = replace(wish)
    for part in arguments(group.root):
        whole.widen(wishes.get(id(part), _Wish()).halo)
    return whole.halo


def _prefers_blocks(group: Group, values: Values, wish: _Wish, layouts: Mapping[int, Layout]) -> bool:
    if wish.blocked:
        return True
    if values.is_output(group.root):
        return False
    shape = group.root.tensor_type.static_shape
    known = [layouts[id(value)] for value in external_inputs(group) if id(value) in layouts]
    return any(layout.block > 1 and (layout.shape[0], *layout.shape[2:]) == (shape[0], *shape[2:]) for layout in known)


def _store(
    group: Group,
    values: Values,
    roots: Mapping[int, Group],
    layouts: Mapping[int, Layout],
    placement: Placement,
    outputs: Sequence[Storage],
) -> None:
    """Give the root storage of its own unless it has a slice; give slices to the parts of a concatenation."""
    root = group.root
    if id(root) not in placement.views:
        layout = layouts[id(root)]
        storage = _own_storage(root, layout, values, outputs)
        placement.views[id(root)] = View(storage, layout, root.tensor_type.dtype)
    if not group.is_concatenation:
        return
    view = placement.views[id(root)]
    axis = int(getattr(root.attrs, "axis", 0)) % root.tensor_type.rank
    begin = 0
    for number, part in enumerate(arguments(root)):
        extent = part.tensor_type.static_shape[axis]
        sliced = slice_of(view.layout, axis, begin, extent)
        if sliced is not None and _may_write_in_place(part, number, group, values, roots, layouts, placement, sliced):
            placement.views[id(part)] = part_of(view, sliced)
            placement.in_place.add((id(root), number))
            placement.parts.add(id(part))
        begin += extent


def slice_of(layout: Layout, axis: int, begin: int, extent: int) -> Layout | None:
    """The view of `extent` positions along `axis`, or None where a channel block would be split."""
    if layout.block > 1:
        return layout.channel_slice(begin, extent) if axis == 1 else None
    if layout.halo != NO_HALO:
        return None
    begins = [begin if dimension == axis else 0 for dimension in range(len(layout.shape))]
    shape = [extent if dimension == axis else whole for dimension, whole in enumerate(layout.shape)]
    return layout.slice_view(begins, [1] * len(shape), shape)


def _own_storage(root: Call, layout: Layout, values: Values, outputs: Sequence[Storage]) -> Storage:
    if layout.block == 1 and layout.halo == NO_HALO:
        for number, output in enumerate(values.outputs):
            if output is root:
                return outputs[number]
    return Storage("arena", layout.size * itemsize(root))


def _may_write_in_place(
    part: Expr,
    number: int,
    group: Group,
    values: Values,
    roots: Mapping[int, Group],
    layouts: Mapping[int, Layout],
    placement: Placement,
    sliced: Layout,
) -> bool:
    """Whether the part's own kernel can write into the concatenation: computed, once, in the same kind of layout."""
    if id(part) not in roots or id(part) in placement.views or isinstance(part, Var) or values.is_output(part):
        return False
    if any(other is part for other in arguments(group.root)[:number]):
        return False
    own = layouts[id(part)]
    fits = own.block == sliced.block and all(have >= want for have, want in zip(sliced.halo, own.halo))
    return fits and not _may_be_alias(roots[id(part)], layouts)


def _may_be_alias(group: Group, layouts: Mapping[int, Layout]) -> bool:
    """Whether the group may turn out to be a view of its input, which has a place already."""
    if group.anchor is not None or len(group.nodes) != 1 or group.root.op_name not in ALIASES:
        return False
    source = arguments(group.root)[0]
    known = layouts.get(id(source))
    return known is None or alias_of(group.root, known) is not None


ALIASES = frozenset({"reshape", "squeeze", "expand_dims", "nn.batch_flatten", "strided_slice", "transpose"})
"""Operators whose result may be a view of their argument."""


def alias_of(root: Call, layout: Layout) -> Layout | None:
    """The layout in which the result of `root` lies where its argument lies in `layout`, or None."""
    shape = root.tensor_type.static_shape
    if root.op_name == "strided_slice":
        return _sliced(root, layout)
    if root.op_name == "transpose":
        return _transposed(root, layout)
    return _reshaped(shape, layout)


def _reshaped(shape: Sequence[int], layout: Layout) -> Layout | None:
    if layout.block > 1:
        return _unblocked(shape, layout)
    if not layout.is_dense:
        return None
    dense = Layout.row_major(shape)
    return replace(dense, offset=layout.offset, size=layout.size)


def _unblocked(shape: Sequence[int], layout: Layout) -> Layout | None:
    """(N, C, 1, 1) in blocks without a halo is (N, C) with rows padded to whole blocks."""
    batch, channels, height, width = layout.shape
    if (height, width) != (1, 1) or layout.halo != NO_HALO or layout.strides[1] != BLOCK:
        return None
    rest = [extent for extent in shape if extent != 1]
    if rest != [extent for extent in (batch, channels) if extent != 1]:
        return None
    strides = []
    remaining = [stride for extent, stride in ((batch, layout.strides[0]), (channels, 1)) if extent != 1]
    for extent in shape:
        strides.append(remaining.pop(0) if extent != 1 else 0)
    return Layout(tuple(shape), tuple(strides), layout.offset, 1, NO_HALO, layout.size)


def _sliced(root: Call, layout: Layout) -> Layout | None:
    data = root.args[0].tensor_type.static_shape
    begins, steps = slice_starts(root)
    out = root.tensor_type.static_shape
    if any(step < 1 for step in steps):
        return None
    if layout.block == 1:
        return layout.slice_view(begins, steps, out) if layout.halo == NO_HALO else None
    others = [d for d in range(4) if d != 1]
    if steps[1] != 1 or any(begins[d] or out[d] != data[d] for d in others):
        return None
    return layout.channel_slice(begins[1], out[1])


def _transposed(root: Call, layout: Layout) -> Layout | None:
    if layout.block > 1 or layout.halo != NO_HALO:
        return None
    rank = len(layout.shape)
    axes = [axis % rank for axis in (getattr(root.attrs, "axes", None) or range(rank - 1, -1, -1))]
    shape = tuple(layout.shape[axis] for axis in axes)
    return replace(layout, shape=shape, strides=tuple(layout.strides[axis] for axis in axes))
