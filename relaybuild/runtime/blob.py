"""Frames the bytes of a module that is no C code, and reads frames; does not know what the bytes mean.

The frame is described in `relaybuild/module.h`, whose functions read and write the same.
"""

from __future__ import annotations

import struct
import zlib

from relaybuild.dataclass import dataclass
from relaybuild.errors import UserError

MAGIC = b"\x89RBLOB\r\n"
VERSION = 1

_HEAD = struct.Struct("<8sIIIQ")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class Frame:
    """A module's bytes, the type key of the loader that reads them, and the flag that brings it ("" for none)."""

    type_key: str
    flag: str
    payload: bytes


def frame(type_key: str, flag: str, payload: bytes) -> bytes:
    """The bytes that stand for a module of `type_key` in a library or a file."""
    key, name = type_key.encode(), flag.encode()
    body = _HEAD.pack(MAGIC, VERSION, len(key), len(name), len(payload)) + key + name + payload
    return body + _CHECKSUM.pack(zlib.crc32(body))


def unframe(data: bytes) -> Frame:
    """What a frame holds.

    Raises UserError, which says what is wrong, for bytes that are none, are cut short, were altered, or have a newer
    version.
    """
    size = len(data)
    if not data.startswith(MAGIC):
        raise UserError(f"these {size} bytes are no module of relaybuild's: they do not begin as a frame does")
    if size < _HEAD.size:
        raise UserError(f"the module is cut short: it has {size} bytes, its head has {_HEAD.size}")
    _, version, key_size, flag_size, payload_size = _HEAD.unpack_from(data)
    if version != VERSION:
        raise UserError(
            f"the module's frame has version {version}, this relaybuild reads version {VERSION}: "
            "use the release that wrote it, or a later one"
        )
    others = _HEAD.size + key_size + flag_size + _CHECKSUM.size
    extra = size - others - payload_size
    if extra < 0:
        raise UserError(
            f"the module is cut short: it has {size} bytes, its head promises {payload_size} and {others} around them"
        )
    if extra > 0:
        raise UserError(f"the module was altered: {extra} bytes follow behind its end")
    end = size - _CHECKSUM.size
    if zlib.crc32(memoryview(data)[:end]) != _CHECKSUM.unpack_from(data, end)[0]:
        raise UserError("the module was altered: its checksum does not match its bytes")
    key_end = _HEAD.size + key_size
    flag_end = key_end + flag_size
    key, flag = data[_HEAD.size : key_end], data[key_end:flag_end]
    return Frame(key.decode(errors="replace"), flag.decode(errors="replace"), data[flag_end:end])
