"""Files appear whole or not at all, and a file that cannot be written is the user's error with a reason."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

import pytest

from relaybuild.build.files import (
    check_replaceable,
    check_writable,
    make_folder,
    publish,
    write_atomically,
    write_if_changed,
    writing,
)
from relaybuild.errors import UserError


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "there is no space left on the device; free some, or choose another folder"),
        (errno.EROFS, "the file system is read-only; choose another folder"),
        (errno.EACCES, "permission is denied; choose another folder, or change its permissions"),
        (errno.EIO, os.strerror(errno.EIO)),
    ],
)
def test_each_reason_is_said(code: int, reason: str) -> None:
    with pytest.raises(UserError) as caught, writing(Path("out/model.so")):
        raise OSError(code, os.strerror(code))
    assert str(caught.value) == f"cannot write 'out/model.so': {reason}"


def test_an_unchanged_file_keeps_its_time(tmp_path: Path) -> None:
    path = tmp_path / "a.c"
    assert write_if_changed(path, "int é;\n")
    os.utime(path, ns=(1, 1))
    assert not write_if_changed(path, "int é;\n")
    assert path.stat().st_mtime_ns == 1
    assert write_if_changed(path, "int b;\n")
    assert path.read_text(encoding="utf-8") == "int b;\n"
    assert names(tmp_path) == ["a.c"]


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(b"old")

    def fail(file: BinaryIO) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UserError, match="no space left"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model.so"]


def test_a_full_disk_is_the_users_error(tiny_disk: Path) -> None:
    path = tiny_disk / "weights"
    with pytest.raises(UserError) as caught:
        write_atomically(path, lambda file: _write(file, bytes(1 << 20)))
    assert str(caught.value) == (
        f"cannot write '{path}': there is no space left on the device; free some, or choose another folder"
    )
    assert names(tiny_disk) == []


def test_publishing_to_a_full_disk_leaves_the_old_file(tiny_disk: Path, tmp_path: Path) -> None:
    source, path = tmp_path / "library", tiny_disk / "model.so"
    source.write_bytes(bytes(1 << 20))
    path.write_bytes(b"old")
    with pytest.raises(UserError, match="no space left"):
        publish(source, path, keep_source=False)
    assert path.read_bytes() == b"old"
    assert names(tiny_disk) == ["model.so"]


@pytest.mark.parametrize("keep", [True, False])
def test_publishing_moves_or_copies_with_the_mode(tmp_path: Path, keep: bool) -> None:
    source, path = tmp_path / "library", tmp_path / "model.so"
    source.write_bytes(b"new")
    source.chmod(0o755)
    path.write_bytes(b"old")
    publish(source, path, keep_source=keep)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o755)
    assert names(tmp_path) == (["library", "model.so"] if keep else ["model.so"])


@pytest.mark.parametrize("keep", [True, False])
def test_publishing_what_is_there_leaves_it_alone(tmp_path: Path, keep: bool) -> None:
    source, path = tmp_path / "library", tmp_path / "model.so"
    source.write_bytes(b"new")
    path.write_bytes(b"new")
    os.utime(path, ns=(1, 1))
    publish(source, path, keep_source=keep)
    assert path.stat().st_mtime_ns == 1
    assert names(tmp_path) == (["library", "model.so"] if keep else ["model.so"])


def test_publishing_to_another_device_copies(tiny_disk: Path, tmp_path: Path) -> None:
    source = tmp_path / "library"
    source.write_bytes(b"new")
    publish(source, tiny_disk / "model.so", keep_source=False)
    assert (tiny_disk / "model.so").read_bytes() == b"new"


def test_an_interrupted_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "library"
    source.write_bytes(b"new")

    def interrupted(source: Path, target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copy", interrupted)
    with pytest.raises(KeyboardInterrupt):
        publish(source, tmp_path / "model.so", keep_source=True)
    assert names(tmp_path) == ["library"]


def test_what_cannot_be_an_output(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for path, reason in [
        (tmp_path / "folder", "it is a folder; name a file"),
        (tmp_path / "missing" / "model.so", "its folder does not exist; create it, or choose another"),
        (tmp_path / "file" / "model.so", "what should be its folder is a file; choose another"),
    ]:
        with pytest.raises(UserError) as caught:
            check_writable(path)
        assert str(caught.value) == f"cannot write '{path}': {reason}"


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    link = tmp_path / "link"
    link.symlink_to("far/file")
    assert write_if_changed(link, "x")
    assert link.is_symlink()
    assert (tmp_path / "far" / "file").read_text() == "x"
    assert names(tmp_path / "far") == ["file"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(pipe)
        assert write_if_changed(pipe, "x")
        assert os.read(reader, 9) == b"x"
        assert pipe.is_fifo()
    finally:
        os.close(reader)
    with pytest.raises(UserError, match="it is no regular file; name one"):
        check_replaceable(pipe)
    check_replaceable(tmp_path / "missing")


def test_checking_leaves_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "model.so")
    assert names(tmp_path) == []


def test_long_names_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("m" * 251 + ".so")
    check_writable(path)
    assert write_if_changed(path, "x")
    with pytest.raises(UserError, match="the name is too long"):
        write_if_changed(tmp_path / ("m" * 256), "x")


def test_a_folder_below_a_file_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="what should be its folder is a file"):
        make_folder(tmp_path / "file" / "below")


def _write(file: BinaryIO, data: bytes) -> None:
    file.write(data)
