"""Puts data into a library that was linked with room for it, without a linker; does not know what the data is.

A linker reads and writes all that it links, which for weights takes longer than making them. So it is given an object
that has room (`elf.room_object`): no bytes in files, but addresses, at the end of writable memory. Here the bytes are
put behind the linked file, and the room becomes a segment of its own, which is mapped from them and cannot be written:

    before  | headers, code, data, sections |            memory:  … | data | zeros | room (zeros)
    after   | headers, code, data, sections | bytes |    memory:  … | data | zeros | bytes, read-only

The table of segments stays in its place, or tools such as strip would ruin the library. The new segment takes the entry
of a note that came with the room.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from relaybuild.build.elf import ROOM_NOTE, ROOM_SECTION, can_write_for, page_size
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError

_FILE = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")

_LITTLE_ENDIAN_64 = b"\x7fELF\x02\x01"
_LOAD, _NOTES = 1, 4
_READ = 4
_PROGBITS, _NOBITS = 1, 8
_ALLOC = 2


@dataclass(frozen=True)
class _Segment:
    """An entry of the table of segments."""

    kind: int
    flags: int
    offset: int
    address: int
    physical: int
    on_file: int
    in_memory: int
    alignment: int

    def packed(self) -> bytes:
        numbers = (self.offset, self.address, self.physical, self.on_file, self.in_memory, self.alignment)
        return _SEGMENT.pack(self.kind, self.flags, *numbers)


@dataclass(frozen=True)
class _Section:
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
        place = (self.flags, self.address, self.offset, self.size)
        return _SECTION.pack(self.name, self.kind, *place, self.link, self.info, self.alignment, self.entry_size)

    @property
    def end_on_file(self) -> int:
        return self.offset + (self.size if self.kind != _NOBITS else 0)


@dataclass(frozen=True)
class _Library:
    """What the headers of a linked file say; `room` and `note` are the numbers of these sections."""

    segments: Sequence[_Segment]
    segments_at: int
    sections: Sequence[_Section]
    sections_at: int
    room: int
    note: int
    page: int

    @property
    def place(self) -> int:
        """Where the bytes of the room go: behind the linked file, in a page of their own."""
        table = self.sections_at + len(self.sections) * _SECTION.size
        end = max(table, *(section.end_on_file for section in self.sections))
        return -(-end // self.page) * self.page


def has_room(path: Path) -> bool:
    """Whether a file is a library with room for data, which was not filled; raises OSError."""
    with open(path, "rb") as file:
        return _read(file) is not None


def fill_room(path: Path, size: int, write: Callable[[BinaryIO], None]) -> bool:
    """Put data into the room of a library; whether that was possible: if not, the file is as it was.

    `write` is called with a file at the place of the data, and must write exactly `size` bytes. Until it is done, the
    library has room. Raises OSError.
    """
    with open(path, "r+b") as file:
        library = _read(file)
        segments = _segments_with_data(library, size) if library is not None else None
        if library is None or segments is None:
            return False
        file.truncate(library.place)
        file.seek(library.place)
        write(file)
        written = file.tell() - library.place
        if written != size:
            raise InternalError(f"the weights are {written} bytes long, but {size} were announced")
        file.flush()
        _rewrite_headers(file, library, segments)
    return True


def _read(file: BinaryIO) -> _Library | None:
    """The headers of a library with room; None for any other file."""
    head = _FILE.unpack(os.pread(file.fileno(), _FILE.size, 0).ljust(_FILE.size, b"\0"))
    identity, machine, segments_at, sections_at = head[0], head[2], head[5], head[6]
    segment_size, num_segments, section_size, num_sections, names_index = head[9:]
    if not identity.startswith(_LITTLE_ENDIAN_64) or not can_write_for(machine):
        return None
    if segment_size != _SEGMENT.size or section_size != _SECTION.size or names_index >= num_sections:
        return None
    sections = [_Section(*entry) for entry in _table(file, _SECTION, sections_at, num_sections)]
    names = os.pread(file.fileno(), sections[names_index].size, sections[names_index].offset)
    room, note = (_named(name, sections, names) for name in (ROOM_SECTION, ROOM_NOTE))
    if room is None or note is None or sections[room].kind != _NOBITS:
        return None
    segments = [_Segment(*entry) for entry in _table(file, _SEGMENT, segments_at, num_segments)]
    return _Library(segments, segments_at, sections, sections_at, room, note, page_size(machine))


def _table(file: BinaryIO, entry: struct.Struct, offset: int, count: int) -> list[tuple[int, ...]]:
    return list(entry.iter_unpack(os.pread(file.fileno(), count * entry.size, offset)))


def _named(name: str, sections: Sequence[_Section], names: bytes) -> int | None:
    """The number of the only section of a name."""
    wanted = name.encode() + b"\0"
    found = [number for number, section in enumerate(sections) if names.startswith(wanted, section.name)]
    return found[0] if len(found) == 1 else None


def _segments_with_data(library: _Library, size: int) -> list[_Segment] | None:
    """The segments with one for `size` bytes in the place of the note's, no more than before.

    None where the room is not at the end of one that can be cut, and where the note has no entry of its own.
    """
    room, note = library.sections[library.room], library.sections[library.note]
    last = max((segment for segment in library.segments if segment.kind == _LOAD), key=lambda each: each.address)
    before = room.address - last.address
    if room.size != size or room.address % library.page or before < last.on_file:
        return None
    if room.address + room.size != last.address + last.in_memory or _reaches_behind(library, room.address):
        return None
    kept = [each for each in library.segments if (each.kind, each.address, each.in_memory) != _entry_of(note)]
    if len(kept) != len(library.segments) - 1:
        return None
    at = kept.index(last)
    data = _Segment(_LOAD, _READ, library.place, room.address, room.address, size, size, library.page)
    shortened = [replace(last, in_memory=before)] if before else []
    return [*kept[:at], *shortened, data, *kept[at + 1 :]]


def _entry_of(note: _Section) -> tuple[int, int, int]:
    """Kind, address and size of the segment that is a note and nothing else."""
    return _NOTES, note.address, note.size


def _reaches_behind(library: _Library, address: int) -> bool:
    """Whether anything but the room is in memory behind an address."""
    others = (section for number, section in enumerate(library.sections) if number != library.room)
    return any(section.flags & _ALLOC and section.address + section.size > address for section in others)


def _rewrite_headers(file: BinaryIO, library: _Library, segments: Sequence[_Segment]) -> None:
    """Say that the room has bytes, and that the note is none any more. The room is the last to change."""
    room = replace(library.sections[library.room], kind=_PROGBITS, flags=_ALLOC, offset=library.place)
    note = replace(library.sections[library.note], kind=_PROGBITS)
    table = b"".join(segment.packed() for segment in segments).ljust(len(library.segments) * _SEGMENT.size, b"\0")
    os.pwrite(file.fileno(), table, library.segments_at)
    for number, section in ((library.note, note), (library.room, room)):
        os.pwrite(file.fileno(), section.packed(), library.sections_at + number * _SECTION.size)
