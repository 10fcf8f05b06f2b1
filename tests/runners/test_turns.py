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
        text = "import time\ndef test_first(): time.sleep(0.2)\ndef test_second(): pass\n"
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


def test_what_would_begin_too_late_is_skipped_and_said_to_be(folder: Path) -> None:
    passed, output = run(folder, "--within", "0.5", "--turn", "x")
    assert 2 <= len(passed) < 16
    assert NO_TIME in output
    assert f"{len(passed)} passed, {16 - len(passed)} skipped" in output


def test_without_options_nothing_changes(folder: Path) -> None:
    passed, _ = run(folder)
    assert [name.partition("::")[0] for name in passed[::2]] == FILES
