"""Reads what an ELF file says of itself without the loader: whether it is whole, what it exports, what it needs."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from relaybuild.dataclass import dataclass

MAGIC = b"\x7fELF"

_HEADER = struct.Struct("<16s2H I 3Q I 6H")
_SEGMENT = struct.Struct("<2I 6Q")
_SECTION = struct.Struct("<2I 4Q 2I 2Q")
_SYMBOL = struct.Struct("<I 2B H 2Q")
_DYNAMIC_ENTRY = struct.Struct("<q Q")
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_SECTION_DYNAMIC, _SECTION_DYNAMIC_SYMBOLS = 6, 11
_NEEDED, _SONAME = 1, 14
_LOCAL, _UNDEFINED = 0, 0


@dataclass(frozen=True)
class Dynamic:
    """What the loader is told: names of the symbols that a library exports, and of the libraries that it needs; and the
    name by which others need it, empty where it has none."""

    exports: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    soname: str = ""


def dynamic(path: Path) -> Dynamic:
    """Exports, needs and name of a 64-bit little-endian ELF file, in its order; nothing for any other file.

    Raises OSError where the file cannot be read.
    """
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < _HEADER.size:
            return Dynamic()
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content[:4] != MAGIC or content[4] != _CLASS_64 or content[5] != _LITTLE_ENDIAN:
                return Dynamic()
            try:
                return _dynamic(content)
            except (struct.error, IndexError, OverflowError, UnicodeDecodeError):
                return Dynamic()


def missing_bytes(path: Path) -> int:
    """How many bytes an ELF file lacks at its end, 0 for a whole one and for any other kind of file.

    The loader maps what the headers promise: touching a page beyond the file's end would kill the process. The table of
    sections, which it does not need, is at the very end of most files: without it a library is cut all the same.
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
        fields: tuple[int, ...] = _HEADER.unpack(head)[1:]
        segments, sections, entry_size, entries = fields[4], fields[5], fields[8], fields[9]
        if entry_size != _SEGMENT.size:
            return 0
        file.seek(segments)
        table = file.read(entry_size * entries)
    whole_entries = table[: len(table) // _SEGMENT.size * _SEGMENT.size]
    ends: list[int] = [segment[2] + segment[5] for segment in _SEGMENT.iter_unpack(whole_entries)]
    ends += [segments + entry_size * entries, sections + fields[10] * fields[11]]
    return max(0, *(end - size for end in ends))


def _dynamic(content: mmap.mmap) -> Dynamic:
    fields = _HEADER.unpack_from(content)
    table_offset, entry_size, count = fields[6], fields[11], fields[12]
    if entry_size != _SECTION.size:
        return Dynamic()
    sections = [_SECTION.unpack_from(content, table_offset + number * entry_size) for number in range(count)]
    exports: list[str] = []
    needed: list[str] = []
    sonames: list[str] = []
    for section in sections:
        kind, offset, size, strings = section[1], section[4], section[5], section[6]
        if kind == _SECTION_DYNAMIC_SYMBOLS:
            exports += _exports(content[offset : offset + size], content, sections[strings][4])
        elif kind == _SECTION_DYNAMIC:
            entries = content[offset : offset + size]
            needed += _names(_NEEDED, entries, content, sections[strings][4])
            sonames += _names(_SONAME, entries, content, sections[strings][4])
    return Dynamic(tuple(exports), tuple(needed), "".join(sonames))


def _exports(symbols: bytes, content: mmap.mmap, strings: int) -> Iterator[str]:
    for name, info, _, section, _, _ in _SYMBOL.iter_unpack(symbols):
        if section != _UNDEFINED and info >> 4 != _LOCAL:
            yield _text(content, strings + name)


def _names(wanted: int, entries: bytes, content: mmap.mmap, strings: int) -> Iterator[str]:
    for tag, value in _DYNAMIC_ENTRY.iter_unpack(entries):
        if tag == wanted:
            yield _text(content, strings + value)


def _text(content: mmap.mmap, start: int) -> str:
    end = content.find(b"\0", start)
    if end < 0:
        raise IndexError("a name does not end")
    return content[start:end].decode()
