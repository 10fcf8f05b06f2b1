"""Digests of files are remembered only where a change could not go unnoticed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaybuild.build.cache import memo
from relaybuild.build.cache.memo import FileState, Inputs
from relaybuild.digest import Digest, digest_bytes, digest_file

TIMEOUT = 60


class Remembered(dict[str, Digest]):
    """A memory that lasts as long as the test."""

    def recall(self, name: str) -> Digest | None:
        return self.get(name)

    def remember(self, name: str, digest: Digest) -> None:
        self[name] = digest


def later() -> float:
    """A clock by which files of this test are old."""
    return time.time() + 60


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file of these tests is too small to be remembered."""
    monkeypatch.setattr(memo, "SMALL_BYTES", 0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"weights 1")
    return file


def test_a_file_is_read_once(path: Path, tmp_path: Path) -> None:
    memory = Remembered()
    assert Inputs(memory, later).digest(path) == digest_bytes(b"weights 1")
    (name,) = memory
    memory[name] = Digest("0" * 64, 9)
    assert Inputs(memory, later).digest(path).hex == "0" * 64
    os.rename(path, tmp_path / "renamed")
    # A rename changes the file's ctime, so it is read again, but never under its old name.
    assert not path.exists()
    assert Inputs(memory, later).digest(tmp_path / "renamed") == digest_bytes(b"weights 1")


def test_pieces_of_work_are_done_while_the_first_long_file_is_read(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memo, "LONG_BYTES", 100)
    done, is_enough = [], threading.Event()

    def work() -> Iterator[None]:
        for piece in range(100):
            done.append(piece)
            if piece == 3:
                is_enough.set()
                for thread in threading.enumerate():
                    if thread.name == "relaybuild-digest":
                        thread.join(TIMEOUT)
            yield

    def digest_slowly(path: str, chunk: int = 0) -> Digest:
        if os.path.basename(path) == "0":
            assert is_enough.wait(TIMEOUT)
        return digest_file(path)

    monkeypatch.setattr(memo, "digest_file", digest_slowly)
    inputs = Inputs(None, later, work())
    assert inputs.digest(path) == digest_bytes(b"weights 1")
    assert done == []
    for number in range(2):
        (tmp_path / str(number)).write_bytes(b"%d" % number * 200)
        assert inputs.digest(tmp_path / str(number)) == digest_bytes(b"%d" % number * 200)
    assert done == [0, 1, 2, 3]
    with pytest.raises(OSError, match="gone"):
        Inputs(None, later, work()).digest(tmp_path / "gone")


def test_a_long_file_that_goes_while_something_is_done_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "LONG_BYTES", 1)
    monkeypatch.setattr(memo, "digest_file", lambda path, chunk=0: digest_file(Path(f"{path}.gone")))
    with pytest.raises(FileNotFoundError):
        Inputs(None, later, [None]).digest(path)


def test_a_small_file_is_read_every_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Remembered({FileState.of(path).name(): Digest("0" * 64, 9)})
    assert Inputs(memory, later).digest(path).hex == "0" * 64
    monkeypatch.setattr(memo, "SMALL_BYTES", 10)
    assert Inputs(memory, later).digest(path) == digest_bytes(b"weights 1")
    assert len(memory) == 1


def test_a_file_that_was_just_written_is_not_remembered(path: Path) -> None:
    memory = Remembered()
    Inputs(memory).digest(path)
    assert memory == {}
    memory[FileState.of(path).name()] = Digest("0" * 64, 9)
    assert Inputs(memory).digest(path) == digest_bytes(b"weights 1")


def test_a_file_from_the_future_is_not_remembered(path: Path) -> None:
    os.utime(path, (4e9, 4e9))
    memory = Remembered()
    Inputs(memory, later).digest(path)
    assert memory == {}


def test_an_edit_that_keeps_size_and_mtime_is_seen(path: Path) -> None:
    memory = Remembered()
    Inputs(memory, later).digest(path)
    found = path.stat()
    path.write_bytes(b"weights 2")
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert path.stat().st_mtime_ns == found.st_mtime_ns
    assert Inputs(memory, later).digest(path) == digest_bytes(b"weights 2")


def test_a_remembered_digest_of_another_size_is_not_believed(path: Path) -> None:
    memory = Remembered({FileState.of(path).name(): Digest("0" * 64, 8)})
    assert Inputs(memory, later).digest(path) == digest_bytes(b"weights 1")


def test_changed_inputs_are_named(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"same")
    inputs = Inputs(None)
    inputs.digest(path)
    inputs.digest(other)
    assert inputs.changed() == []
    path.write_bytes(b"weights, other ones")
    assert inputs.changed() == [path]
    other.unlink()
    assert inputs.changed() == [path, other]


def test_an_edit_within_one_tick_of_the_clock_is_seen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Inputs(None)
    inputs.digest(path)
    state = FileState.of(path)
    path.write_bytes(b"weights 2")
    monkeypatch.setattr(FileState, "of", classmethod(lambda _cls, _path: state))
    assert inputs.changed() == [path]


def test_the_digest_of_a_run_does_not_change_under_it(path: Path) -> None:
    inputs = Inputs(None)
    before = inputs.digest(path)
    path.write_bytes(b"weights 2")
    assert inputs.digest(path) == before


def test_without_a_memory_files_are_read(path: Path) -> None:
    assert Inputs(None, later).digest(path) == digest_bytes(b"weights 1")
    with pytest.raises(FileNotFoundError):
        Inputs(None).digest(path.with_name("absent"))
