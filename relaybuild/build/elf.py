"""Writes ELF objects that define one symbol over data; does not know what the bytes are, nor any assembler.

An assembler reads, copies and writes included bytes once more, and so does a linker. An object can leave room for them
instead, which takes no place in files: `elf_room` puts the bytes into the library that was linked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO

from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError

ROOM_SECTION = ".rb_room"
"""The section of an object, and hence of a library, that has room for data."""

ROOM_NOTE = ".note.rb_room"
"""A section beside it, for which linkers make an entry in the table of segments that a segment of the data can take."""

# x86-64 and AArch64, with their largest page sizes; objects of other machines may need flags in their header that a
# linker compares.
_PAGE_SIZES = {62: 4096, 183: 65536}

ALIGNMENT = 64
"""Alignment in bytes of the symbol, in the object and hence in the library."""

_HEADER_SIZE = 64
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_PROGBITS, _SYMTAB, _STRTAB, _NOTE, _NOBITS = 1, 2, 3, 7, 8
_WRITE, _ALLOC = 1, 2
_GLOBAL_OBJECT = 0x11
_HIDDEN = 2


def can_write_for(elf_machine: int | None) -> bool:
    """Whether objects can be written for a machine, by its ELF number (None: its objects are not ELF64)."""
    return elf_machine in _PAGE_SIZES


def page_size(elf_machine: int) -> int:
    """The largest page size in bytes of a machine that objects can be written for."""
    return _PAGE_SIZES[elf_machine]


def data_section(symbol: str) -> str:
    """The section that an object has a symbol's data in, unless it is in `ROOM_SECTION`."""
    return f".rodata.{symbol}"


@dataclass(frozen=True)
class _Data:
    """The section over the data, of which `on_file` bytes are in the object, and the content of a note beside it."""

    symbol: str
    section: str
    kind: int
    flags: int
    alignment: int
    size: int
    on_file: int
    note: bytes = b""


def write_data_object(
    file: BinaryIO, elf_machine: int, symbol: str, size: int, write_payload: Callable[[BinaryIO], None]
) -> None:
    """Write a relocatable ELF64 object defining `symbol`, hidden, in `.rodata`, over `size` bytes of payload.

    `write_payload` is called once, with the file at the place of the payload, and must write exactly `size` bytes.
    """
    data = _Data(symbol, data_section(symbol), _PROGBITS, _ALLOC, ALIGNMENT, size, size)
    file.write(_header(elf_machine, data))
    start = file.tell()
    write_payload(file)
    written = file.tell() - start
    if written != size:
        raise InternalError(f"the payload of '{symbol}' is {written} bytes long, but {size} were announced")
    file.write(_tail(data))


def room_object(elf_machine: int, symbol: str, size: int) -> bytes:
    """A relocatable ELF64 object defining `symbol`, hidden, over `size` bytes that are zero and take no place in it.

    They begin a page, in `ROOM_SECTION`. Linkers put sections of its kind behind all others, in writable memory.
    """
    name = b"relaybuild\0\0"
    note = struct.pack("<III", len(name) - 1, 0, 0) + name
    data = _Data(symbol, ROOM_SECTION, _NOBITS, _ALLOC | _WRITE, page_size(elf_machine), size, 0, note)
    return _header(elf_machine, data) + _tail(data)


def object_room(elf_machine: int, symbol: str, size: int) -> bytes:
    """A relocatable ELF64 object as `write_data_object` writes it, but with room for the payload in place of it.

    It keeps the room where it is linked with others to one relocatable object: `relocatable` puts the bytes there.
    """
    data = _Data(symbol, data_section(symbol), _NOBITS, _ALLOC, ALIGNMENT, size, 0)
    return _header(elf_machine, data) + _tail(data)


def _tables_offset(data: _Data) -> int:
    return (_HEADER_SIZE + data.on_file + 7) // 8 * 8


def _string_tables(data: _Data) -> tuple[bytes, bytes, dict[str, int]]:
    """Symbol names, section names, and the offset of each section's name."""
    names = ("", data.section, ".symtab", ".strtab", ".shstrtab", ".note.GNU-stack", ROOM_NOTE)
    offsets: dict[str, int] = {}
    table = b""
    for name in names:
        offsets[name] = len(table)
        table += name.encode() + b"\0"
    return b"\0" + data.symbol.encode() + b"\0", table, offsets


def _header(elf_machine: int, data: _Data) -> bytes:
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    relocatable, version, no_flags, names_index = 1, 1, 0, 4
    return identity + struct.pack(
        "<HHIQQQIHHHHHH",
        relocatable,
        elf_machine,
        version,
        0,
        0,
        _tables_offset(data),
        no_flags,
        _HEADER_SIZE,
        0,
        0,
        _SECTION_HEADER.size,
        _num_sections(data),
        names_index,
    )


def _num_sections(data: _Data) -> int:
    return 7 if data.note else 6


def _tail(data: _Data) -> bytes:
    """What follows the payload: padding, section headers, symbols, names."""
    strings, names, name_offsets = _string_tables(data)
    tables = _tables_offset(data)
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, data.size)
    note_at = tables + _num_sections(data) * _SECTION_HEADER.size
    symbols_at = note_at + len(data.note)
    strings_at = symbols_at + len(symbols)
    names_at = strings_at + len(strings)
    end = names_at + len(names)

    def section(name: str, kind: int, flags: int, offset: int, length: int, align: int, entry: int = 0) -> bytes:
        # A symbol table links to its strings (section 3) and says where its global symbols begin (1).
        link, info = (3, 1) if kind == _SYMTAB else (0, 0)
        return _SECTION_HEADER.pack(name_offsets[name], kind, flags, 0, offset, length, link, info, align, entry)

    sections = (
        bytes(_SECTION_HEADER.size),
        section(data.section, data.kind, data.flags, _HEADER_SIZE, data.size, data.alignment),
        section(".symtab", _SYMTAB, 0, symbols_at, len(symbols), 8, _SYMBOL.size),
        section(".strtab", _STRTAB, 0, strings_at, len(strings), 1),
        section(".shstrtab", _STRTAB, 0, names_at, len(names), 1),
        section(".note.GNU-stack", _PROGBITS, 0, end, 0, 1),
        section(ROOM_NOTE, _NOTE, _ALLOC, note_at, len(data.note), 4) if data.note else b"",
    )
    padding = bytes(tables - _HEADER_SIZE - data.on_file)
    return b"".join((padding, *sections, data.note, symbols, strings, names))
