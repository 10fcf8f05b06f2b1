"""Makes one object, or an archive of it, of many, with no symbols but chosen ones; does not know what they are for.

The objects are joined by a linker, which leaves room for the weights; a tool of the compiler's makes the symbols local.
So what is in one such object cannot meet what is in another, and no part of it is left out by a linker. The weights are
written behind it, and nobody copies them.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from relaybuild.build.archive import MAGIC, archive_head, archive_tail
from relaybuild.build.elf import ALIGNMENT, data_section
from relaybuild.build.elf_headers import NOBITS, PROGBITS, SECTION, global_symbols, read_headers
from relaybuild.build.files import write_atomically, writing
from relaybuild.build.toolchain import Toolchain
from relaybuild.build.weights import WEIGHTS_SYMBOL, WeightBlob
from relaybuild.build.which import which
from relaybuild.dataclass import dataclass
from relaybuild.errors import InternalError, UnsupportedError, UserError

_COMPILER = re.compile(r"(gcc|clang|cc)(-[0-9.]+)?$")

_INSTALL = """install one:
    Debian, Ubuntu:  apt-get install binutils (or llvm)
    Fedora, RHEL:    dnf install binutils
    Alpine:          apk add binutils"""


def find_objcopy(toolchain: Toolchain, environ: Mapping[str, str]) -> Path:
    """The objcopy of a compiler: beside it, by its name's prefix or its machine's, else on the PATH, else LLVM's.

    Raises UserError if there is none, and UnsupportedError where objects are not ELF files.
    """
    if not toolchain.is_elf:
        raise UnsupportedError(
            f"a static library or an object cannot be made by {toolchain}, whose objects are not ELF files; "
            "compile to a shared library, or to sources"
        )
    compiler = os.fspath(toolchain.path)
    beside = _COMPILER.sub("objcopy", compiler)
    names = (f"{toolchain.machine}-objcopy", "objcopy", "llvm-objcopy")
    candidates = [beside, *(os.path.join(os.path.dirname(compiler), name) for name in names), *names]
    for candidate in candidates:
        if candidate != compiler and (path := which(candidate, path=environ.get("PATH"))) is not None:
            return Path(path)
    raise UserError(
        "a static library or an object needs the program 'objcopy', which was found neither beside the compiler "
        f"'{compiler}' nor on the PATH; {_INSTALL}"
    )


def join_words(toolchain: Toolchain, has_groups: bool) -> tuple[str, ...]:
    """The command that joins objects; `has_groups`: they have parts in common that a linker would keep once."""
    groups = ("-Wl,--force-group-allocation",) if has_groups else ()
    return (*toolchain.compiler_command, "-r", "-nostdlib", *groups, "-Wl,--build-id=none")


def local_words(objcopy: Path, public: Sequence[str]) -> tuple[str, ...]:
    """The command that makes symbols local, but for some."""
    return (os.fspath(objcopy), *(f"--keep-global-symbol={name}" for name in public))


@dataclass(frozen=True)
class _Room:
    """Where an object has room for data: the number of its section, and how many bytes of the object are there."""

    number: int
    sections_at: int
    end: int

    @property
    def place(self) -> int:
        """Where the bytes go, counted from the object's first byte."""
        return -(-self.end // ALIGNMENT) * ALIGNMENT


def finish(path: Path, name: str, weights: WeightBlob | None, *, is_archive: bool) -> None:
    """Give the object at `path` its weights, if it lacks them, and put it into an archive if it is to be one.

    It is replaced when all is written. Raises UserError.
    """
    with writing(path), open(path, "rb") as source:
        room = _room(source, weights)
        if (room is None and not is_archive) or source.read(len(MAGIC)) == MAGIC:
            return
        symbols = global_symbols(source)
        length = os.fstat(source.fileno()).st_size
        size = room.place + weights.size if room is not None and weights is not None else length
        head = archive_head(f"{name}.o", symbols, size) if is_archive else b""
        write_atomically(path, lambda file: _write(file, source, head, room, weights))


def _write(file: BinaryIO, source: BinaryIO, head: bytes, room: _Room | None, weights: WeightBlob | None) -> None:
    file.write(head)
    source.seek(0)
    shutil.copyfileobj(source, file, 1 << 20)
    if room is not None and weights is not None:
        file.truncate(len(head) + room.place)
        file.seek(len(head) + room.place)
        weights.write(file)
        if (written := file.tell() - len(head) - room.place) != weights.size:
            raise InternalError(f"the weights are {written} bytes long, but {weights.size} were announced")
        file.flush()
        _say_that_it_is_full(file, source, len(head), room)
    if head:
        file.write(archive_tail(file.tell() - len(head)))


def _room(file: BinaryIO, weights: WeightBlob | None) -> _Room | None:
    headers = read_headers(file) if weights is not None else None
    number = headers.named(data_section(WEIGHTS_SYMBOL)) if headers is not None else None
    if headers is None or number is None or headers.sections[number].kind != NOBITS:
        return None
    return _Room(number, headers.sections_at, headers.end)


def _say_that_it_is_full(file: BinaryIO, source: BinaryIO, base: int, room: _Room) -> None:
    headers = read_headers(source)
    assert headers is not None
    section = replace(headers.sections[room.number], kind=PROGBITS, offset=room.place)
    os.pwrite(file.fileno(), section.packed(), base + room.sections_at + room.number * SECTION.size)
