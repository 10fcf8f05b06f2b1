"""Tells a whole ELF file from a cut one before the loader maps it; knows nothing of what the file contains."""

from __future__ import annotations

import os
import struct
from pathlib import Path

MAGIC = b"\x7fELF"

_HEADER = struct.Struct("<16s2H I 3Q I 6H")
_SEGMENT = struct.Struct("<2I 6Q")
_CLASS_64, _LITTLE_ENDIAN = 2, 1


def missing_bytes(path: Path) -> int:
    """How many bytes an ELF file lacks at its end, 0 for a whole one and for any other kind of file.

    The loader maps what the headers promise: touching a page beyond the file's end would kill the process.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(_HEADER.size)
        if not head.startswith(MAGIC):
            return 0
        if len(head) < _HEADER.size:
            return _HEADER.size - len(head)
        if head[4] != _CLASS_64 or head[5] != _LITTLE_ENDIAN:
            return 0
        table_offset, entry_size, entries = _segment_table(head)
        if entry_size != _SEGMENT.size:
            return 0
        file.seek(table_offset)
        table = file.read(entry_size * entries)
    whole_entries = table[: len(table) // _SEGMENT.size * _SEGMENT.size]
    ends: list[int] = [segment[2] + segment[5] for segment in _SEGMENT.iter_unpack(whole_entries)]
    return max(0, table_offset + entry_size * entries - size, *(end - size for end in ends))


def _segment_table(head: bytes) -> tuple[int, int, int]:
    """Offset, size of an entry and number of entries of the program header table."""
    fields: tuple[int, ...] = _HEADER.unpack(head)[1:]
    return fields[4], fields[8], fields[9]
