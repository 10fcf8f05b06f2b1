"""Modules that are loaded when something of them is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from relaybuild.cli._deferred_imports import defer_imports

defer_imports("late", "pack.late")
defer_imports("late")
assert len([each for each in sys.meta_path if type(each).__name__ == "_DeferringFinder"]) == 1
import late
from pack import late as inner, soon
print("imported", soon.VALUE)
print(late.VALUE, inner.VALUE)
"""


def test_modules_run_when_they_are_used(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    for name in ("late", "pack/__init__", "pack/late", "pack/soon"):
        (tmp_path / f"{name}.py").write_text(f"print('running {name}')\nVALUE = '{name}'\n")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "running pack/__init__",
        "running pack/soon",
        "imported pack/soon",
        "running late",
        "running pack/late",
        "late pack/late",
    ]
