"""Writes an archive that holds one object, as linkers read it; does not know what is in the object.

There are neither times nor owners in it, so that the same object gives the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from relaybuild.errors import UnsupportedError

MAGIC = b"!<arch>\n"

_HEADER_SIZE = 60
_MAX_NAME = 15
_MAX_SIZE = 10**10 - 1


def archive_head(name: str, symbols: Sequence[str], size: int) -> bytes:
    """What stands before the bytes of the only member: its header, and the index of the symbols that it defines.

    The object has `size` bytes, which `archive_tail` follows. Raises UnsupportedError for more than a header can tell.
    """
    if size > _MAX_SIZE:
        raise UnsupportedError(f"the object has {size / 1e9:.1f} GB, but an archive holds at most 10 GB")
    member = f"{name}/".encode()
    long_names = b"" if len(member) <= _MAX_NAME + 1 else _even(member + b"\n", b"\n")
    names = _even(b"".join(symbol.encode() + b"\0" for symbol in symbols), b"\0")
    index_size = 4 * (1 + len(symbols)) + len(names)
    at = len(MAGIC) + _HEADER_SIZE + index_size + (_HEADER_SIZE + len(long_names) if long_names else 0)
    index = struct.pack(f">{1 + len(symbols)}I", len(symbols), *[at] * len(symbols)) + names
    parts = [MAGIC, _header(b"/", index_size, 0), index]
    if long_names:
        parts += [_header(b"//", len(long_names), None), long_names]
    return b"".join((*parts, _header(b"/0" if long_names else member, size, 0o644)))


def archive_tail(size: int) -> bytes:
    """What stands behind a member of `size` bytes."""
    return b"\n" * (size % 2)


def _header(name: bytes, size: int, mode: int | None) -> bytes:
    """The header of a member; without a mode it has nothing but a name and a size."""
    numbers = b"%-12d%-6d%-6d%-8o" % (0, 0, 0, mode) if mode is not None else b" " * 32
    return b"%-16b%b%-10d`\n" % (name, numbers, size)


def _even(text: bytes, filler: bytes) -> bytes:
    return text + filler * (len(text) % 2)
