"""Libraries with room for data: filled as the machine's linkers make them, judged by loaders and binary tools."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from relaybuild.build.elf import can_write_for, room_object
from relaybuild.build.elf_room import fill_room, has_room
from relaybuild.build.toolchain import Toolchain
from relaybuild.errors import InternalError

SOURCE = """
#include <stdio.h>
extern const unsigned char rb_blob[] __attribute__((visibility("hidden")));
#define EXPORT __attribute__((visibility("default")))
static int counts[3000];
static const char *const names[] = {"even", "odd"};
int state = 5;
EXPORT const unsigned char *get(void) { return rb_blob; }
EXPORT int count(int i) { counts[i] += state; return counts[i] + names[i & 1][0] + rb_blob[i]; }
EXPORT void poke(void) { ((volatile unsigned char *)rb_blob)[3] = 1; }
EXPORT void greet(char *text) { sprintf(text, "%d", counts[7]); }
"""
OTHERS = {
    "behind the room": '.section .tail, "aw", %nobits\n.skip 100\n',
    "beside the note": '.section .note.rb_other, "a", %note\n.balign 4\n.long 4, 0, 1\n.asciz "abc"\n',
}
"""What makes a linker arrange things differently."""
DATA = bytes((7 * i + 1) % 251 for i in range(300_001))


@pytest.fixture
def elf(toolchain: Toolchain) -> Toolchain:
    if not can_write_for(toolchain.elf_machine):
        pytest.skip("the compiler does not make objects that can be written here")
    return toolchain


def linked(folder: Path, toolchain: Toolchain, *words: str, size: int = len(DATA)) -> Path:
    """A library with room, linked from `SOURCE`."""
    (folder / "room.o").write_bytes(room_object(toolchain.elf_machine or 0, "rb_blob", size))
    (folder / "source.c").write_text(SOURCE, encoding="utf-8")
    command = [*toolchain.compiler_command, *toolchain.cflags, *toolchain.ldflags, "-Wl,--fatal-warnings"]
    subprocess.run([*command, "source.c", "room.o", *words, "-o", "get.so"], cwd=folder, check=True)
    return folder / "get.so"


def fill(path: Path, data: bytes = DATA) -> bool:
    return fill_room(path, len(data), lambda file: _write(file, data))


def check(path: Path) -> None:
    """Load the library: it has the data, and its variables still work."""
    library = ctypes.CDLL(str(path))
    library.get.restype = ctypes.c_void_p
    assert library.get() % 4096 == 0
    assert ctypes.string_at(library.get(), len(DATA)) == DATA
    assert [library.count(7), library.count(7)] == [5 + ord("o") + DATA[7], 10 + ord("o") + DATA[7]]
    text = ctypes.create_string_buffer(20)
    library.greet(text)
    assert text.value == b"10"
    assert not hasattr(library, "rb_blob")


@pytest.mark.parametrize("linker", ["", "bfd", "gold", "lld", "mold"])
@pytest.mark.parametrize("flags", [(), ("-fcf-protection",), ("-Wl,-z,noseparate-code",), ("-Wl,-z,now",), ("-g",)])
def test_every_linkers_library_can_be_filled(
    tmp_path: Path, elf: Toolchain, linker: str, flags: tuple[str, ...]
) -> None:
    if linker and shutil.which(f"ld.{linker}") is None:
        pytest.skip(f"there is no 'ld.{linker}'")
    try:
        path = linked(tmp_path, elf, *flags, *([f"-fuse-ld={linker}"] if linker else []))
    except subprocess.CalledProcessError:
        pytest.skip(f"this compiler does not take {flags}")
    assert path.stat().st_size < 40_000
    assert has_room(path)
    assert fill(path)
    assert not has_room(path)
    check(path)


@pytest.mark.skipif(shutil.which("strip") is None or shutil.which("readelf") is None, reason="needs binutils")
@pytest.mark.parametrize("words", [("strip",), ("strip", "-s"), ("objcopy",)])
def test_binary_tools_take_the_library(tmp_path: Path, elf: Toolchain, words: tuple[str, ...]) -> None:
    path = linked(tmp_path, elf)
    assert fill(path)
    target = tmp_path / "other.so"
    command = [*words, path, target] if words[0] == "objcopy" else [*words, "-o", target, path]
    for each in (["readelf", "-alW", path], command, ["readelf", "-alW", target]):
        assert subprocess.run(each, capture_output=True, text=True, check=True).stderr == ""
    check(target)


def test_the_data_cannot_be_written(tmp_path: Path, elf: Toolchain) -> None:
    path = linked(tmp_path, elf)
    assert fill(path)
    code = "import ctypes, sys; library = ctypes.CDLL(sys.argv[1]); print('loaded', flush=True); library.poke()"
    result = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert result.stdout == "loaded\n"
    assert result.returncode < 0


@pytest.mark.parametrize("size", [1, 63, 4096, 4097])
def test_data_of_any_size(tmp_path: Path, elf: Toolchain, size: int) -> None:
    path = linked(tmp_path, elf, size=size)
    assert fill(path, DATA[:size])
    library = ctypes.CDLL(str(path))
    library.get.restype = ctypes.c_void_p
    assert ctypes.string_at(library.get(), size) == DATA[:size]


def test_equal_data_gives_equal_bytes_and_other_data_others(tmp_path: Path, elf: Toolchain) -> None:
    path = linked(tmp_path, elf)
    contents = []
    for number, data in enumerate((DATA, DATA, DATA[::-1])):
        copy = tmp_path / f"{number}.so"
        shutil.copy(path, copy)
        assert fill(copy, data)
        contents.append(copy.read_bytes())
    assert contents[0] == contents[1] != contents[2]
    assert contents[0].endswith(DATA)


def test_a_filling_that_was_broken_off_can_be_done_again(tmp_path: Path, elf: Toolchain) -> None:
    path = linked(tmp_path, elf)
    shutil.copy(path, tmp_path / "whole.so")
    assert fill(tmp_path / "whole.so")
    with pytest.raises(InternalError, match="are 300000 bytes long, but 300001 were announced"):
        fill_room(path, len(DATA), lambda file: _write(file, DATA[:-1]))
    assert has_room(path)
    assert fill(path)
    assert path.read_bytes() == (tmp_path / "whole.so").read_bytes()


def test_room_of_another_size_is_left_alone(tmp_path: Path, elf: Toolchain) -> None:
    path = linked(tmp_path, elf)
    before = path.read_bytes()
    assert not fill(path, DATA[:-1])
    assert path.read_bytes() == before


@pytest.mark.parametrize("where", OTHERS)
def test_a_layout_that_is_not_understood_is_left_alone(tmp_path: Path, elf: Toolchain, where: str) -> None:
    (tmp_path / "other.S").write_text(OTHERS[where] + '.section .note.GNU-stack, "", %progbits\n', encoding="utf-8")
    path = linked(tmp_path, elf, "other.S")
    before = path.read_bytes()
    assert has_room(path)
    assert not fill(path)
    assert path.read_bytes() == before


def test_other_files_have_no_room(tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF", b"text" * 100, bytes(1000)):
        (tmp_path / "file").write_bytes(content)
        assert not has_room(tmp_path / "file")
    assert not has_room(Path(sys.executable))


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
