"""The page of behaviours names a test or a reason for each, and is what the tests' docstrings say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, "tools/behaviours.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run python tools/behaviours.py"


def test_every_behaviour_has_a_test_or_a_reason() -> None:
    page = (ROOT / "docs" / "behaviours.md").read_text(encoding="utf-8")
    assert [line for line in page.splitlines() if "not tested yet" in line] == []
