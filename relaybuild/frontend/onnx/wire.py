"""Reads the protobuf framing of a model file and leaves its weights there; knows nothing of what a model means."""

from __future__ import annotations

from collections.abc import Iterator

from relaybuild.dataclass import dataclass

MODEL_GRAPH = 7
GRAPH_INITIALIZER = 5
TENSOR_NAME = 8
TENSOR_RAW_DATA = 9
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MIN_PAYLOAD = 1024


class WireError(Exception):
    """The bytes are not a complete protobuf message."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its bytes are `[start, end)`, its payload `[begin, end)`."""

    number: int
    wire_type: int
    start: int
    begin: int
    end: int


@dataclass(frozen=True)
class StrippedModel:
    """A model without the payload of its large initializers, and where each of them is: name to (begin, end)."""

    message: bytes
    payloads: dict[str, tuple[int, int]]


def strip_model(data: memoryview) -> StrippedModel:
    """Split a serialised ModelProto; raises WireError where it is truncated or malformed."""
    payloads: dict[str, tuple[int, int]] = {}
    parts: list[bytes] = []
    for item in read_fields(data, 0, len(data)):
        if item.number == MODEL_GRAPH and item.wire_type == BYTES:
            parts.append(_framed(MODEL_GRAPH, _strip_graph(data, item, payloads)))
        else:
            parts.append(bytes(data[item.start : item.end]))
    return StrippedModel(b"".join(parts), payloads)


def _strip_graph(data: memoryview, graph: Field, payloads: dict[str, tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    for item in read_fields(data, graph.begin, graph.end):
        if item.number == GRAPH_INITIALIZER and item.wire_type == BYTES:
            parts.append(_framed(GRAPH_INITIALIZER, _strip_tensor(data, item, payloads)))
        else:
            parts.append(bytes(data[item.start : item.end]))
    return b"".join(parts)


def _strip_tensor(data: memoryview, tensor: Field, payloads: dict[str, tuple[int, int]]) -> bytes:
    if tensor.end - tensor.begin < _MIN_PAYLOAD:
        return bytes(data[tensor.begin : tensor.end])
    name = ""
    payload: Field | None = None
    parts: list[bytes] = []
    for item in read_fields(data, tensor.begin, tensor.end):
        if item.number == TENSOR_RAW_DATA and item.wire_type == BYTES:
            payload = item
            continue
        if item.number == TENSOR_NAME and item.wire_type == BYTES:
            name = bytes(data[item.begin : item.end]).decode("utf-8", "replace")
        parts.append(bytes(data[item.start : item.end]))
    if payload is not None:
        payloads[name] = (payload.begin, payload.end)
    return b"".join(parts)


def _framed(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | BYTES]) + _encode_varint(len(payload)) + payload


def _encode_varint(value: int) -> bytes:
    digits = bytearray()
    while value > 0x7F:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def read_fields(data: memoryview, begin: int, end: int) -> Iterator[Field]:
    """The fields of a message; raises WireError where it is truncated or malformed."""
    position = begin
    while position < end:
        key, after_key = decode_varint(data, position, end)
        payload_begin, payload_end = _payload(data, key & 7, after_key, end)
        if payload_end > end:
            raise WireError(f"it is truncated: a field at byte {position} ends {payload_end - end} bytes too late")
        yield Field(key >> 3, key & 7, position, payload_begin, payload_end)
        position = payload_end


def _payload(data: memoryview, wire_type: int, position: int, end: int) -> tuple[int, int]:
    if wire_type == BYTES:
        length, begin = decode_varint(data, position, end)
        return begin, begin + length
    if wire_type == VARINT:
        return position, decode_varint(data, position, end)[1]
    if wire_type in (FIXED32, FIXED64):
        return position, position + (4 if wire_type == FIXED32 else 8)
    raise WireError(f"byte {position} is not the beginning of a protobuf field")


def decode_varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    """A number and the position behind it; raises WireError."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise WireError(f"it is truncated at byte {position}")
        digit = data[position]
        position += 1
        value |= (digit & 0x7F) << shift
        if digit < 0x80:
            return value, position
    raise WireError(f"byte {position} is not part of a protobuf number")
