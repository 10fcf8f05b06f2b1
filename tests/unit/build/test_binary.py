"""Files are told apart by their build ids, or else by all of their bytes."""

from __future__ import annotations

from pathlib import Path

from relaybuild.build.binary import binary_identity, build_id_and_size


def test_a_program_without_a_build_id_is_known_by_all_of_its_bytes(tmp_path: Path) -> None:
    head = b"\x7fELF" + bytes(60)
    note = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"
    with_id = tmp_path / "with"
    with_id.write_bytes(head + note + bytes(range(20)) + b"rest")
    assert binary_identity(str(with_id)) == b"build-id:" + bytes(range(20))
    for name, content in (("script", b"#!/bin/sh\n" + note + bytes(range(20))), ("cut", head + note + b"short")):
        (tmp_path / name).write_bytes(content)
        assert binary_identity(str(tmp_path / name)).startswith(b"sha256:")
        assert build_id_and_size(str(tmp_path / name)) is None


def test_a_file_that_grew_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "tool"
    path.write_bytes(b"\x7fELF" + bytes(60) + b"\x04\0\0\0\x08\0\0\0\x03\0\0\0GNU\0" + bytes(8))
    first = build_id_and_size(str(path))
    path.write_bytes(path.read_bytes() + b"more")
    assert first != build_id_and_size(str(path))
    assert first == f"build-id:{'00' * 8}:{path.stat().st_size - 4}"
