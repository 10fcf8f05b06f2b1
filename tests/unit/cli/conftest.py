"""Ways to run the command line, and a real model with its library, compiled once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relaybuild import driver
from relaybuild.cli import main

ROOT = Path(__file__).resolve().parents[3]

Invoke = Callable[..., Result]


@pytest.fixture
def invoke() -> Invoke:
    """Runs the command line in this process: arguments to a result with exit code and both streams."""

    def run(*arguments: str | Path) -> Result:
        return CliRunner().invoke(main, [str(argument) for argument in arguments], prog_name="relaybuild")

    return run


@pytest.fixture
def spawn() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line in a process of its own."""

    def run(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "relaybuild", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)

    return run


@pytest.fixture(scope="session")
def digits_model() -> Path:
    return ROOT / "examples" / "digits" / "digits.onnx"


@pytest.fixture(scope="session")
def digits_library(digits_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("digits") / "digits.so"
    target = "x86-64-v2" if os.uname().machine == "x86_64" else None
    driver.compile(digits_model, threads=1, target=target).export_library(path)
    return path
