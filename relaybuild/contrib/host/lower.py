"""Turns groups into kernels over placed values; knows templates only through anchors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

from relaybuild.contrib.host.anchor import Anchor, Buffer, Halo, Loaded, Need, Packed, Setting, Site, all_anchors
from relaybuild.contrib.host.fuse import Group, fuse
from relaybuild.contrib.host.kernel_code import KernelCode, Kernels
from relaybuild.contrib.host.place import (
    ALIASES,
    Placement,
    Ports,
    Storage,
    View,
    alias_of,
    external_inputs,
    is_own,
    part_of,
    place,
    row_major_view,
    slice_of,
    tensor_bytes,
)
from relaybuild.contrib.host.values import Values, analyse, argument_types, arguments, is_scalar_constant
from relaybuild.contrib.host.weights import WeightTable
from relaybuild.contrib.host.workload import copy_workload, group_workload
from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.errors import InternalError, UnsupportedError
from relaybuild.ir.expr import Call, Constant, Expr, Function
from relaybuild.ir.scalar import ComputeCall
from relaybuild.ir.types import TensorType
from relaybuild.lower.index import Axis, Index, IndexLike
from relaybuild.lower.layout import BLOCK, Layout
from relaybuild.lower.loop_ir import Kernel
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr
from relaybuild.lower.templates.body import Body, Operand, stray_reads
from relaybuild.lower.templates.map import copy_channels_kernel, map_kernel


@dataclass(frozen=True)
class Step:
    """One kernel run: what it reads and writes, and the model's nodes it serves (`copies`: it computes nothing)."""

    kernel: KernelCode
    reads: tuple[View, ...]
    write: View
    nodes: tuple[str, ...]
    copies: bool
    flops: int


@dataclass
class Lowered:
    """A function as steps in order, its weights, and the storages of its arena."""

    steps: list[Step]
    weights: WeightTable
    arena: list[Storage] = field(default_factory=list)


def lower_function(
    function: Function,
    setting: Setting,
    *,
    fusion: bool = True,
    ports: Ports | None = None,
    weights: WeightTable | None = None,
    kernels: Kernels | None = None,
) -> Lowered:
    """The steps of a legalized first-order dataflow function.

    `ports` says where its parameters and results lie, by default in the caller's tensors; `weights` is the table to
    which its weights are added, by default a new one, and `kernels` knows those that were made before. Raises
    UnsupportedError that lists every operator without a kernel, with the nodes it comes from.
    """
    values = analyse(function)
    anchors = all_anchors()
    _check_supported(values, anchors)
    needs = {
        id(node): anchors[node.op_name].needs(node, [id(value) in values.weights for value in arguments(node)], setting)
        for node in values.nodes
        if node.op_name in anchors
    }
    groups = fuse(values, {name: anchor.loads for name, anchor in anchors.items()}, enabled=fusion)
    where = ports or _caller_ports(function, values)
    placement = place(values, groups, anchors, needs, where.outputs)
    lowering = _Lowering(
        values,
        anchors,
        needs,
        placement,
        setting,
        where,
        WeightTable() if weights is None else weights,
        Kernels() if kernels is None else kernels,
    )
    lowering.views.update((id(param), view) for param, view in zip(function.params, where.inputs))
    lowering.add_groups(groups)
    lowering.add_outputs()
    return Lowered(lowering.steps, lowering.weights, lowering.arena())


def _caller_ports(function: Function, values: Values) -> Ports:
    """The caller's tensors."""
    params = [param.tensor_type for param in function.params]
    results = [output.tensor_type for output in values.outputs]
    return Ports(
        tuple(row_major_view(Storage("input", tensor_bytes(kind), n), kind) for n, kind in enumerate(params)),
        tuple(Storage("output", tensor_bytes(kind), number) for number, kind in enumerate(results)),
    )


