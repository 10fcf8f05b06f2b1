"""Evaluates the function of a program's weights to the bytes of a library; knows no library and no cache.

The bytes come in order and in parts of bounded size, which several threads make ahead of whoever takes them. What one
result is computed from is there only while its parts are made, so that weights larger than memory can be written. Parts
are cut by size alone: the bytes are the same whatever the number of threads.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

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

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

_PART_BYTES = 1 << 19
"""What is made at a time, unless one row takes more: with what it is made of, it stays in the second-level cache."""

_FEW_BYTES = 1 << 22
"""Weights for which no thread is started."""

_MAX_THREADS = 8
"""More would only wait for memory, and for who takes the parts."""

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

    def write(self, sink: Sink, threads: int | None = None) -> Digest:
        """Evaluate, and write the bytes in order; the digest is their plain SHA-256. Raises OSError.

        `threads` evaluate; None for one on each processor that this process may use.
        """
        state = hashlib.sha256()
        for part in self._parts(threads):
            sink.write(part.data)
            state.update(part.data)
        return Digest(state.hexdigest(), self.num_bytes)

    def write_unhashed(self, sink: Sink, threads: int | None = None) -> None:
        """`write` for who needs no digest."""
        for part in self._parts(threads):
            sink.write(part.data)

    def _parts(self, threads: int | None) -> Iterator[Bytes]:
        """All bytes in order; a part holds until the next one is asked for."""
        count = threads or min(_MAX_THREADS, _processors())
        with _workers(count if self.num_bytes > _FEW_BYTES else 1) as pool:
            yield from _made_ahead(self._jobs(pool), pool, 2 * count)

    def _jobs(self, pool: Executor | None) -> Iterator[_Job]:
        """What gives the bytes, in order."""
        results = _results(self.function)
        buffers = _Buffers(max((result.part_bytes for result in results), default=0))
        at = 0
        for number, (result, offset) in enumerate(zip(results, self.offsets)):
            yield from _zeros(offset - at)
            if pool is not None and number + 1 < len(results):
                pool.submit(results[number + 1].load)
            yield from result.jobs(buffers)
            at = offset + result.num_bytes
        yield from _zeros(self.num_bytes - at)


@dataclass(frozen=True)
class _Job:
    """Gives a part of the bytes; `finish` is called when nobody needs them any more."""

    make: Callable[[], Bytes]
    finish: Callable[[], None] = lambda: None


class _Buffers:
    """Memory for parts, used again and again: memory that was never touched is slow."""

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._free: list[Bytes] = []

    def take(self) -> Bytes:
        return self._free.pop() if self._free else np.empty(self._num_bytes, np.uint8)

    def give_back(self, buffer: Bytes) -> None:
        self._free.append(buffer)


class _Result:
    """One result: `nodes` are what is computed for it alone, in order, of constants and the values in `given`."""

    def __init__(self, root: Expr, nodes: Sequence[Expr], given: Mapping[int, Value]) -> None:
        kind = root.tensor_type
        self.num_bytes = kind.num_elements * kind.itemsize
        self._root = root
        self._fill = _fill_of(root) if nodes and nodes[-1] is root and kind.num_elements else None
        self._nodes = nodes if self._fill is None else nodes[:-1]
        self._given = given
        self._lock = threading.Lock()
        self._values: Sequence[Any] | None = None
        self._is_done = False

    @property
    def part_bytes(self) -> int:
        """Bytes of the buffers that its parts are made in."""
        return self._rows_at_once * self._row_bytes if self._fill is not None else 0

    def load(self) -> Sequence[Any]:
        """Compute what the parts are made of, once: the arguments of the last call, or the result itself."""
        with self._lock:
            if self._values is None and not self._is_done:
                values = dict(self._given)
                for node in self._nodes:
                    values[id(node)] = _evaluated(node, values)
                last = self._root.children() if self._fill is not None else (self._root,)
                self._values = [_value(node, values) for node in last]
            return self._values or ()

    def jobs(self, buffers: _Buffers) -> Iterator[_Job]:
        """What gives the bytes of the result, in order."""
        yield from self._jobs_by_rows(self._fill, buffers) if self._fill is not None else self._jobs_of_slices()
        yield _Job(_nothing, self._drop)

    def _jobs_by_rows(self, fill: EvaluateRows, buffers: _Buffers) -> Iterator[_Job]:
        num_rows, step = self._root.tensor_type.static_shape[0], self._rows_at_once
        for start in range(0, num_rows, step):
            buffer, stop = buffers.take(), min(start + step, num_rows)

            def make(start: int = start, stop: int = stop, buffer: Bytes = buffer) -> Bytes:
                return self._filled(fill, start, stop, buffer)

            def finish(buffer: Bytes = buffer) -> None:
                buffers.give_back(buffer)

            yield _Job(make, finish)

    def _filled(self, fill: EvaluateRows, start: int, stop: int, buffer: Bytes) -> Bytes:
        """Rows `start` to `stop` of the result, in the buffer."""
        call, kind = self._root, self._root.tensor_type
        assert isinstance(call, Call)
        data = buffer[: (stop - start) * self._row_bytes]
        out = data.view(numpy_dtype(kind.dtype)).reshape((stop - start, *kind.static_shape[1:]))
        fill(self.load(), _attrs_of(call), start, stop, out)
        return data

    def _jobs_of_slices(self) -> Iterator[_Job]:
        for start in range(0, self.num_bytes, _PART_BYTES):

            def make(start: int = start) -> Bytes:
                return self._plain()[start : start + _PART_BYTES]

            yield _Job(make)

    def _plain(self) -> Bytes:
        """The bytes of a result that is not made by rows."""
        (value,) = self.load()
        data: Bytes = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        if data.size != self.num_bytes:
            raise InternalError(f"a weight has {data.size} bytes, where its type has {self.num_bytes}")
        return data

    def _drop(self) -> None:
        with self._lock:
            self._values, self._is_done = None, True

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


def _zeros(num_bytes: int) -> Iterator[_Job]:
    """Zeros between results."""
    if num_bytes < 0:
        raise InternalError("the weights overlap, or their offsets do not ascend")
    for start in range(0, num_bytes, _PART_BYTES):
        zeros = np.zeros(min(_PART_BYTES, num_bytes - start), np.uint8)
        yield _Job(lambda zeros=zeros: zeros)  # type: ignore[misc]


def _nothing() -> Bytes:
    return np.empty(0, np.uint8)


def _made_ahead(jobs: Iterator[_Job], pool: Executor | None, depth: int) -> Iterator[Bytes]:
    """What the jobs give, in order; `depth` of them are under way while a part is used."""
    pending: deque[tuple[_Job, Future[Bytes] | None]] = deque()

    def used(job: _Job, future: Future[Bytes] | None) -> Iterator[Bytes]:
        yield job.make() if future is None else future.result()
        job.finish()

    for job in jobs:
        pending.append((job, pool.submit(job.make) if pool is not None else None))
        if len(pending) > (depth if pool is not None else 0):
            yield from used(*pending.popleft())
    while pending:
        yield from used(*pending.popleft())


@contextlib.contextmanager
def _workers(count: int) -> Iterator[Executor | None]:
    """Threads that evaluate; none for one, which the caller's own can be."""
    if count == 1:
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(count, thread_name_prefix="weights")
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
