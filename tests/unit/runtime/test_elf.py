"""Cut ELF files are told from whole ones, and exports and needs are read as the tools of the linker do."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from relaybuild.runtime.elf import Dynamic, dynamic, missing_bytes

from .building import cc


def test_whole_library_lacks_nothing(sample_library: Path) -> None:
    assert missing_bytes(sample_library) == 0


def test_cut_library_lacks_what_was_cut(sample_library: Path, tmp_path: Path) -> None:
    whole = sample_library.read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(whole[: len(whole) // 2])
    half = missing_bytes(path)
    path.write_bytes(whole[: len(whole) // 2 + half])
    assert missing_bytes(path) == 0
    path.write_bytes(whole[: len(whole) // 2 + half - 1])
    assert missing_bytes(path) == 1


def test_other_files_are_left_to_the_loader(tmp_path: Path) -> None:
    path = tmp_path / "other"
    for content in (b"", b"text", b"\x7fELF\x01\x01" + bytes(100), b"\x7fELF\x02\x01" + bytes(100)):
        path.write_bytes(content)
        assert missing_bytes(path) == 0
        assert dynamic(path) == Dynamic()


def test_exports_and_needs_are_those_of_the_tools(sample_library: Path, tmp_path: Path) -> None:
    found = dynamic(sample_library)
    exports = subprocess.check_output(["nm", "-D", "--defined-only", sample_library], text=True).splitlines()
    assert sorted(found.exports) == sorted(line.split()[-1] for line in exports)
    assert "sample_run" in found.exports
    lines = subprocess.check_output(["readelf", "-d", sample_library], text=True).splitlines()
    assert list(found.needed) == [line.split("[")[1].rstrip("]") for line in lines if "(NEEDED)" in line]
    stripped = tmp_path / "stripped.so"
    subprocess.check_call(["strip", "-o", stripped, sample_library])
    assert dynamic(stripped) == found


def test_needs_of_a_library_over_another(sample_library: Path, tmp_path: Path) -> None:
    (tmp_path / "user.c").write_text("int sample_num_threads(void *);\nint f(void) { return sample_num_threads(0); }\n")
    cc("-shared", "-fPIC", tmp_path / "user.c", sample_library, "-o", tmp_path / "user.so")
    found = dynamic(tmp_path / "user.so")
    assert str(sample_library) in found.needed
    assert "f" in found.exports
    assert "sample_num_threads" not in found.exports


def test_spoilt_tables_are_read_without_a_crash(sample_library: Path, tmp_path: Path) -> None:
    whole = sample_library.read_bytes()
    path = tmp_path / "spoilt.so"
    chance = random.Random(3)
    for _ in range(300):
        spoilt = bytearray(whole)
        for _ in range(8):
            # headers and, at the end, the section table
            place = chance.choice((chance.randrange(16, 64), len(whole) - 1 - chance.randrange(64 * 30)))
            spoilt[place] = chance.randrange(256)
        path.write_bytes(spoilt)
        found = dynamic(path)
        assert all(isinstance(name, str) for name in (*found.exports, *found.needed))
