"""Every file with tests is one that `pytest` without arguments finds."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


def test_no_folder_of_tests_is_left_out(pytestconfig: pytest.Config) -> None:
    patterns: list[str] = pytestconfig.getini("norecursedirs")
    folders = {part for file in TESTS.rglob("test_*.py") for part in file.relative_to(TESTS).parts[:-1]}
    assert {"build", "unit"} <= folders
    assert [folder for folder in sorted(folders) for pattern in patterns if fnmatch(folder, pattern)] == []
