"""Loads and weights that follow from the position along one axis alone, by tables; knows nothing of what they mean.

A resized image reads, in each row, the same columns with the same weights. Both are worked out when the kernel is made:
a vector loads the columns from the first that it needs, and a permutation brings them into order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from relaybuild.lower.emit import c_literal, is_vectorizable
from relaybuild.lower.index import Atom, Axis, Index, IndexLike, Opaque, Quotient, Remainder
from relaybuild.lower.loop_ir import Builder, Let
from relaybuild.lower.machine import Machine
from relaybuild.lower.scalar import ScalarBuilder, ScalarExpr, indices_of, walk
from relaybuild.lower.templates.body import Body, store

MOST_ELEMENTS = 8192
"""Of an axis that has tables: they are text in a kernel."""

Place = Callable[[Index], Sequence[IndexLike]]
"""The logical index of a position along the axis."""

_BINARY: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": max,
    "min": min,
}
_UNARY: dict[str, Callable[[float], float]] = {"abs": abs, "neg": lambda a: -a}


class Tables:
    """The values of one kernel that follow from the position along an axis of `extent` positions alone.

    The vectors along the axis begin at multiples of `lanes`, but the last one ends where the axis ends.
    """

    def __init__(self, builder: Builder, body: Body, machine: Machine, extent: int) -> None:
        self._builder = builder
        self._body = body
        self._lanes = machine.lanes
        self._extent = extent
        self._axis = Axis("column", extent - 1)
        self._names: dict[tuple[str, tuple[str, ...]], str] = {}
        self._starts = [min(start, extent - machine.lanes) for start in range(0, extent, machine.lanes)]

    def serve(self, place: Place) -> bool:
        """Whether something is not a load of neighbours or of one element, and all has vector form by tables."""
        if self._lanes == 1 or not self._lanes <= self._extent <= MOST_ELEMENTS:
            return False
        index = place(Index.of(self._axis))
        if self._body.output.dtype != "float32" or self._body.output.layout.address(index).coefficient(self._axis) != 1:
            return False
        scalars = ScalarBuilder()
        root = self._body.rule(scalars, index, None)
        if not self._is_irregular(scalars, root):
            return False
        return is_vectorizable(self._by_tables(scalars, root, Index.of(0), Index.of(0)), self._axis, scalars)

    def _is_irregular(self, scalars: ScalarBuilder, root: ScalarExpr) -> bool:
        nodes = [node for node in walk(root) if any(scalars.index_depends_on(i, self._axis) for i in indices_of(node))]
        return any(node.op != "load" or node.data[1].coefficient(self._axis) in (None, 0) for node in nodes)

    def define(self) -> None:
        """Emit the tables that `serve` found."""
        for (ctype, values), name in self._names.items():
            self._builder.evaluate(f"static const {ctype} {name}[{len(values)}] = {{{', '.join(values)}}}")

    def loop(self, place: Place) -> None:
        """Emit the loop over the axis, by the tables defined."""
        builder, lanes, extent = self._builder, self._lanes, self._extent
        with builder.loop("v", len(self._starts)) as v:
            start = v * lanes
            if extent % lanes:
                at = builder.axis("at", extent - lanes + 1)
                text = f"{v} < {extent // lanes} ? {start} : {extent - lanes}"
                builder.append(Let("ptrdiff_t", at.name, text))
                start = Index.of(at)

            def rule(scalars: ScalarBuilder, index: Sequence[IndexLike], anchor: ScalarExpr | None) -> ScalarExpr:
                root = self._body.rule(scalars, place(Index.of(self._axis)), anchor)
                return self._by_tables(scalars, root, start, v)

            lane = builder.axis("lane", lanes)
            index = place(start + Index.of(lane))
            store(builder, replace(self._body, rule=rule), index, None, lanes, lane)

    def _by_tables(self, scalars: ScalarBuilder, root: ScalarExpr, start: Index, v: Index) -> ScalarExpr:
        """`root` for vector number `v`, which begins at `start`, with all that varies taken from memory or tables."""
        values: dict[int, ScalarExpr] = {}
        pending = [root]
        while pending:
            node = pending.pop()
            if id(node) in values or not scalars.depends_on(node, self._axis):
                continue
            if node.op == "load":
                values[id(node)] = self._load(scalars, node, start, v)
            elif node.dtype == "float32" and self._is_known(scalars, node):
                values[id(node)] = self._weight(scalars, node, v)
            else:
                pending.extend(node.args)
        return scalars.replaced(root, values)

    def _weight(self, scalars: ScalarBuilder, node: ScalarExpr, v: Index) -> ScalarExpr:
        numbers = [_value(scalars, node, x) for x in range(self._extent)]
        ordered = [numbers[start + lane] for start in self._starts for lane in range(self._lanes)]
        table = self._table("float", [c_literal(number, "float32") for number in ordered])
        return scalars.vector(f"rb_load({table} + {v * self._lanes})", "float32")

    def _load(self, scalars: ScalarBuilder, node: ScalarExpr, start: Index, v: Index) -> ScalarExpr:
        operand, address = node.data
        moving = [term for term in address.terms if scalars.index_depends_on(Index((term,)), self._axis)]
        column = Index(tuple(moving))
        if not self._is_known_index(scalars, column):
            return node
        row = address - column
        if column == Index.of(self._axis):
            return scalars.picked("rb_load", operand, row + start, "", node.dtype)
        columns = [_number(scalars, column, x) for x in range(self._extent)]
        most = max(columns) + 1 - self._lanes
        firsts = [min(most, *columns[start : start + self._lanes]) for start in self._starts]
        order = [
            columns[start + lane] - first for start, first in zip(self._starts, firsts) for lane in range(self._lanes)
        ]
        near = most >= min(columns) and max(order) < self._lanes
        if not near:
            firsts = [0] * len(firsts)
            order = [columns[start + lane] for start in self._starts for lane in range(self._lanes)]
        offset = f" + {self._table('int32_t', [str(first) for first in firsts])}[{v}]" if near else ""
        places = f"{offset}, {self._table('int32_t', [str(place) for place in order])} + {v * self._lanes}"
        return scalars.picked("rb_pick" if near else "rb_gather", operand, row, places, node.dtype)

    def _table(self, ctype: str, values: Sequence[str]) -> str:
        key = ctype, tuple(values)
        if key not in self._names:
            self._names[key] = self._builder.name("table")
        return self._names[key]

    def _is_known(self, scalars: ScalarBuilder, root: ScalarExpr) -> bool:
        return all(
            _has_value(node) and all(self._is_known_index(scalars, index) for index in indices_of(node))
            for node in walk(root)
        )

    def _is_known_index(self, scalars: ScalarBuilder, index: Index) -> bool:
        named = [scalars.run_time_indices[name] for name in index.run_time_names()]
        return index.axes() <= {self._axis} and all(self._is_known(scalars, scalar) for scalar in named)


def _has_value(node: ScalarExpr) -> bool:
    if node.op in ("unary", "binary"):
        return node.data in (_UNARY if node.op == "unary" else _BINARY) and node.dtype != "bool"
    return node.op in ("const", "index", "range", "select")


def _value(scalars: ScalarBuilder, root: ScalarExpr, x: int) -> float:
    """The value at position `x`, in double precision."""
    values: dict[int, float] = {}
    for node in walk(root):
        args = [values[id(arg)] for arg in node.args]
        values[id(node)] = _apply(scalars, node, args, x)
    return values[id(root)]


def _apply(scalars: ScalarBuilder, node: ScalarExpr, args: Sequence[float], x: int) -> float:
    if node.op == "const":
        return float(node.data) if node.dtype.startswith("float") else int(node.data)
    if node.op == "index":
        return _number(scalars, node.data, x)
    if node.op == "range":
        index, begin, end = (_number(scalars, each, x) for each in node.data)
        return begin <= index < end
    if node.op == "select":
        return args[1] if args[0] else args[2]
    return _UNARY[node.data](args[0]) if node.op == "unary" else _BINARY[node.data](args[0], args[1])


def _number(scalars: ScalarBuilder, index: Index, x: int) -> int:
    """The value of an index at position `x`."""
    total = 0
    for monomial, coefficient in index.terms:
        product = coefficient
        for atom in monomial:
            product *= _atom_number(scalars, atom, x)
        total += product
    return total


def _atom_number(scalars: ScalarBuilder, atom: Atom, x: int) -> int:
    if isinstance(atom, Quotient):
        return _number(scalars, atom.value, x) // atom.divisor
    if isinstance(atom, Remainder):
        return _number(scalars, atom.value, x) % atom.divisor
    return int(_value(scalars, scalars.run_time_indices[atom.text], x)) if isinstance(atom, Opaque) else x
