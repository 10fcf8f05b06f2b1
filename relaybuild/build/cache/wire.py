"""Protocol buffers' wire format, as far as the messages of the remote-execution API need it; knows no message."""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BYTES = 10
_SHORT = [bytes((value,)) for value in range(0x80)]


class WireError(ValueError):
    """Bytes that are no message, or not the one expected."""


def varint_field(number: int, value: int) -> bytes:
    """A field of a non-negative integer; nothing at all where it is 0, the default."""
    return _varint(number << 3 | _VARINT) + _varint(value) if value else b""


def bytes_field(number: int, value: bytes | str) -> bytes:
    """A field of bytes, of text in UTF-8, or of an encoded message, written even where it is empty: the element of a
    repeated field, or a message that is present."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def optional_field(number: int, value: bytes | str) -> bytes:
    """A field of bytes or text; nothing at all where it is empty, the default."""
    return bytes_field(number, value) if value else b""


def read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message in order: number, and the integer or bytes. Raises WireError for what is no message."""
    position, end = 0, len(data)
    while position < end:
        tag = data[position]
        position += 1
        if tag >= 0x80:
            tag, position = _read_varint(data, position - 1)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, position = _read_varint(data, position)
        elif kind in _FIXED:
            length = _FIXED[kind]
        else:
            raise WireError(f"a field of wire type {kind}")
        if position + length > end:
            raise WireError("a field goes past the end")
        yield tag >> 3, data[position : position + length]
        position += length


def read_packed(data: bytes) -> Iterator[int]:
    """The integers of a repeated field that is written as one; raises WireError."""
    position = 0
    while position < len(data):
        value, position = _read_varint(data, position)
        yield value


def expect_bytes(value: int | bytes) -> bytes:
    """A field's value that must be bytes; raises WireError otherwise."""
    if not isinstance(value, bytes):
        raise WireError("an integer where bytes were expected")
    return value


def expect_text(value: int | bytes) -> str:
    """A field's value that must be UTF-8; raises WireError otherwise."""
    try:
        return expect_bytes(value).decode()
    except UnicodeDecodeError as error:
        raise WireError("text that is not UTF-8") from error


def expect_int(value: int | bytes) -> int:
    """A field's value that must be an integer; raises WireError otherwise."""
    if not isinstance(value, int):
        raise WireError("bytes where an integer was expected")
    return value


def _varint(value: int) -> bytes:
    if value < 0x80:
        return _SHORT[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    # A slice: what is cut ends without a last byte.
    for byte in data[position : position + _MAX_VARINT_BYTES]:
        position += 1
        if byte < 0x80:
            return value | byte << shift, position
        value |= (byte & 0x7F) << shift
        shift += 7
    raise WireError("a number does not end")
