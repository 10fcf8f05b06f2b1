"""Reads and writes the headers of 64-bit little-endian ELF files; knows of no section what is in it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Sequence
from typing import BinaryIO

from relaybuild.build.elf import can_write_for
from relaybuild.dataclass import dataclass

PROGBITS, SYMTAB, NOBITS = 1, 2, 8
ALLOC = 2

SECTION = struct.Struct("<IIQQQQIIQQ")
_FILE = struct.Struct("<16sHHIQQQIHHHHHH")
_SYMBOL = struct.Struct("<IBBHQQ")

_LITTLE_ENDIAN_64 = b"\x7fELF\x02\x01"


@dataclass(frozen=True)
class Section:
    """An entry of the table of sections."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int

    def packed(self) -> bytes:
        """Its bytes in the table."""
        place = (self.flags, self.address, self.offset, self.size)
        return SECTION.pack(self.name, self.kind, *place, self.link, self.info, self.alignment, self.entry_size)

    @property
    def end_on_file(self) -> int:
        """Where its bytes end in the file."""
        return self.offset + (self.size if self.kind != NOBITS else 0)


@dataclass(frozen=True)
class Headers:
    """What the header of a file says, and its table of sections; offsets begin where the header does."""

    machine: int
    segments_at: int
    segment_size: int
    num_segments: int
    sections: Sequence[Section]
    sections_at: int
    names: bytes

    def named(self, name: str) -> int | None:
        """The number of the only section of a name."""
        wanted = name.encode() + b"\0"
        found = [number for number, section in enumerate(self.sections) if self.names.startswith(wanted, section.name)]
        return found[0] if len(found) == 1 else None

    @property
    def end(self) -> int:
        """Where the last of the sections, or their table, ends."""
        table = self.sections_at + len(self.sections) * SECTION.size
        return max(table, *(section.end_on_file for section in self.sections))


def read_headers(file: BinaryIO) -> Headers | None:
    """The headers of a file; None for one of another kind, or for a machine that no objects can be written for."""
    head = _FILE.unpack(os.pread(file.fileno(), _FILE.size, 0).ljust(_FILE.size, b"\0"))
    identity, machine, segments_at, sections_at = head[0], head[2], head[5], head[6]
    segment_size, num_segments, section_size, num_sections, names_index = head[9:]
    if not identity.startswith(_LITTLE_ENDIAN_64) or not can_write_for(machine):
        return None
    if section_size != SECTION.size or names_index >= num_sections:
        return None
    sections = [Section(*entry) for entry in table(file, SECTION, sections_at, num_sections)]
    names = os.pread(file.fileno(), sections[names_index].size, sections[names_index].offset)
    return Headers(machine, segments_at, segment_size, num_segments, sections, sections_at, names)


def table(file: BinaryIO, entry: struct.Struct, offset: int, count: int) -> list[tuple[int, ...]]:
    """Entries of a table at an offset of the file."""
    return list(entry.iter_unpack(os.pread(file.fileno(), count * entry.size, offset)))


def global_symbols(file: BinaryIO) -> list[str]:
    """The names of the symbols that an object defines for others, in its order."""
    headers = read_headers(file)
    symbols = [section for section in headers.sections if section.kind == SYMTAB] if headers is not None else []
    if headers is None or not symbols:
        return []
    strings = headers.sections[symbols[0].link]
    names = os.pread(file.fileno(), strings.size, strings.offset)
    entries = table(file, _SYMBOL, symbols[0].offset, symbols[0].size // _SYMBOL.size)
    return [names[at : names.index(b"\0", at)].decode() for at in _defined(entries)]


def _defined(entries: Iterable[tuple[int, ...]]) -> list[int]:
    """Where the names of symbols begin that are not local, and are defined."""
    local, undefined = 0, 0
    return [name for name, info, _, section, _, _ in entries if info >> 4 != local and section != undefined]
