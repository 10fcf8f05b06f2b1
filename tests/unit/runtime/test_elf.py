"""Cut ELF files are told from whole ones."""

from __future__ import annotations

from pathlib import Path

from relaybuild.runtime.elf import missing_bytes


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
