"""Tells a model's structure from its weights by its bytes alone; interprets no node, and needs no onnx.

A weight is an initializer of the model's own graph that `Constant.is_weight` calls one: floating-point of more than one
element, or of more than 64 elements. Its structure is its name, type and shape. All else is structure as it stands, and
so is what other tensors, wherever they are, hold in other files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import field
from math import prod

from relaybuild.dataclass import dataclass
from relaybuild.digest import Digest
from relaybuild.frontend.onnx.wire import (
    BYTES,
    GRAPH_INITIALIZER,
    MODEL_GRAPH,
    TENSOR_NAME,
    TENSOR_RAW_DATA,
    VARINT,
    Field,
    decode_varint,
    read_fields,
)

# Fields of a TensorProto. All but dims, type, name and the place of the data are values.
_DIMS, _DATA_TYPE, _EXTERNAL, _LOCATION = 1, 2, 13, 14
_VALUES = frozenset({4, 5, 6, 7, TENSOR_RAW_DATA, 10, 11})
_IN_FILE = 1
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

_NESTED: dict[str, dict[int, str]] = {
    "model": {MODEL_GRAPH: "graph", 25: "function"},
    "graph": {1: "node", GRAPH_INITIALIZER: "tensor", 15: "sparse tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
"""What messages there are in fields of messages, as far as there may be tensors in them."""
_WORD = b"location"
"""What a message has somewhere that holds a tensor whose data are in a file."""

# FLOAT, FLOAT16, DOUBLE, COMPLEX64, COMPLEX128, BFLOAT16, those of 8 bits, of 4 and of 6
_FLOATS = frozenset({1, 10, 11, 14, 15, 16, 17, 18, 19, 20, 23, 24, 27, 28})
_MOST_STRUCTURE = 64

ReadSlice = Callable[[str, int, "int | None"], bytes]
"""The bytes of a file beside the model, from an offset, so many or all; raises OSError."""


@dataclass(frozen=True)
class WeightPlace:
    """The type of a weight, by ONNX's number, its shape, and where in the model's file its bytes are, `[begin, end)`;
    None where they are in another file or in another form."""

    data_type: int
    shape: tuple[int, ...]
    span: tuple[int, int] | None


@dataclass(frozen=True)
class Structure:
    """The digest of all that is no weight, the weights by name, in the order of the file, and the names of the files in
    which tensors have their data."""

    digest: Digest
    weights: dict[str, WeightPlace] = field(repr=False)
    files: frozenset[str] = frozenset()


def structure_of(data: memoryview, read_slice: ReadSlice) -> Structure:
    """The structure of a serialised ModelProto; raises WireError for what is none, OSError."""
    reader = _Reader(data, read_slice)
    for item in read_fields(data, 0, len(data)):
        if item.number == MODEL_GRAPH and item.wire_type == BYTES:
            reader.graph(item)
        else:
            reader.take(item, "model")
    return Structure(Digest(reader.state.hexdigest(), reader.size), reader.weights, frozenset(reader.files))


@dataclass
class _Tensor:
    """What an initializer says of itself: `values` are the fields that hold its elements."""

    name: str = ""
    data_type: int = 0
    shape: list[int] = field(default_factory=list)
    is_in_file: bool = False
    external: dict[str, str] = field(default_factory=dict)
    values: list[Field] = field(default_factory=list)
    others: list[Field] = field(default_factory=list)

    @property
    def is_weight(self) -> bool:
        return prod(self.shape) > (1 if self.data_type in _FLOATS else _MOST_STRUCTURE)


class _Reader:
    """Hashes structure and notes weights."""

    def __init__(self, data: memoryview, read_slice: ReadSlice) -> None:
        self.data = data
        self.state = hashlib.sha256(b"onnx-structure.3")
        self.size = 0
        self.weights: dict[str, WeightPlace] = {}
        self.files: set[str] = set()
        self._read_slice = read_slice

    def take(self, item: Field, of: str) -> None:
        """A field of a message that is structure, with what its tensors have in files."""
        payload = self.data[item.begin : item.end]
        self._feed(f"{item.wire_type} {item.number}", payload)
        if item.number in _NESTED[of] and item.wire_type == BYTES and _WORD in bytes(payload):
            for tensor in self._tensors(item, _NESTED[of][item.number]):
                if tensor.is_in_file:
                    self.files.add(tensor.external.get("location", ""))
                    self._feed("external", self._external(tensor))

    def _tensors(self, item: Field, kind: str) -> Iterator[_Tensor]:
        """The tensors in a message, in order."""
        if kind == "tensor":
            yield self._tensor(item)
            return
        for each in read_fields(self.data, item.begin, item.end):
            if each.number in _NESTED[kind] and each.wire_type == BYTES:
                yield from self._tensors(each, _NESTED[kind][each.number])

    def graph(self, graph: Field) -> None:
        """The model's graph."""
        self._feed("graph")
        for item in read_fields(self.data, graph.begin, graph.end):
            if item.number == GRAPH_INITIALIZER and item.wire_type == BYTES:
                self._initializer(item)
            else:
                self.take(item, "graph")
        self._feed("end")

    def _initializer(self, item: Field) -> None:
        tensor = self._tensor(item)
        if not tensor.is_weight:
            self.take(item, "graph")
            return
        if tensor.is_in_file:
            self.files.add(tensor.external.get("location", ""))
        self._feed("weight")
        for each in tensor.others:
            self.take(each, "tensor")
        self._feed("end")
        raw = [each for each in tensor.values if each.number == TENSOR_RAW_DATA]
        is_here = len(raw) == len(tensor.values) == 1 and not tensor.is_in_file
        span = (raw[0].begin, raw[0].end) if is_here else None
        self.weights[tensor.name] = WeightPlace(tensor.data_type, tuple(tensor.shape), span)

    def _tensor(self, item: Field) -> _Tensor:
        tensor = _Tensor()
        for each in read_fields(self.data, item.begin, item.end):
            if each.number in _VALUES:
                tensor.values.append(each)
                continue
            if each.number == _EXTERNAL and each.wire_type == BYTES:
                tensor.external.update([self._entry(each)])
                continue
            if each.number == _LOCATION and each.wire_type == VARINT:
                tensor.is_in_file = self._numbers(each) == [_IN_FILE]
                continue
            tensor.others.append(each)
            if each.number == _DIMS and each.wire_type in (VARINT, BYTES):
                tensor.shape += self._numbers(each)
            elif each.number == _DATA_TYPE and each.wire_type == VARINT:
                tensor.data_type = self._numbers(each)[0]
            elif each.number == TENSOR_NAME and each.wire_type == BYTES:
                tensor.name = self._text(each)
        return tensor

    def _entry(self, item: Field) -> tuple[str, str]:
        parts = {each.number: self._text(each) for each in read_fields(self.data, item.begin, item.end)}
        return parts.get(_ENTRY_KEY, ""), parts.get(_ENTRY_VALUE, "")

    def _external(self, tensor: _Tensor) -> bytes:
        found = tensor.external
        try:
            length = int(found["length"]) if "length" in found else None
            return self._read_slice(found.get("location", ""), int(found.get("offset", 0)), length)
        except ValueError:
            # who imports the model says what is wrong
            return b""

    def _text(self, item: Field) -> str:
        return bytes(self.data[item.begin : item.end]).decode("utf-8", "replace")

    def _numbers(self, item: Field) -> list[int]:
        """A number, or the packed numbers of a repeated field."""
        if item.wire_type == VARINT:
            return [decode_varint(self.data, item.begin, item.end)[0]]
        found: list[int] = []
        position = item.begin
        while position < item.end:
            value, position = decode_varint(self.data, position, item.end)
            found.append(value)
        return found

    def _feed(self, head: str, payload: bytes | memoryview = b"") -> None:
        self.state.update(f"{head} {len(payload)} ".encode())
        self.state.update(payload)
        self.size += len(head) + len(payload)


_DTYPES = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool"} | {
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}


def dtype_name(data_type: int) -> str | None:
    """The element type that a number of ONNX stands for, as numpy calls it; None for one that has another form in a
    file than in memory, or that is not known."""
    return _DTYPES.get(data_type)
