"""What tells a program's or a library's content from another's, without reading all of it; runs none."""

from __future__ import annotations

import os

from relaybuild.digest import digest_file

# A note's name has four bytes; its length and its kind come before it, the id's length between.
_NAME_BYTES, _KIND_AND_NAME = b"\4\0\0\0", b"\3\0\0\0GNU\0"
_HEAD_BYTES = 4096
_MIN_BYTES, _MAX_BYTES = 8, 64


def binary_identity(path: str) -> bytes:
    """The GNU build id of a file, else the SHA-256 of the whole of it; raises OSError.

    Hashing the compiler proper (30 MB and more) on every build would take longer than compiling a kernel.
    """
    identity = _build_id(path)
    return b"build-id:" + identity[0] if identity else b"sha256:" + bytes.fromhex(digest_file(path).hex)


def build_id_and_size(path: str) -> str | None:
    """The GNU build id of a file and its size, as one word; None where it has none. Raises OSError."""
    identity = _build_id(path)
    return f"build-id:{identity[0].hex()}:{identity[1]}" if identity else None


def _build_id(path: str) -> tuple[bytes, int] | None:
    with open(path, "rb") as file:
        head = file.read(_HEAD_BYTES)
        kind = head.find(_KIND_AND_NAME) if head.startswith(b"\x7fELF") else -1
        if kind < 0 or head[kind - 8 : kind - 4] != _NAME_BYTES:
            return None
        size, begin = int.from_bytes(head[kind - 4 : kind], "little"), kind + len(_KIND_AND_NAME)
        if not _MIN_BYTES <= size <= _MAX_BYTES or begin + size > len(head):
            return None
        return head[begin : begin + size], os.fstat(file.fileno()).st_size
