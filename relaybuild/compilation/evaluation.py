"""Evaluates the function of a program's weights to the bytes of a library; knows no library and no cache.

The bytes come in order and in parts of bounded size. What one result is computed from is there only while its parts are
made, so that weights larger than memory can be written. Parts are cut by size alone.

One thread makes all of them. An operation on a part takes microseconds, after each of which threads would wait for the
interpreter's lock: two of them take twice the processor time, and longer.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.errors import InternalError
from relaybuild.ir.dtypes import numpy_dtype
from relaybuild.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from relaybuild.ir.interpreter import Value, evaluate_call, interpret
from relaybuild.ir.op import EvaluateRows, Op
from relaybuild.ir.visitor import post_order

_PART_BYTES = 1 << 19
"""What is made at a time, unless one row takes more: with what it is made of, it stays in the second-level cache."""

Bytes: TypeAlias = NDArray[np.uint8]


class Sink(Protocol):
    """Something that takes bytes: a file, or memory that is mapped."""

    def write(self, data: memoryview, /) -> int:
        """Take all of the bytes; raises OSError."""


@dataclass(frozen=True)
class WeightsPlan:
    """What the weights of a library are: the results of `function`, which has no parameters and returns a tuple of
    tensors, each at its offset, in ascending order, with zeros between them and up to `num_bytes`."""

    function: Function
    offsets: tuple[int, ...]
    num_bytes: int

    def write(self, sink: Sink) -> Digest:
        """Evaluate, and write the bytes in order; the digest is their plain SHA-256. Raises OSError."""
        state = hashlib.sha256()
        for part in self._parts():
            sink.write(part.data)
            state.update(part.data)
        return Digest(state.hexdigest(), self.num_bytes)

    def write_unhashed(self, sink: Sink) -> None:
        """`write` for who needs no digest."""
        for part in self._parts():
            sink.write(part.data)

    def _parts(self) -> Iterator[Bytes]:
        """All bytes in order; a part holds until the next one is asked for."""
        results = _results(self.function)
        # memory that was used before is fast
        buffer = np.empty(max((result.part_bytes for result in results), default=0), np.uint8)
        at = 0
        for result, offset in zip(results, self.offsets):
            yield from _zeros(offset - at)
            yield from result.parts(buffer)
            at = offset + result.num_bytes
        yield from _zeros(self.num_bytes - at)


class _Result:
    """One result: `nodes` are what is computed for it alone, in order, of constants and the values in `given`."""

    def __init__(self, root: Expr, nodes: Sequence[Expr], given: Mapping[int, Value]) -> None:
        kind = root.tensor_type
        self.num_bytes = kind.num_elements * kind.itemsize
        self._root = root
        self._fill = _fill_of(root) if nodes and nodes[-1] is root and kind.num_elements else None
        self._nodes = nodes if self._fill is None else nodes[:-1]
        self._given = given

    @property
    def part_bytes(self) -> int:
        """Bytes of the buffers that its parts are made in."""
        return self._rows_at_once * self._row_bytes if self._fill is not None else 0

    def parts(self, buffer: Bytes) -> Iterator[Bytes]:
        """The bytes of the result, in order; `buffer` has room for one part."""
        if self._fill is not None:
            yield from self._parts_by_rows(self._fill, self._loaded(), buffer)
            return
        data = self._plain()
        for start in range(0, self.num_bytes, _PART_BYTES):
            yield data[start : start + _PART_BYTES]

    def _loaded(self) -> Sequence[Any]:
        """What the parts are made of: the arguments of the last call, or the result itself."""
        values = dict(self._given)
        for node in self._nodes:
            values[id(node)] = _evaluated(node, values)
        last = self._root.children() if self._fill is not None else (self._root,)
        return [_value(node, values) for node in last]

    def _parts_by_rows(self, fill: EvaluateRows, values: Sequence[Any], buffer: Bytes) -> Iterator[Bytes]:
        call, kind = self._root, self._root.tensor_type
        assert isinstance(call, Call)
        attrs, num_rows, step = _attrs_of(call), kind.static_shape[0], self._rows_at_once
        for start in range(0, num_rows, step):
            stop = min(start + step, num_rows)
            data = buffer[: (stop - start) * self._row_bytes]
            out = data.view(numpy_dtype(kind.dtype)).reshape((stop - start, *kind.static_shape[1:]))
            fill(values, attrs, start, stop, out)
            yield data

    def _plain(self) -> Bytes:
        """The bytes of a result that is not made by rows."""
        (value,) = self._loaded()
        data: Bytes = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if data.size != self.num_bytes:
            raise InternalError(f"a weight has {data.size} bytes, where its type has {self.num_bytes}")
        return data

    @property
    def _row_bytes(self) -> int:
        kind = self._root.tensor_type
        return math.prod(kind.static_shape[1:]) * kind.itemsize

    @property
    def _rows_at_once(self) -> int:
        return max(1, _PART_BYTES // max(1, self._row_bytes))


def _results(function: Function) -> list[_Result]:
    """The results of the function, which share nothing but what is computed here."""
    body = function.body
    if not isinstance(body, Tuple):
        raise InternalError("the function of the weights does not return a tuple")
    order = list(post_order(*body.fields))
    if not all(map(_is_plain, order)):
        values = dict(zip(map(id, body.fields), interpret(function)))
        return [_Result(root, (), values) for root in body.fields]
    owners = _owners(body.fields, order)
    own: list[list[Expr]] = [[] for _ in body.fields]
    shared: dict[int, Value] = {}
    for node in order:
        owner = owners[id(node)]
        if owner is not None:
            own[owner].append(node)
        elif not isinstance(node, Constant):
            shared[id(node)] = _evaluated(node, shared)
    return [_Result(root, nodes, shared) for root, nodes in zip(body.fields, own)]


def _owners(roots: Sequence[Expr], order: Sequence[Expr]) -> Mapping[int, int | None]:
    """For each node, by id, the number of the only root that needs it; None if several do."""
    owners: dict[int, int | None] = {}

    def add(node: Expr, owner: int | None) -> None:
        owners[id(node)] = owner if owners.setdefault(id(node), owner) == owner else None

    for number, root in enumerate(roots):
        add(root, number)
    for node in reversed(order):
        for child in node.children():
            add(child, owners[id(node)])
    return owners


def _is_plain(node: Expr) -> bool:
    """Whether a node computes a value of those of its children, and nothing else."""
    return isinstance(node, (Constant, Tuple, TupleGetItem)) or (isinstance(node, Call) and isinstance(node.op, Op))


def _evaluated(node: Expr, values: Mapping[int, Value]) -> Value:
    """The value of a node that is plain, of those of its children."""
    children = [_value(child, values) for child in node.children()]
    if isinstance(node, Call):
        return evaluate_call(node, children)
    if isinstance(node, TupleGetItem):
        (whole,) = children
        assert isinstance(whole, tuple)
        return whole[node.index]
    return tuple(children) if isinstance(node, Tuple) else _value(node, values)


def _value(node: Expr, values: Mapping[int, Value]) -> Value:
    return node.data if isinstance(node, Constant) else values[id(node)]


def _fill_of(root: Expr) -> EvaluateRows | None:
    return root.op.evaluate_rows if isinstance(root, Call) and isinstance(root.op, Op) else None


def _attrs_of(call: Call) -> Any:
    assert isinstance(call.op, Op)
    return call.attrs if call.attrs is not None else call.op.make_attrs({})


def _zeros(num_bytes: int) -> Iterator[Bytes]:
    """Zeros between results."""
    if num_bytes < 0:
        raise InternalError("the weights overlap, or their offsets do not ascend")
    for start in range(0, num_bytes, _PART_BYTES):
        yield np.zeros(min(_PART_BYTES, num_bytes - start), np.uint8)
