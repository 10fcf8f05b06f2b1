"""The command `fmt`: files replaced whole or left alone, what would change listed, errors of all files at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Invoke

UGLY = "def @main(%x: float32){log( %x )} // why\n"
TIDY = "def @main(%x: float32) {\n  log(%x)\n} // why\n"


def test_a_file_is_laid_out_and_keeps_its_mode(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "a.relay"
    path.write_text(UGLY)
    path.chmod(0o640)
    result = invoke("fmt", path)
    assert (result.exit_code, result.output) == (0, "")
    assert path.read_text() == TIDY
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["a.relay"]


def test_a_file_that_is_laid_out_is_not_touched(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "a.relay"
    path.write_text(TIDY)
    before = path.stat()
    assert invoke("fmt", path).exit_code == 0
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_link_stays_a_link(tmp_path: Path, invoke: Invoke) -> None:
    target, link = tmp_path / "a.relay", tmp_path / "b.relay"
    target.write_text(UGLY)
    link.symlink_to(target)
    assert invoke("fmt", link).exit_code == 0
    assert link.is_symlink()
    assert target.read_text() == TIDY


def test_check_lists_and_writes_nothing(tmp_path: Path, invoke: Invoke) -> None:
    ugly, tidy = tmp_path / "ugly.relay", tmp_path / "tidy.relay"
    ugly.write_text(UGLY)
    tidy.write_text(TIDY)
    result = invoke("fmt", "--check", ugly, tidy)
    assert (result.exit_code, result.output) == (1, f"{ugly}\n")
    assert ugly.read_text() == UGLY
    assert invoke("fmt", "--check", tidy).exit_code == 0


def test_standard_input_goes_to_standard_output() -> None:
    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "relaybuild", "fmt", *options, "-"]
        return subprocess.run(command, input=UGLY, capture_output=True, text=True, check=False, timeout=120)

    assert (run().returncode, run().stdout) == (0, TIDY)
    checked = run("--check")
    assert (checked.returncode, checked.stdout) == (1, "<stdin>\n")


def test_lines_that_end_as_on_windows_end_by_a_newline(tmp_path: Path, invoke: Invoke) -> None:
    path = tmp_path / "a.relay"
    path.write_bytes(TIDY.replace("\n", "\r\n").encode())
    assert invoke("fmt", path).exit_code == 0
    assert path.read_bytes() == TIDY.encode()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"def @main() { 1 +\n", ":2:1: found the end of the text, expected an expression"),
        (b"\xff", "it is not UTF-8 at byte 0"),
        (None, "cannot read"),
    ],
)
def test_what_cannot_be_read_is_left_alone(
    data: bytes | None, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from relaybuild.cli import main

    path, other = tmp_path / "a.relay", tmp_path / "b.relay"
    if data is not None:
        path.write_bytes(data)
    other.write_text(UGLY)
    with pytest.raises(SystemExit) as caught:
        main(["fmt", str(path), str(other)])
    assert caught.value.code == 1
    assert message in capfd.readouterr().err
    assert other.read_text() == TIDY
    assert data is None or path.read_bytes() == data