def _check_supported(values: Values, anchors: Mapping[str, Anchor]) -> None:
    missing: dict[str, list[str]] = {}
    for node in values.nodes:
        known = node.op_name in anchors
        if not known and (isinstance(node.op, Expr) or node.op.compute is None):
            missing.setdefault(node.op_name or "call of a function", []).append(_node_name(node))
    if missing:
        listed = "; ".join(
            f"'{name}' ({len(nodes)}: {', '.join(nodes[:3])}{', …' if len(nodes) > 3 else ''})"
            for name, nodes in sorted(missing.items())
        )
        sources = [node.span.source for node in values.nodes if node.span is not None]
        raise UnsupportedError(f"the host backend has no kernel for {listed}", where=next(iter(sources), None))


def _node_name(node: Expr) -> str:
    return (node.span.name if node.span else "") or "unnamed"


class _Lowering:
    """The state of lowering one function."""

    def __init__(
        self,
        values: Values,
        anchors: Mapping[str, Anchor],
        needs: dict[int, tuple[Need, ...]],
        placement: Placement,
        setting: Setting,
        ports: Ports,
        weights: WeightTable,
        kernels: Kernels,
    ) -> None:
        self.values = values
        self.anchors = anchors
        self.needs = needs
        self.placement = placement
        self.setting = setting
        self.machine = setting.machine
        self.ports = ports
        self.weights = weights
        self.kernels = kernels
        self.steps: list[Step] = []
        self.views: dict[int, View] = {}
        self._copies: dict[tuple[int, int, Halo], View] = {}

    def add_group(self, group: Group) -> None:
        """Lower one group, or find that its value lies in its argument's memory already, or has no elements."""
        if group.root.tensor_type.num_elements == 0:
            self.views[id(group.root)] = self.placement.views[id(group.root)]
        elif group.is_concatenation:
            self._concatenate(group)
        elif not self._alias(group):
            view = self.placement.views[id(group.root)]
            self.views[id(group.root)] = view
            if group.anchor is None:
                self._map(group, view)
            else:
                self._anchor(group, group.anchor, view)

    def add_groups(self, groups: Sequence[Group]) -> None:
        """Lower groups in order; an error that does not say where names the node."""
        for group in groups:
            try:
                self.add_group(group)
            except UnsupportedError as error:
                error.where = error.where or (str(group.root.span) if group.root.span else None)
                raise

    def view(self, value: Expr) -> View:
        """Where a value lies; a weight gets a slot at its first use."""
        if id(value) in self.views:
            return self.views[id(value)]
        if id(value) not in self.values.weights:
            raise InternalError(f"no kernel computes the value of node '{_node_name(value)}'")
        return self.weights.view(value)

    def _alias(self, group: Group) -> bool:
        root = group.root
        if group.anchor is not None or len(group.nodes) != 1 or root.op_name not in ALIASES:
            return False
        wanted = self.placement.views[id(root)]
        if wanted.storage in self.ports.outputs or id(root) in self.placement.parts:
            return False
        source = self.view(arguments(root)[0])
        layout = alias_of(root, source.layout)
        if layout is None or layout.block < wanted.layout.block or not _covers(layout.halo, wanted.layout.halo):
            return False
        self.views[id(root)] = part_of(source, layout)
        return True

    def _concatenate(self, group: Group) -> None:
        """Copy the parts that were not written in place."""
        root = group.root
        view = self.placement.views[id(root)]
        self.views[id(root)] = view
        axis = int(getattr(root.attrs, "axis", 0)) % root.tensor_type.rank
        begin = 0
        for number, part in enumerate(arguments(root)):
            extent = part.tensor_type.static_shape[axis]
            layout = slice_of(view.layout, axis, begin, extent)
            if layout is None and not (view.layout.block > 1 and axis == 1):
                self._map(group, view)
                return
            if (id(root), number) not in self.placement.in_place:
                if layout is not None:
                    self._copy(part, part_of(view, layout), root)
                else:
                    self._copy_channels(part, view, begin, root)
            begin += extent

    def _copy_channels(self, part: Expr, view: View, begin: int, reason: Expr) -> None:
        source = self._converted(part, Buffer("blocked"))
        place, workload = _node_name(reason), copy_workload("channels", self.setting, source, view, begin)
        kernel = self.kernels.code(
            place, workload, lambda: copy_channels_kernel(_copy_body(source, view), begin, self.machine)
        )
        self.steps.append(Step(kernel, (source,), view, (place,), True, 0))

    def add_outputs(self) -> None:
        """Copy the outputs that do not lie in their places yet."""
        for output, storage in zip(self.values.outputs, self.ports.outputs):
            view = self.view(output)
            if view.storage is not storage or not view.layout.is_dense:
                self._copy(output, row_major_view(storage, output.tensor_type), output)

    def _copy(self, value: Expr, target: View, reason: Expr) -> None:
        if value.tensor_type.num_elements == 0:
            return
        source = self.view(value)
        place, workload = _node_name(reason), copy_workload("copy", self.setting, source, target)
        kernel = self.kernels.code(place, workload, lambda: map_kernel(_copy_body(source, target), self.machine))
        self.steps.append(Step(kernel, (source,), target, (place,), True, 0))

    def _converted(self, value: Expr, need: Buffer) -> View:
        """The value in the layout needed: where it lies, or a copy that all who need it share."""
        view = self.view(value)
        fits = need.layout == "any" or (view.layout.block > 1) == (need.layout == "blocked")
        if fits and _covers(view.layout.halo, need.halo):
            return view
        blocked = need.layout == "blocked"
        key = (id(value), int(blocked), need.halo)
        if key not in self._copies:
            shape = value.tensor_type.static_shape
            layout = Layout.blocked(shape, need.halo) if blocked else Layout.row_major(shape, need.halo)
            target = View(Storage("arena", layout.size * value.tensor_type.itemsize), layout, view.dtype)
            self._copy(value, target, value)
            self._copies[key] = target
        return self._copies[key]

    def _map(self, group: Group, view: View) -> None:
        reads: list[View] = []
        numbers: dict[int, int] = {}
        self._read_externals(group, reads, numbers)
        body = _map_body(group, numbers, reads, view)
        workload = group_workload(group, self.setting, numbers, reads, view)
        self._finish(group, workload, lambda: map_kernel(body, self.machine), reads, view, copies=_only_moves(group))

    def _read_externals(self, group: Group, reads: list[View], numbers: dict[int, int]) -> None:
        for value in external_inputs(group):
            if id(value) not in numbers and not is_scalar_constant(value):
                numbers[id(value)] = len(reads)
                reads.append(self.view(value))

    def _lane_safe(self, body: Body, values: dict[int, Expr], reads: list[View]) -> list[View]:
        """The views an epilogue reads, with copies of those that pad lanes would read beyond their memory.

        `values` are the epilogue's values by operand number.
        """
        layout = body.output.layout
        if not layout.has_pad_lanes:
            return reads
        lane = Axis("lane", layout.block - 1)
        image, block, row, column = (
            Index.of(Axis(name, extent - 1))
            for name, extent in zip("nbyx", (layout.shape[0], layout.num_blocks, *layout.shape[2:]))
        )
        index = [image, block * layout.block + Index.of(lane), row, column]
        safe = list(reads)
        for number, step in stray_reads(body, index, lane, anchored=True).items():
            value = values[number]
            source = reads[number].layout
            same = source.shape == layout.shape and step == source.strides[1]
            safe[number] = self._converted(value, Buffer("blocked")) if same else self._surrounded(value, step)
        return safe

    def _surrounded(self, value: Expr, step: int | None) -> View:
        """A copy of a value with room for 15 more steps before and behind it, one way where the step is known."""
        dense = Layout.row_major(value.tensor_type.static_shape)
        before = after = (BLOCK - 1) * max((1, *dense.strides))
        if step is not None:
            before, after = (BLOCK - 1) * max(0, -step), (BLOCK - 1) * max(0, step)
        size = before + dense.size + after
        layout = replace(dense, offset=before, size=size)
        target = View(Storage("arena", size * value.tensor_type.itemsize), layout, value.tensor_type.dtype)
        self._copy(value, target, value)
        return target

    def _anchor(self, group: Group, anchor: Call, view: View) -> None:
        reads: list[View] = []
        numbers: dict[int, int] = {}
        operands: list[Operand | None] = []
        for value, need in zip(arguments(anchor), self.needs[id(anchor)]):
            if isinstance(need, Loaded):
                operands.append(None)
                continue
            found = self.weights.view(value, need) if isinstance(need, Packed) else self._converted(value, need)
            operands.append(Operand(found.layout, found.dtype))
            reads.append(found)
        self._read_externals(_without_anchor_buffers(group, anchor, self.needs[id(anchor)]), reads, numbers)

        def body_of(reads: list[View]) -> Body:
            rule = _Rule(group, numbers, reads)
            out = Operand(view.layout, view.dtype)
            return Body(_title(group), _operands(reads), out, rule, anchor.tensor_type.dtype)

        values = {numbers[id(value)]: value for value in external_inputs(group) if id(value) in numbers}
        reads = self._lane_safe(body_of(reads), values, reads)
        rule = _Rule(group, numbers, reads)
        body = body_of(reads)

        def element(scalars: ScalarBuilder, number: int, index: Sequence[IndexLike]) -> ScalarExpr:
            return rule.element(scalars, arguments(anchor)[number], index)

        site = Site(anchor, body, tuple(operands), element, self.setting)
        lower = self.anchors[anchor.op_name].lower
        workload = group_workload(group, self.setting, numbers, reads, view, self.needs[id(anchor)])
        self._finish(group, workload, lambda: lower(site), reads, view, copies=False)

    def _finish(
        self,
        group: Group,
        workload: Digest,
        lower: Callable[[], Kernel],
        reads: list[View],
        view: View,
        *,
        copies: bool,
    ) -> None:
        names = tuple(dict.fromkeys(_node_name(node) for node in reversed(group.nodes)))
        kernel = self.kernels.code(", ".join(names), workload, lower)
        self.steps.append(Step(kernel, tuple(reads), view, names, copies, _flops(group)))

    def arena(self) -> list[Storage]:
        """The storages of the arena, in order of first use."""
        found: dict[int, Storage] = {}
        for step in self.steps:
            for view in (*step.reads, step.write):
                if view.storage.kind == "arena":
                    found.setdefault(id(view.storage), view.storage)
        return list(found.values())


