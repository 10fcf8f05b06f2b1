"""What tells a program's or a library's content from another's, without reading all of it; runs none."""

from __future__ import annotations

import os
import re

from relaybuild.digest import digest_file

_BUILD_ID_NOTE = re.compile(rb"\x04\0\0\0([\x08-\x40])\0\0\0\x03\0\0\0GNU\0", re.DOTALL)


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
        head = file.read(4096)
        note = _BUILD_ID_NOTE.search(head) if head.startswith(b"\x7fELF") else None
        if note is None or note.end() + note[1][0] > len(head):
            return None
        return head[note.end() : note.end() + note[1][0]], os.fstat(file.fileno()).st_size
