"""Writes an ELF object that holds one read-only symbol; does not know what the bytes are, nor any assembler.

An assembler reads, copies and writes included bytes once more, which costs 0.15 s for each 100 MB; here they are
written once, between a header and a few tables.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO

from relaybuild.errors import InternalError

# x86-64 and AArch64; objects of other machines may need flags in their header that a linker compares.
_MACHINES = frozenset((62, 183))

ALIGNMENT = 64
"""Alignment in bytes of the symbol, in the object and hence in the library."""

_HEADER_SIZE = 64
_SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2
_GLOBAL_OBJECT = 0x11
_HIDDEN = 2


def can_write_for(elf_machine: int | None) -> bool:
    """Whether objects can be written for a machine, by its ELF number (None: its objects are not ELF64)."""
    return elf_machine in _MACHINES


def write_data_object(
    file: BinaryIO, elf_machine: int, symbol: str, size: int, write_payload: Callable[[BinaryIO], None]
) -> None:
    """Write a relocatable ELF64 object defining `symbol`, hidden, in `.rodata`, over `size` bytes of payload.

    `write_payload` is called once, with the file at the place of the payload, and must write exactly `size` bytes.
    """
    file.write(_header(elf_machine, size))
    start = file.tell()
    write_payload(file)
    written = file.tell() - start
    if written != size:
        raise InternalError(f"the payload of '{symbol}' is {written} bytes long, but {size} were announced")
    file.write(_tail(symbol, size))


def _tables_offset(size: int) -> int:
    return (_HEADER_SIZE + size + 7) // 8 * 8


def _string_tables(symbol: str) -> tuple[bytes, bytes, dict[str, int]]:
    """Symbol names, section names, and the offset of each section's name."""
    names = ("", f".rodata.{symbol}", ".symtab", ".strtab", ".shstrtab", ".note.GNU-stack")
    offsets: dict[str, int] = {}
    table = b""
    for name in names:
        offsets[name] = len(table)
        table += name.encode() + b"\0"
    return b"\0" + symbol.encode() + b"\0", table, offsets


def _header(elf_machine: int, size: int) -> bytes:
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    relocatable, version, no_flags, num_sections, names_index = 1, 1, 0, 6, 4
    return identity + struct.pack(
        "<HHIQQQIHHHHHH",
        relocatable,
        elf_machine,
        version,
        0,
        0,
        _tables_offset(size),
        no_flags,
        _HEADER_SIZE,
        0,
        0,
        _SECTION_HEADER.size,
        num_sections,
        names_index,
    )


def _tail(symbol: str, size: int) -> bytes:
    """What follows the payload: padding, section headers, symbols, names."""
    strings, names, name_offsets = _string_tables(symbol)
    tables = _tables_offset(size)
    symbols = bytes(_SYMBOL.size) + _SYMBOL.pack(1, _GLOBAL_OBJECT, _HIDDEN, 1, 0, size)
    symbols_at = tables + 6 * _SECTION_HEADER.size
    strings_at = symbols_at + len(symbols)
    names_at = strings_at + len(strings)
    end = names_at + len(names)

    def section(name: str, kind: int, flags: int, offset: int, length: int, align: int, entry: int = 0) -> bytes:
        # A symbol table links to its strings (section 3) and says where its global symbols begin (1).
        link, info = (3, 1) if kind == _SYMTAB else (0, 0)
        return _SECTION_HEADER.pack(name_offsets[name], kind, flags, 0, offset, length, link, info, align, entry)

    sections = (
        bytes(_SECTION_HEADER.size),
        section(f".rodata.{symbol}", _PROGBITS, _ALLOC, _HEADER_SIZE, size, ALIGNMENT),
        section(".symtab", _SYMTAB, 0, symbols_at, len(symbols), 8, _SYMBOL.size),
        section(".strtab", _STRTAB, 0, strings_at, len(strings), 1),
        section(".shstrtab", _STRTAB, 0, names_at, len(names), 1),
        section(".note.GNU-stack", _PROGBITS, 0, end, 0, 1),
    )
    padding = bytes(tables - _HEADER_SIZE - size)
    return b"".join((padding, *sections, symbols, strings, names))