def _covers(have: Halo, want: Halo) -> bool:
    return all(a >= b for a, b in zip(have, want))


def _operands(reads: Sequence[View]) -> tuple[Operand, ...]:
    return tuple(Operand(view.layout, view.dtype, is_own(view)) for view in reads)


def _copy_body(source: View, target: View) -> Body:
    """A body that stores what it reads."""

    def rule(scalars: ScalarBuilder, index: Sequence[IndexLike], anchor: ScalarExpr | None) -> ScalarExpr:
        return scalars.load(0, source.layout.address(index), source.dtype)

    return Body("copy", _operands((source,)), Operand(target.layout, target.dtype), rule)


def _map_body(group: Group, numbers: Mapping[int, int], reads: Sequence[View], view: View) -> Body:
    """The body of a map; what it has staged is read from rows in scratch memory."""
    inputs, out = _operands(reads), Operand(view.layout, view.dtype)
    staged = group.staged
    if staged is None:
        return Body(_title(group), inputs, out, _Rule(group, numbers, reads))
    layout = _rows_layout(staged, view.layout.block)
    rows = View(Storage("scratch", 0), layout, staged.tensor_type.dtype)
    stage = Body("", inputs, Operand(layout, rows.dtype), _Rule(group, numbers, reads, staged), target="rows")
    rule = _Rule(group, {**numbers, id(staged): len(reads)}, [*reads, rows])
    return Body(_title(group), inputs, out, rule, stage=stage)


