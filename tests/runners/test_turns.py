"""Where not all tests can be run, each has its turn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from runners.turns import NO_TIME

TESTS = Path(__file__).resolve().parents[1]
FILES = [f"test_{letter}.py" for letter in "abcdefgh"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        text = "def test_first(): pass\ndef test_second(): pass\n"
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(folder: Path, *options: str) -> tuple[list[str], str]:
    """The tests that were run, in order, and what pytest printed."""
    command = [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "runners.turns", "-p", "no:cacheprovider", *options]
    environ = os.environ | {"PYTHONPATH": str(TESTS)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^(\S+::\S+) PASSED", done.stdout, re.MULTILINE), done.stdout


def test_another_text_is_another_order_of_files(folder: Path) -> None:
    orders = [run(folder, "--turn", text)[0] for text in ("one", "one", "two")]
    assert orders[0] == orders[1] != orders[2]
    for order in orders:
        assert sorted(order) == [f"{name}::test_{each}" for name in FILES for each in ("first", "second")]
        files = [name.partition("::")[0] for name in order]
        assert files[::2] == files[1::2]


@pytest.mark.parametrize(("seconds", "number"), [("0", 0), ("1000", 16)])
def test_what_would_begin_too_late_is_skipped_and_said_to_be(folder: Path, seconds: str, number: int) -> None:
    passed, output = run(folder, f"--within={seconds}", "--turn", "x")
    assert len(passed) == number
    assert (NO_TIME in output) == (number == 0)


def test_what_has_no_time_left_at_all_is_skipped(folder: Path) -> None:
    assert run(folder, "--within=-5")[0] == []


def test_without_options_nothing_changes(folder: Path) -> None:
    passed, _ = run(folder)
    assert [name.partition("::")[0] for name in passed[::2]] == FILES
