"""Puts data into a library that was linked with room for it, without a linker; does not know what the data is.

A linker reads and writes all that it links, which for weights takes longer than making them. So it is given an object
that has room (`elf.room_object`): no bytes in files, but addresses, at the end of writable memory. Here the bytes are
put behind the linked file, and the room becomes a segment of its own, which is mapped from them and cannot be written:

    before  | headers, code, data, sections |            memory:  … | data | zeros | room (zeros)
    after   | headers, code, data, sections | bytes |    memory:  … | data | zeros | bytes, read-only

The table of segments stays in its place, or tools such as strip would ruin the library. The new segment takes the entry
of a note that came with the room.

Many bytes begin at a coarse place: where the code has changed a little, they are where they were. Who expects that can
have them written there while the rest is still being made.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from relaybuild.build.elf import ROOM_NOTE, ROOM_SECTION, page_size
from relaybuild.build.elf_headers import ALLOC, NOBITS, PROGBITS, SECTION, Headers, Section, read_headers, table
from relaybuild.build.files import reserve
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError

LAYOUT = "room.2"
"""Names how a library is filled: equal files with room become equal libraries under one name."""

_MANY_BYTES = 16 << 20
_COARSE = 256 << 10

_SEGMENT = struct.Struct("<IIQQQQQQ")

_LOAD, _NOTES = 1, 4
_READ = 4


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
class _Library:
    """What the headers of a linked file say; `room` and `note` are the numbers of these sections."""

    headers: Headers
    segments: Sequence[_Segment]
    room: int
    note: int

    @property
    def sections(self) -> Sequence[Section]:
        return self.headers.sections

    @property
    def page(self) -> int:
        return page_size(self.headers.machine)

    @property
    def place(self) -> int:
        """Where the bytes of the room go: behind the linked file, in pages of their own."""
        step = max(self.page, _COARSE) if is_placed_coarsely(self.sections[self.room].size) else self.page
        return -(-self.headers.end // step) * step


def has_room(path: Path) -> bool:
    """Whether a file is a library with room for data, which was not filled; raises OSError."""
    with open(path, "rb") as file:
        return _read(file) is not None


def is_placed_coarsely(size: int) -> bool:
    """Whether it can be foreseen where so many bytes go."""
    return size >= _MANY_BYTES


def write_ahead(file: BinaryIO, place: int, size: int, write: Callable[[BinaryIO], None]) -> None:
    """Fill an empty file that `fill_room` takes over where the room turns out to be at `place`; raises OSError.

    `write` is as for `fill_room`.
    """
    _write_data(file, place, size, write)


def fill_room(path: Path, size: int, write: Callable[[BinaryIO], None], ahead: Path | None = None) -> bool:
    """Put data into the room of a library; whether that was possible: if not, the file is as it was.

    `write` is called with a file at the place of the data, and must write exactly `size` bytes. It is not called where
    the file `ahead`, of `write_ahead`, has them at that place: it becomes the library then. Until the data are there,
    the library has room. Raises OSError.
    """
    with open(path, "r+b") as file:
        library = _read(file)
        segments = _segments_with_data(library, size) if library is not None else None
        if library is None or segments is None:
            return False
        if ahead is not None and os.stat(ahead).st_size == library.place + size:
            _complete(ahead, file, library, segments)
            os.replace(ahead, path)
            return True
        file.truncate(library.place)
        _write_data(file, library.place, size, write)
        _rewrite_headers(file, library, segments)
    return True


def _write_data(file: BinaryIO, place: int, size: int, write: Callable[[BinaryIO], None]) -> None:
    reserve(file, place + size)
    file.seek(place)
    write(file)
    written = file.tell() - place
    if written != size:
        raise InternalError(f"the weights are {written} bytes long, but {size} were announced")
    file.flush()


def _complete(ahead: Path, linked: BinaryIO, library: _Library, segments: Sequence[_Segment]) -> None:
    """Put before the data what was linked."""
    linked.seek(0)
    with open(ahead, "r+b") as file:
        file.write(linked.read(library.place))
        file.flush()
        os.fchmod(file.fileno(), os.fstat(linked.fileno()).st_mode & 0o7777)
        _rewrite_headers(file, library, segments)


def _read(file: BinaryIO) -> _Library | None:
    """The headers of a library with room; None for any other file."""
    headers = read_headers(file)
    if headers is None or headers.segment_size != _SEGMENT.size:
        return None
    room, note = headers.named(ROOM_SECTION), headers.named(ROOM_NOTE)
    if room is None or note is None or headers.sections[room].kind != NOBITS:
        return None
    segments = [_Segment(*entry) for entry in table(file, _SEGMENT, headers.segments_at, headers.num_segments)]
    return _Library(headers, segments, room, note)


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


def _entry_of(note: Section) -> tuple[int, int, int]:
    """Kind, address and size of the segment that is a note and nothing else."""
    return _NOTES, note.address, note.size


def _reaches_behind(library: _Library, address: int) -> bool:
    """Whether anything but the room is in memory behind an address."""
    others = (section for number, section in enumerate(library.sections) if number != library.room)
    return any(section.flags & ALLOC and section.address + section.size > address for section in others)


def _rewrite_headers(file: BinaryIO, library: _Library, segments: Sequence[_Segment]) -> None:
    """Say that the room has bytes, and that the note is none any more. The room is the last to change."""
    room = replace(library.sections[library.room], kind=PROGBITS, flags=ALLOC, offset=library.place)
    note = replace(library.sections[library.note], kind=PROGBITS)
    segment_table = b"".join(segment.packed() for segment in segments)
    os.pwrite(
        file.fileno(), segment_table.ljust(len(library.segments) * _SEGMENT.size, b"\0"), library.headers.segments_at
    )
    for number, section in ((library.note, note), (library.room, room)):
        os.pwrite(file.fileno(), section.packed(), library.headers.sections_at + number * SECTION.size)