def _rows_layout(value: Call, block: int) -> Layout:
    """Rows of one plane of a value, of a channel block where `block` is more than 1."""
    shape = value.tensor_type.static_shape
    pitch = -(-shape[-1] // BLOCK) * BLOCK * block
    return Layout(shape, (*(0 for _ in shape[2:]), pitch, block), 0, block)


def _without_anchor_buffers(group: Group, anchor: Call, needs: Sequence[Need]) -> Group:
    """The group without the anchor's arguments that the template reads itself."""
    own = [value for value, need in zip(arguments(anchor), needs) if not isinstance(need, Loaded)]
    read_elsewhere = {id(value) for node in group.nodes if node is not anchor for value in arguments(node)}
    hidden = {id(value) for value in own if id(value) not in read_elsewhere}
    return Group(group.root, group.anchor, group.members | hidden, group.nodes)


def _title(group: Group) -> str:
    """The operators computed, in order."""
    names = [node.op_name for node in (reversed(group.nodes) if group.anchor is None else group.nodes)]
    return ", ".join(names)


def _only_moves(group: Group) -> bool:
    """Whether a map only puts elements elsewhere."""
    return all(not isinstance(n.op, Expr) and n.op.kind.value == "injective" and n.op.reads_once for n in group.nodes)


def _flops(group: Group) -> int:
    """An estimate of the arithmetic of a group, which decides whether threads are worth waking."""
    total = group.root.tensor_type.num_elements * len(group.nodes)
    anchor = group.anchor
    if anchor is not None and len(anchor.args) > 1:
        weight = anchor.args[1].tensor_type
        out = anchor.tensor_type
        depth = weight.num_elements // max(1, weight.static_shape[0])
        total += 2 * out.num_elements * depth
    elif anchor is not None:
        total += sum(argument.tensor_type.num_elements for argument in arguments(anchor))
    return total


class _Rule:
    """The expression of one element of a group's root, or of another of its nodes, as `Body.rule`.

    `numbers` gives the operand of each value that is read, by its id; what is there is not computed.
    """

    def __init__(
        self, group: Group, numbers: Mapping[int, int], reads: Sequence[View], root: Call | None = None
    ) -> None:
        self._group = group
        self._root = root or group.root
        self._numbers = numbers
        self._reads = tuple(reads)

    def __call__(self, scalars: ScalarBuilder, index: Sequence[IndexLike], anchor: ScalarExpr | None) -> ScalarExpr:
        return self.element(scalars, self._root, index, anchor)

    def element(
        self,
        scalars: ScalarBuilder,
        expr: Expr,
        index: Sequence[IndexLike],
        anchor: ScalarExpr | None = None,
        known: dict[tuple[object, ...], ScalarExpr] | None = None,
    ) -> ScalarExpr:
        """The element of `expr` at `index`: loaded, or computed from elements of its arguments."""
        memo = {} if known is None else known
        position = tuple(Index.of(part) for part in index)
        key = (id(expr), position)
        if key not in memo:
            memo[key] = self._element(scalars, expr, position, anchor, memo)
        return memo[key]

    def _element(
        self,
        scalars: ScalarBuilder,
        expr: Expr,
        index: Sequence[Index],
        anchor: ScalarExpr | None,
        memo: dict[tuple[object, ...], ScalarExpr],
    ) -> ScalarExpr:
        if expr is self._group.anchor and anchor is not None:
            return anchor
        inside = id(expr) in self._group.members and id(expr) not in self._numbers
        if inside and isinstance(expr, Call) and not isinstance(expr.op, Expr):
            return self._compute(scalars, expr, index, anchor, memo)
        if is_scalar_constant(expr):
            assert isinstance(expr, Constant)
            return scalars.const(expr.data.reshape(()).item(), expr.dtype)
        view = self._reads[self._numbers[id(expr)]]
        return scalars.load(self._numbers[id(expr)], view.layout.address(index), view.dtype)

    def _compute(
        self,
        scalars: ScalarBuilder,
        call: Call,
        index: Sequence[Index],
        anchor: ScalarExpr | None,
        memo: dict[tuple[object, ...], ScalarExpr],
    ) -> ScalarExpr:
        def accessor(argument: Expr) -> object:
            return lambda at: self.element(scalars, argument, at, anchor, memo)

        assert not isinstance(call.op, Expr)
        assert call.op.compute is not None
        accessors = [accessor(argument) for argument in arguments(call)]
        out = call.checked_type
        assert isinstance(out, TensorType)
        result = call.op.compute(scalars, accessors, list(index), ComputeCall(argument_types(call), out, call.attrs))  # type: ignore[arg-type]
        assert isinstance(result, ScalarExpr)
        return result
