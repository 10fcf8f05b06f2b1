"""Scalar expressions over index variables, the body of every fused kernel; knows nothing of loops or of C.

Expressions are hash-consed: equal ones are one object, so that sharing in the model is a local variable in the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from relaybuild.lower.index import Axis, Index, IndexLike

COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


class ScalarExpr:
    """One node: `op` is load, const, index, range, anchor, vector, picked, select, cast, or `unary`/`binary` with its
    name in `data`.

    load: data = (operand number, address). anchor: the value the kernel's template computed. index: data = the index.
    range: data = (index, begin, end), a bool. vector: data = the C text of a value for each lane. picked:
    data = (C function, operand number, address, rest of the function's arguments). Identity is equality.
    """

    __slots__ = ("args", "data", "dtype", "op")

    def __init__(self, op: str, dtype: str, args: tuple[ScalarExpr, ...], data: Any) -> None:
        self.op = op
        self.dtype = dtype
        self.args = args
        self.data = data

    def __repr__(self) -> str:
        return f"ScalarExpr({self.op}, {self.dtype}, {self.data})"


class ScalarBuilder:
    """Makes hash-consed scalar expressions; implements `relaybuild.ir.scalar.ScalarAlgebra`.

    `run_time_indices` maps the name of an index read at run time to the integer scalar that computes it; `fresh` makes
    such names, different in one C function.
    """

    def __init__(self, fresh: Callable[[str], str] | None = None) -> None:
        self._fresh = fresh or (lambda stem: f"{stem}{len(self.run_time_indices)}")
        self._interned: dict[tuple[object, ...], ScalarExpr] = {}
        self.run_time_indices: dict[str, ScalarExpr] = {}
        self._depends: dict[tuple[int, Axis], bool] = {}

    def _make(self, op: str, dtype: str, args: Sequence[ScalarExpr] = (), data: Any = None) -> ScalarExpr:
        key = (op, dtype, tuple(id(arg) for arg in args), repr(data) if op == "const" else data)
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = ScalarExpr(op, dtype, tuple(args), data)
        return found

    def load(self, operand: int, address: Index, dtype: str) -> ScalarExpr:
        """An element of an operand of the kernel."""
        return self._make("load", dtype, (), (operand, address))

    def anchor(self, dtype: str) -> ScalarExpr:
        """What the kernel's template computed for this element."""
        return self._make("anchor", dtype)

    def vector(self, text: str, dtype: str) -> ScalarExpr:
        """A value for each lane that C code has in `text`."""
        return self._make("vector", dtype, (), text)

    def picked(self, function: str, operand: int, address: Index, rest: str, dtype: str) -> ScalarExpr:
        """Elements of an operand, one for each lane, as a C function loads them; its arguments are the first element's
        pointer, then what `rest` adds."""
        return self._make("picked", dtype, (), (function, operand, address, rest))

    def replaced(self, root: ScalarExpr, values: Mapping[int, ScalarExpr]) -> ScalarExpr:
        """`root` with nodes replaced, by their id."""
        made: dict[int, ScalarExpr] = {}
        for node in walk(root):
            args = [made[id(arg)] for arg in node.args]
            made[id(node)] = values.get(id(node)) or self._make(node.op, node.dtype, args, node.data)
        return made[id(root)]

    def const(self, value: float | int | bool, dtype: str) -> ScalarExpr:
        return self._make("const", dtype, (), bool(value) if dtype == "bool" else value)

    def unary(self, name: str, x: ScalarExpr) -> ScalarExpr:
        dtype = "bool" if name in ("not", "isnan", "isinf") else x.dtype
        return self._make("unary", dtype, (x,), name)

    def binary(self, name: str, a: ScalarExpr, b: ScalarExpr) -> ScalarExpr:
        dtype = "bool" if name in COMPARISONS or name in ("and", "or", "xor") else a.dtype
        return self._make("binary", dtype, (a, b), name)

    def select(self, cond: ScalarExpr, a: ScalarExpr, b: ScalarExpr) -> ScalarExpr:
        if cond.op == "const":
            return a if cond.data else b
        return a if a is b else self._make("select", a.dtype, (cond, a, b))

    def cast(self, x: ScalarExpr, dtype: str) -> ScalarExpr:
        return x if x.dtype == dtype else self._make("cast", dtype, (x,))

    def in_range(self, index: IndexLike, begin: IndexLike, end: IndexLike) -> ScalarExpr:
        position, low, high = Index.of(index), Index.of(begin), Index.of(end)
        above = (position - low).lower
        below = (high - position).lower
        if above is not None and above >= 0 and below is not None and below > 0:
            return self.const(True, "bool")
        over = (position - high).lower
        under = (low - position).lower
        if (over is not None and over >= 0) or (under is not None and under > 0):
            return self.const(False, "bool")
        return self._make("range", "bool", (), (position, low, high))

    def index_value(self, index: IndexLike, dtype: str) -> ScalarExpr:
        position = Index.of(index)
        if position.constant is not None:
            return self.const(position.constant, dtype)
        return self._make("index", dtype, (), position)

    def to_index(self, x: ScalarExpr) -> Index:
        if x.op == "index":
            found: Index = x.data
            return found
        if x.op == "const":
            return Index.of(int(x.data))
        for name, known in self.run_time_indices.items():
            if known is x:
                return Index.opaque(name)
        name = self._fresh("at")
        self.run_time_indices[name] = x
        return Index.opaque(name)

    def depends_on(self, root: ScalarExpr, axis: Axis) -> bool:
        """Whether the value varies along `axis`: by an index, one read at run time, or as the anchor's value."""
        known = self._depends
        for node in walk(root):
            if (id(node), axis) not in known:
                varies = node.op in ("anchor", "vector", "picked") or any(
                    self.index_depends_on(index, axis) for index in indices_of(node)
                )
                known[id(node), axis] = varies or any(known[id(arg), axis] for arg in node.args)
        return known[id(root), axis]

    def index_depends_on(self, index: Index, axis: Axis) -> bool:
        """The same for an index."""
        return index.mentions(axis) or any(
            self.depends_on(self.run_time_indices[name], axis) for name in index.run_time_names()
        )


def walk(root: ScalarExpr) -> Iterator[ScalarExpr]:
    """Every node once, arguments before their user."""
    seen: set[int] = set()
    stack: list[tuple[ScalarExpr, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if expanded:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((arg, False) for arg in reversed(node.args))


def indices_of(node: ScalarExpr) -> tuple[Index, ...]:
    """The index expressions a node itself holds."""
    if node.op == "load":
        return (node.data[1],)
    if node.op == "picked":
        return (node.data[2],)
    if node.op == "index":
        return (node.data,)
    if node.op == "range":
        return tuple(node.data)
    return ()
