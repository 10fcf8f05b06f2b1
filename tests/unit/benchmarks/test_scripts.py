"""Each benchmark of whole models, run as a user types it, on a small model and for a short time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MODEL = ROOT / "examples" / "digits" / "digits.onnx"

COMMANDS = {
    "build": ("--rounds", "2"),
    "build_time": ("--runs", "1"),
    "changes": ("--rounds", "1"),
    "call_overhead": ("--seconds", "0.2"),
    "models": tuple(
        "--seconds 0.2 --threads 1 --against onnxruntime --beside c,x86-64-multi[v2,v3] --cpu-time".split()
    ),
    "pipeline": ("--runs", "1"),
    "startup": ("--runs", "1"),
}


def test_making_room_is_measured_while_others_write(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "cache.py"), "--entries", "500", "--runs", "1"]
    found = tmp_path / "found.json"
    done = subprocess.run([*command, "--json", str(found)], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("500 entries")
    (run,) = json.loads(found.read_text())["runs"]
    assert 300 < run["removed"] < 500
    assert run["puts"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_script_measures_a_model(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    command = [sys.executable, str(ROOT / "benchmarks" / f"{name}.py"), str(MODEL), *COMMANDS[name]]
    found = tmp_path / "found.json"
    done = subprocess.run([*command, "--json", str(found)], capture_output=True, text=True, timeout=180, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "digits" in done.stdout
    assert json.loads(found.read_text())
