"""A plugin of pytest: tests that would compare a batch compile it for another target, and leave the rest to later.

`pytest -p runners.deferred --deferred-to FOLDER` runs tests that take a target and make batches with `compiled.Batch`.
A folder of each batch has a library and what its results have to be; `deferred(FOLDER)` finds them. It knows neither
the tests nor where libraries will run.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from runners import compiled
from runners.compiled import Array, Batch
from runners.replayed import Answer

TARGET = "x86-64-v4"
MOST_BYTES = 3_000_000
"""Batches with more inputs and outputs are skipped: an emulator would need minutes."""
_OPTION = "--deferred-to"
_RECORD = "batch"


@dataclass(frozen=True)
class Deferred:
    """A batch of a test, compiled to `library`."""

    test: str
    library: Path
    arguments: Sequence[Array]
    labels: Sequence[str]
    exact: Sequence[float]
    expected: Sequence[Array]

    def problems(self, answer: Answer) -> list[str]:
        """What is wrong with the answer of the library to the arguments, one for each result that is."""
        if answer.status:
            return [f"{self.test}: status {answer.status}: {answer.content.decode(errors='replace')}"]
        batch = Batch()
        batch.labels, batch.exact = list(self.labels), list(self.exact)
        found = answer.outputs(self.expected)
        return [f"{self.test}: {text}" for text in batch.problems(self.expected, found)]


def defer(folder: Path, tests: Sequence[str], timeout: float = 900) -> list[Deferred]:
    """Run tests (files and folders) for the other target in a process of its own, and find what they left."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-p", "runners.deferred", _OPTION, folder, "-k", TARGET, *tests]
    paths = os.pathsep.join([str(root / "tests"), str(root), os.environ.get("PYTHONPATH", "")])
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=root,
        env={**environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [pickle.loads(path.read_bytes()) for path in sorted(folder.glob(f"*/{_RECORD}"))]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(_OPTION, type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    folder: Path = config.getoption(_OPTION)

    def compare(
        self: Batch,
        target: str,
        *,
        threads: Sequence[int] = (1,),
        opt_level: int = 3,
        optimisation: str | None = None,
    ) -> None:
        assert target == TARGET
        if not self.results:
            return
        expected = self.expected()
        if sum(array.nbytes for array in (*self.arguments, *expected)) > MOST_BYTES:
            pytest.skip("too large for an emulator")
        place = folder / f"{len(list(folder.iterdir())):04}"
        place.mkdir()
        compiled.build(self.function(), target, opt_level, place / "model.so", optimisation)
        test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
        made = (place / "model.so", self.arguments, self.labels, self.exact, expected)
        (place / _RECORD).write_bytes(pickle.dumps(Deferred(test, *made)))

    # before the tests' modules ask for them
    compiled.runnable_targets = lambda: [TARGET]
    Batch.compare = compare  # type: ignore[method-assign]
