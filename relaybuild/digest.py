"""Tagged, length-delimited SHA-256 of values, bytes and files; does not know what the digests identify."""

from __future__ import annotations

import functools
import importlib
import os
import struct
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from relaybuild.dataclass import dataclass

Value: TypeAlias = "bool | int | float | str | bytes | tuple[Value, ...] | Digest | None"

_CHUNK = 1 << 20


class Sha256(Protocol):
    """A SHA-256 that goes on, as `hashlib` has it."""

    def update(self, data: Any, /) -> None: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...


def sha256(data: bytes | memoryview = b"") -> Sha256:
    """The SHA-256 of some bytes, to which more may be added.

    `hashlib` is used where it has been loaded, since OpenSSL hashes what is long several times as fast. To load it
    takes as long as to hash hundreds of keys without.
    """
    loaded = sys.modules.get("hashlib")
    state: Sha256 = (loaded.sha256 if loaded is not None else _own_sha256())(data)
    return state


def long_sha256() -> Sha256:
    """The SHA-256 of nothing yet, for the contents of files."""
    import hashlib

    return hashlib.sha256()


@functools.cache
def _own_sha256() -> Callable[..., Sha256]:
    """Python's own implementation, which `hashlib` falls back to; a Python built without has OpenSSL's only.

    To look in vain for a module searches all folders, which takes as long as to hash a hundred keys.
    """
    for name in ("_sha2", "_sha256"):
        try:
            found: Callable[..., Sha256] = importlib.import_module(name).sha256
            return found
        except (ImportError, AttributeError):
            continue
    return importlib.import_module("hashlib").sha256  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True)
class Digest:
    """The identity of some bytes: their SHA-256 in lower-case hexadecimal and their number; prints as the hex."""

    hex: str
    size: int

    def __str__(self) -> str:
        return self.hex

    def short(self, length: int = 16) -> str:
        """The first `length` hexadecimal digits, for names people read."""
        return self.hex[:length]


class Hasher:
    """Hashes a sequence of named fields so that two different sequences never have the same preimage.

    Every field is written as its tag, its kind and its payload, each preceded by its length. Values of different types
    differ (`1`, `1.0`, `True` and `"1"` are four values), floats are taken by their bits (`0.0` is not `-0.0`).
    """

    __slots__ = ("_hash", "_size")

    def __init__(self, domain: str) -> None:
        """`domain` names what is hashed and the version of its layout, such as `"kernel.1"`."""
        self._hash = sha256()
        self._size = 0
        self._feed(_delimited(domain.encode()))

    def field(self, tag: str, value: Value) -> Hasher:
        """Append one field and return the hasher; raises TypeError for a value of another type."""
        return self.append(encode_field(tag, value))

    def append(self, fields: bytes) -> Hasher:
        """Append fields as `encode_field` gave them, one after the other, and return the hasher."""
        self._feed(fields)
        return self

    def digest(self) -> Digest:
        """The digest of the fields so far; its size is the size of the preimage."""
        return Digest(self._hash.hexdigest(), self._size)

    def _feed(self, data: bytes) -> None:
        self._hash.update(data)
        self._size += len(data)


def digest_bytes(data: bytes | bytearray | memoryview[Any]) -> Digest:
    """The plain SHA-256 of a contiguous buffer, as other tools compute it."""
    view = memoryview(data).cast("B")
    return Digest(sha256(view).hexdigest(), view.nbytes)


def digest_file(path: str | os.PathLike[str], chunk: int = _CHUNK) -> Digest:
    """The plain SHA-256 of a file's content, read in chunks; raises OSError if it cannot be read.

    After each chunk the interpreter is waited for, if another thread has it: beside one that is busy they should be
    large.
    """
    state = long_sha256()
    size = 0
    with open(path, "rb", buffering=0) as file:
        # to clear a buffer takes longer than to hash a small file; one byte more tells that it ends
        buffer = memoryview(bytearray(min(chunk, os.fstat(file.fileno()).st_size + 1)))
        while count := file.readinto(buffer):
            state.update(buffer[:count])
            size += count
    return Digest(state.hexdigest(), size)


def _delimited(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def encode_field(tag: str, value: Value) -> bytes:
    """The bytes by which a field is hashed, for one that is part of many digests; raises TypeError."""
    return _delimited(tag.encode()) + encode_value(value)


def encode_value(value: Value) -> bytes:
    """The bytes by which a value is hashed: different for different values and types, floats by their bits.

    Raises TypeError for a value of another type.
    """
    encode = _ENCODERS.get(type(value)) or _encoder_of(value)
    return encode(value)


# bool is an int to Python, so it is told apart first
_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"n",
    bool: lambda value: b"b\x01" if value else b"b\x00",
    int: lambda value: b"i" + _delimited(str(value).encode()),
    float: lambda value: b"f" + struct.pack("<d", value),
    str: lambda value: b"s" + _delimited(value.encode("utf-8", "surrogatepass")),
    bytes: lambda value: b"y" + _delimited(value),
    tuple: lambda value: b"t" + len(value).to_bytes(8, "little") + b"".join(map(encode_value, value)),
    Digest: lambda value: b"d" + _delimited(value.hex.encode()) + value.size.to_bytes(8, "little"),
}


def _encoder_of(value: object) -> Callable[[Any], bytes]:
    """The encoder for a value of a type that is derived from one of these."""
    for kind, encode in _ENCODERS.items():
        if isinstance(value, kind):
            return encode
    raise TypeError(
        f"cannot hash a value of type '{type(value).__name__}': expected None, bool, int, float, str, bytes, "
        "tuple or Digest"
    )
