"""The object writer, judged by the machine's linker and by readelf; for objects with room see `test_elf_room`."""

from __future__ import annotations

import ctypes
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relaybuild.build.elf import can_write_for, write_data_object
from relaybuild.build.toolchain import Toolchain
from relaybuild.errors import InternalError

GETTER = """
extern const unsigned char rb_blob[];
__attribute__((visibility("default"))) const unsigned char *get(void) { return rb_blob; }
"""


def object_of(data: bytes, elf_machine: int = 62) -> bytes:
    file = io.BytesIO()
    write_data_object(file, elf_machine, "rb_blob", len(data), lambda out: _write(out, data))
    return file.getvalue()


@pytest.mark.parametrize("size", [1, 7, 8, 64, 4097])
def test_a_linker_takes_the_object(tmp_path: Path, toolchain: Toolchain, size: int) -> None:
    if not can_write_for(toolchain.elf_machine) or toolchain.elf_machine is None:
        pytest.skip("the compiler does not make objects that can be written here")
    data = bytes((7 * i + 1) % 256 for i in range(size))
    (tmp_path / "blob.o").write_bytes(object_of(data, toolchain.elf_machine))
    (tmp_path / "get.c").write_text(GETTER, encoding="utf-8")
    command = [*toolchain.compiler_command, *toolchain.cflags, *toolchain.ldflags, "-Wl,--fatal-warnings"]
    subprocess.run([*command, "get.c", "blob.o", "-o", "get.so"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "get.so"))
    library.get.restype = ctypes.c_void_p
    address = library.get()
    assert address % 64 == 0
    assert ctypes.string_at(address, size) == data
    assert not hasattr(library, "rb_blob")


@pytest.mark.skipif(shutil.which("readelf") is None, reason="needs readelf")
def test_readelf_reads_it_without_complaint(tmp_path: Path) -> None:
    path = tmp_path / "blob.o"
    path.write_bytes(object_of(bytes(13), 183))
    listing = subprocess.run(["readelf", "-hSsW", str(path)], capture_output=True, text=True, check=True)
    assert listing.stderr == ""
    assert "AArch64" in listing.stdout
    assert re.search(r"\.rodata\.rb_blob +PROGBITS +0+ 000040 00000d 00 +A +0 +0 +64", listing.stdout)
    assert re.search(r"13 OBJECT +GLOBAL HIDDEN +1 rb_blob", listing.stdout)
    assert ".note.GNU-stack" in listing.stdout


def test_only_known_machines_are_written_for() -> None:
    assert can_write_for(62)
    assert can_write_for(183)
    assert not can_write_for(243)
    assert not can_write_for(None)


@pytest.mark.parametrize("written", [0, 3, 5])
def test_a_payload_of_another_length_is_our_error(written: int) -> None:
    with pytest.raises(InternalError, match=f"is {written} bytes long, but 4 were announced"):
        write_data_object(io.BytesIO(), 62, "rb_blob", 4, lambda out: _write(out, bytes(written)))


def _write(file: object, data: bytes) -> None:
    assert hasattr(file, "write")
    file.write(data)
