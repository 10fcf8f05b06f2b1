"""Puts weights into a library, or into an object that it is linked from; does not know what they mean.

Where relaybuild can, the library is linked with room for its weights, and they are written into it. Otherwise they are
linked: as an object that holds them, where a linker has made something else of the room, or through the assembler.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from relaybuild.build.elf import ALIGNMENT, can_write_for, object_room, room_object, write_data_object
from relaybuild.build.elf_room import fill_room, has_room, is_placed_coarsely
from relaybuild.build.files import write_atomically, write_if_changed, writing
from relaybuild.build.toolchain import Toolchain
from relaybuild.dataclass import dataclass
from relaybuild.digest import digest_file
from relaybuild.errors import InternalError, UnsupportedError

WEIGHTS_SYMBOL = "rb_weights"
"""The hidden symbol of the weights: `extern const unsigned char rb_weights[];`, aligned to 64 bytes."""

MAX_WEIGHT_BYTES = 2_000_000_000
"""Code addresses read-only data with 32-bit signed offsets, which all of the library has to share."""


@dataclass(frozen=True)
class WeightBlob:
    """The read-only data of a library: `write` puts exactly `size` bytes into the file it is given.

    `digest` (hexadecimal) stands for the content: equal digests are taken to be equal bytes, and `write` is not called
    when a build directory holds them already. At `offsets` (ascending) something begins that other weights may hold,
    too.
    """

    write: Callable[[BinaryIO], None]
    digest: str
    size: int
    offsets: tuple[int, ...] = ()

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview[Any], digest: str) -> WeightBlob:
        """A blob of bytes in memory."""
        view = memoryview(data).cast("B")
        return WeightBlob(lambda file: _write_view(file, view), digest, view.nbytes)

    @staticmethod
    def from_file(path: Path) -> WeightBlob:
        """The content of a file, which must not change before it has been built; raises OSError."""
        digest = digest_file(path)
        return WeightBlob(lambda file: _copy_file(path, file), digest.hex, digest.size)


@dataclass(frozen=True)
class WeightFiles:
    """Where the weights stand in a build directory: files we write, and the object that is linked, which has room for
    them unless it is assembled."""

    sources: tuple[str, ...] = ()
    object: str | None = None
    is_joined: bool = False

    @property
    def written(self) -> tuple[str, ...]:
        """All files that are written before ninja runs."""
        return self.sources or ((self.object,) if self.object else ())


def check_weights(weights: WeightBlob | None) -> None:
    """Raise UnsupportedError for more weights than a library can hold."""
    if weights is not None and weights.size > MAX_WEIGHT_BYTES:
        raise UnsupportedError(
            f"the weights take {weights.size / 1e9:.2f} GB, but a library holds at most {MAX_WEIGHT_BYTES / 1e9:g} GB; "
            "compile a smaller model, or one with weights of a smaller data type"
        )


def weight_files(weights: WeightBlob | None, toolchain: Toolchain, *, is_joined: bool = False) -> WeightFiles:
    """Where `weights` go: an object that we write, or for other machines a file that their assembler includes.

    `is_joined`: the object becomes part of another one, and not of a library.
    """
    if weights is None:
        return WeightFiles()
    stem = f"weights-{weights.digest[:16]}"
    if can_write_for(toolchain.elf_machine):
        return WeightFiles(object=f"obj/{stem}{'-joined' if is_joined else ''}.o", is_joined=is_joined)
    return WeightFiles(sources=(f"src/{stem}.bin", f"src/{stem}.S"), object=f"obj/{stem}.o")


def write_weights(directory: Path, weights: WeightBlob, files: WeightFiles, toolchain: Toolchain) -> None:
    """Write what is linked for the weights unless the directory has it: its name is of their digest, and it appears
    complete."""
    path = directory / files.written[0]
    if path.exists():
        return
    if files.sources:
        write_if_changed(directory / files.sources[1], _assembly(files.sources[0]))
        write_atomically(path, lambda file: _write_counted(file, weights))
        return
    make_room = object_room if files.is_joined else room_object
    room = make_room(toolchain.elf_machine or 0, WEIGHTS_SYMBOL, weights.size)
    write_atomically(path, lambda file: _write_view(file, memoryview(room)))


def can_write_ahead(weights: WeightBlob | None, files: WeightFiles) -> bool:
    """Whether it can be foreseen where in a library the weights will be."""
    return weights is not None and not files.sources and not files.is_joined and is_placed_coarsely(weights.size)


def put_in_weights(library: Path, weights: WeightBlob, ahead: Path | None = None) -> bool:
    """Write the weights into a library that was linked with room for them; whether it has them now.

    A file `ahead`, of `elf_room.write_ahead`, is used up where it has them in the right place. Raises UserError where
    the library cannot be written.
    """
    with writing(library):
        return not has_room(library) or fill_room(library, weights.size, weights.write, ahead)


def write_weights_object(directory: Path, weights: WeightBlob, files: WeightFiles, toolchain: Toolchain) -> None:
    """Write the weights into the object that had room for them, to be linked as they are."""
    machine, path = toolchain.elf_machine or 0, directory / files.written[0]
    write_atomically(path, lambda file: write_data_object(file, machine, WEIGHTS_SYMBOL, weights.size, weights.write))


def _write_counted(file: BinaryIO, weights: WeightBlob) -> None:
    weights.write(file)
    if file.tell() != weights.size:
        raise InternalError(f"the weights are {file.tell()} bytes long, but {weights.size} were announced")


def _assembly(data: str) -> str:
    return f"""\
#ifdef __APPLE__
    .section __TEXT,__const
    .private_extern _{WEIGHTS_SYMBOL}
    .globl _{WEIGHTS_SYMBOL}
    .balign {ALIGNMENT}
_{WEIGHTS_SYMBOL}:
    .incbin "{data}"
#else
    .section .rodata.{WEIGHTS_SYMBOL}, "a", %progbits
    .globl {WEIGHTS_SYMBOL}
    .hidden {WEIGHTS_SYMBOL}
    .type {WEIGHTS_SYMBOL}, %object
    .balign {ALIGNMENT}
{WEIGHTS_SYMBOL}:
    .incbin "{data}"
    .size {WEIGHTS_SYMBOL}, . - {WEIGHTS_SYMBOL}
    .section .note.GNU-stack, "", %progbits
#endif
"""


def _write_view(file: BinaryIO, view: memoryview) -> None:
    file.write(view)


def _copy_file(path: Path, file: BinaryIO) -> None:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file, 1 << 20)
