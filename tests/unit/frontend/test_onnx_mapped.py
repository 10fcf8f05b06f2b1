"""Bytes of a model's file and of files beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaybuild.frontend.onnx.mapped import map_file, slices_beside


def test_a_file_is_mapped_read_only(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"12345")
    data = map_file(path)
    assert bytes(data) == b"12345"
    assert data.readonly
    path.write_bytes(b"")
    assert bytes(map_file(path)) == b""
    with pytest.raises(FileNotFoundError):
        map_file(tmp_path / "absent")


def test_parts_of_files_beside_a_model(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w").write_bytes(b"0123456789")
    read = slices_beside(tmp_path / "model")
    assert read("data/w", 0, None) == b"0123456789"
    assert read("data/w", 3, 4) == b"3456"
    assert read("data/w", 8, 4) == b"89"
    assert read("data/w", 3, -1) == b""
    with pytest.raises(OSError, match="absent"):
        read("absent", 0, 1)


@pytest.mark.parametrize(("location", "offset"), [("../w", 0), ("/etc/hostname", 0), ("w", -1), ("link", 0)])
def test_other_places_are_refused(tmp_path: Path, location: str, offset: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (tmp_path / "w", folder / "w"):
        path.write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path / "w")
    with pytest.raises(ValueError, match="outside"):
        slices_beside(folder / "model")(location, offset, None)
